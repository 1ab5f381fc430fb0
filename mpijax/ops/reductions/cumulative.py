"""Cumulative sums, products, extremes and log-sum-exps along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.default_rules import cumulative
from mpijax.core.rules.factors import FactorRule
from mpijax.core.rules.lowering import Combiner, Cumulative
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import part_number
from mpijax.ops import same_bits
from mpijax.ops.collectives.prefixes import before
from mpijax.ops.elementwise.binary import add, max, min, mul
from mpijax.ops.families import LINEAR
from mpijax.ops.indexing.slicing import slice_in_dim
from mpijax.ops.reductions.associative import associative_scan
from mpijax.ops.rules import broadcast_to, const_like, full_like
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.jvp import jvp_flat


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Cumulative sums along an axis; from each element to the end if `reverse`.

    The result has the operand's shape and dtype; `axis` counts from the front.

    >>> lax.cumsum(jnp.array([1, 2, 3, 4]), reverse=True)
    Array([10,  9,  7,  4], dtype=int32)
    """
    return cumsum_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Cumulative products along an axis; from each element to the end if `reverse`.

    The result has the operand's shape and dtype; `axis` counts from the front.

    >>> lax.cumprod(jnp.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    return cumprod_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def cummax(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Cumulative maxima along an axis; from each element to the end if `reverse`.

    The result has the operand's shape and dtype; `axis` counts from the front.

    >>> lax.cummax(jnp.array([1, 3, 2, 5, 4]))
    Array([1, 3, 3, 5, 5], dtype=int32)
    """
    return cummax_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def cummin(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Cumulative minima along an axis; from each element to the end if `reverse`.

    The result has the operand's shape and dtype; `axis` counts from the front.

    >>> lax.cummin(jnp.array([4, 5, 2, 3, 1]))
    Array([4, 4, 2, 2, 1], dtype=int32)
    """
    return cummin_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Cumulative log(sum(exp(x))) along an axis; from each element to the end if `reverse`.

    The result has the operand's shape and dtype; `axis` counts from the front.

    >>> lax.cumlogsumexp(jnp.zeros(3)).round(4)
    Array([0.    , 0.6931, 1.0986], dtype=float32)
    """
    return cumlogsumexp_p.bind(operand, axis=int(axis), reverse=bool(reverse))


# ---------------------------------------------------------------- log(exp(x) + exp(y))


@custom_jvp
def logaddexp(x, y):
    """log(exp(x) + exp(y)) without overflow."""
    high = registry["max"].bind(x, y)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return _complex_logaddexp(x, y, high)
    delta = registry["sub"].bind(x, y)
    # The difference of equal infinities is NaN; their sum is the result, and NaN for NaN.
    undefined = registry["ne"].bind(delta, delta)
    total = registry["add"].bind(x, y)
    small = registry["exp"].bind(registry["neg"].bind(registry["abs"].bind(delta)))
    result = registry["add"].bind(high, registry["log1p"].bind(small))
    return registry["select_n"].bind(undefined, result, total)


def _complex_logaddexp(x, y, larger):
    """`logaddexp` of complex numbers, with the imaginary part in [-pi, pi)."""
    delta = registry["sub"].bind(registry["add"].bind(x, y), registry["add"].bind(larger, larger))
    out = registry["add"].bind(larger, registry["log1p"].bind(registry["exp"].bind(delta)))
    imaginary = registry["imag"].bind(out)
    half, turn = full_like(imaginary, np.pi), full_like(imaginary, 2 * np.pi)
    rest = registry["rem"].bind(registry["add"].bind(imaginary, half), turn)
    negative = registry["lt"].bind(rest, full_like(rest, 0))
    rest = registry["select_n"].bind(negative, rest, registry["add"].bind(rest, turn))
    return registry["complex"].bind(registry["real"].bind(out), registry["sub"].bind(rest, half))


def _logaddexp_jvp(primals, tangents):
    (x, y), (tx, ty) = primals, tangents
    out = logaddexp(x, y)

    def finite(v):
        infinite = registry["eq"].bind(v, const_like(v, np.inf))
        return registry["select_n"].bind(infinite, v, full_like(v, 0))

    def term(t, v):
        return registry["mul"].bind(t, registry["exp"].bind(registry["sub"].bind(finite(v), finite(out))))

    first = term(tx, x)
    return out, registry["add"].bind(first, term(ty, y))


logaddexp.defjvp(_logaddexp_jvp)

# ---------------------------------------------------------------- rules


def _type(name: str) -> Callable:
    def type_rule(x, *, axis, reverse):
        if axis < 0:
            raise ValueError("XLA operations do not allow negative axes")
        if axis >= x.ndim:
            raise ValueError(f"axis {axis} is out of bounds for array of shape {x.shape}")
        if not dtypes.issubdtype(x.dtype, np.number):
            raise TypeError(
                f"{name} does not accept dtype {x.dtype}. Accepted dtypes are subtypes of number."
            )
        return x

    return type_rule


def _reference(accumulate: Callable) -> Callable:
    """Accumulates floats narrower than float32 in float32, and rounds at the end."""

    def reference(x, *, axis, reverse):
        narrow = dtypes.issubdtype(x.dtype, np.floating) and x.dtype.itemsize < 4
        wide = x.astype(np.float32) if narrow else x
        wide = np.flip(wide, axis) if reverse else wide
        with np.errstate(all="ignore"):
            out = accumulate(wide, axis)
        out = np.flip(out, axis) if reverse else out
        return np.ascontiguousarray(out).astype(x.dtype, copy=False)

    return reference


def _running_logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    if x.dtype.kind != "c":
        return np.logaddexp.accumulate(x, axis)
    top = np.maximum.accumulate(x.real, axis).max(axis, keepdims=True)
    return np.log(np.add.accumulate(np.exp(x - top), axis)) + top


def _batch(primitive_of: Callable) -> Callable:
    def batch(axis_data, args, dims, *, axis, reverse):
        (dim,) = dims
        return primitive_of().bind(*args, axis=axis + (dim <= axis), reverse=reverse), dim

    return batch


_NOT_LINEAR = Unsupported(
    "only cumsum is linear; the derivatives of the others use linear operations"
)


def _over_ranks(primitive_of: Callable, combine: Callable) -> FactorRule:
    """Along a split axis, each rank accumulates its part and combines it with the totals of the parts before.

    Sends one element along the axis for each power of two below the number of ranks.
    """

    def plan(s: rules.Operation) -> rules.Plan | None:
        axis, reverse = s.params["axis"] % len(s.shapes[0]), s.params["reverse"]
        cut = s.cuts[0][axis]
        if cut is None or cut.has_empty_parts:
            return None
        me = part_number(cut.axes, s.sizes, s.place)

        def program(x: Any) -> Any:
            mine = primitive_of().bind(x, axis=axis, reverse=reverse)
            n = x.shape[axis]
            last = slice_in_dim(mine, 0, 1, axis=axis) if reverse else slice_in_dim(mine, n - 1, n, axis=axis)
            total = before(last, cut.axes, me, cut.parts, combine, reverse)
            return mine if total is None else combine(broadcast_to(total, x.shape), mine)

        return rules.Plan(s.cuts, s.cuts, s.params, program=program)

    return cumulative.but(better=plan)


def _define(
    name: str,
    op: Combiner,
    accumulate: Callable,
    combine: Callable,
) -> Primitive:
    reference = _reference(accumulate)

    def jvp(primals, tangents, *, axis, reverse):
        outs, out_tangents = jvp_flat(lambda x: [associative_scan(combine, x, reverse, axis)], primals, tangents)
        return outs[0], out_tangents[0]

    primitive = Primitive(
        name,
        type_rule=_type(name),
        reference=reference,
        lower=Cumulative(op),
        jvp=jvp,
        transpose=_NOT_LINEAR,
        batch=_batch(lambda: primitive),
        sharding=_over_ranks(lambda: primitive, combine),
    )
    if op not in (Combiner.MAX, Combiner.MIN):
        primitive.same_bits = _same_bits(combine)
    return primitive


def _same_bits(combine: Callable) -> Callable:
    """For cumulative products and others: a tree of combinations that depends on the length only."""

    def rule(x: Any, *, axis: int, reverse: bool) -> Any:
        return associative_scan(combine, x, reverse, axis) if same_bits.adds_floats(x) else None

    return rule


cumsum_p = _define(
    "cumsum",
    Combiner.ADD,
    lambda x, axis: np.add.accumulate(x, axis, dtype=x.dtype),
    add,
)
cumsum_p.jvp = LINEAR.attach(cumsum_p)
cumsum_p.same_bits = same_bits.cumsum
cumsum_p.transpose = lambda ct, _operand, *, axis, reverse: [cumsum(ct, axis, not reverse)]
cumprod_p = _define(
    "cumprod",
    Combiner.MUL,
    lambda x, axis: np.multiply.accumulate(x, axis, dtype=x.dtype),
    mul,
)
cummax_p = _define("cummax", Combiner.MAX, np.maximum.accumulate, max)
cummin_p = _define("cummin", Combiner.MIN, np.minimum.accumulate, min)
cumlogsumexp_p = _define("cumlogsumexp", Combiner.LOGADDEXP, _running_logsumexp, logaddexp)
