"""Defines `select_n` and `clamp`, which choose between values."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import sum_types
from mpijax.core.rules.factors import Factor, elementwise
from mpijax.core.rules.lowering import Elementwise, Meaning, Zeros
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.bitwise import bitwise_and
from mpijax.ops.elementwise.compare import eq, gt, lt
from mpijax.ops.families import NOT_LINEAR, ORDERED, PerOperand, check_dtype, check_same_dtypes, scalar_rule
from mpijax.ops.rules import at_front, broadcast_to, const_like, full_like, is_linear
from mpijax.transforms.batching import batch_at, move_dim
from mpijax.transforms.zeros import Zero


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """on_true where pred, else on_false. pred is a bool array of their shape, or a scalar.

    >>> lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([10, 20]))
    Array([ 1, 20], dtype=int32)
    """
    return select_n_p.bind(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Any:
    """cases[which], elementwise.

    which: bool for up to two cases (False chooses the first), or an int32 index; of the shape of the
      cases, or a scalar.
    cases: arrays of one shape and dtype.

    >>> lax.select_n(jnp.array([0, 2, 1]), jnp.zeros(3), jnp.ones(3), jnp.full(3, 2.0))
    Array([0., 2., 1.], dtype=float32)
    """
    if not cases:
        raise ValueError("select_n() must have at least one case")
    return select_n_p.bind(which, *cases)


def _select_type(which: ShapedArray, *cases: ShapedArray) -> ShapedArray:
    check_same_dtypes("select", cases)
    if len(cases) > 2 and which.dtype == np.bool_:
        raise TypeError(f"select with boolean `which` cannot have > {2} cases.")
    if which.dtype != np.bool_ and not dtypes.issubdtype(which.dtype, np.integer):
        raise TypeError(f"select `which` must be boolean or integer type, got {which.dtype}.")
    shape = cases[0].shape
    if any(c.shape != shape for c in cases):
        raise TypeError(
            f"select cases must have the same shapes, got [{', '.join(str(c.shape) for c in cases)}]."
        )
    if which.shape not in ((), shape):
        raise TypeError(
            "select `which` must be scalar or have the same shape as cases, got "
            f"`which` shape {which.shape} but case shape {shape}."
        )
    return ShapedArray(shape, cases[0].dtype, all(c.weak_type for c in cases))


def _numpy_select(which, *cases):
    which = np.broadcast_to(which, np.shape(cases[0])).astype(np.int64)
    if len(cases) <= 2:
        return np.where(which.astype(bool), cases[-1], cases[0])
    out = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        out = np.where(which <= i, cases[i], out)
    return out


def _select_jvp(primals, tangents):
    which, *cases = primals
    out = select_n(which, *cases)
    tangents = tangents[1:]
    if all(type(t) is Zero for t in tangents):
        return out, Zero.of_primal(out)
    zeros = full_like(next(t for t in tangents if type(t) is not Zero), 0)
    return out, select_n(which, *(zeros if type(t) is Zero else t for t in tangents))


def _select_transpose(ct, which, *cases):
    zeros = full_like(ct, 0)

    def part(i):
        if typeof(which).dtype == np.bool_:
            return select_n(which, *(ct if i == j else zeros for j in range(len(cases))))
        return select_n(eq(which, const_like(which, i)), zeros, ct)

    return [None] + [part(i) if is_linear(case) else None for i, case in enumerate(cases)]


def _select_batch(axis, args, dims):
    which, *cases = args
    which_dim, *case_dims = dims
    first = case_dims[0]
    aligned = first is not None and all(d == first for d in case_dims)
    if which_dim is None and typeof(which).ndim == 0 and aligned:
        return select_n(*args), first
    if which_dim == first and aligned:
        if typeof(which).ndim < typeof(cases[0]).ndim:
            which = _along(which, typeof(cases[0]).shape, first)
        return select_n(which, *cases), first
    vector = which_dim is not None and typeof(which).ndim == 1
    if typeof(which).ndim and not vector:
        which = batch_at(which, which_dim, 0, axis, by_numpy=True)
    cases = [batch_at(x, d, 0, axis, by_numpy=True) for x, d in zip(cases, case_dims, strict=True)]
    shape = typeof(cases[0]).shape
    if vector and len(shape) > 1:
        which = _along(which, shape, 0)
    return select_n(which, *cases), 0


def _along(x: Any, shape: tuple[int, ...], axis: int) -> Any:
    """A vector along axis `axis`, broadcast to `shape`."""
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=(axis,), sharding=None)


def _refusal(s: Any, _factor: Factor) -> str:
    which, *cases = (a.str_short(True) for a in s.types)
    return (
        f"select cases must have the same shardings, got [{', '.join(cases)}], and the predicate {which} none or "
        "theirs. Use jax.sharding.reshard on one of them."
    )


select_n_p = Primitive(
    "select_n",
    type_rule=_select_type,
    reference=_numpy_select,
    lower=Elementwise(scalar_rule("select_n"), zeros=Zeros.PASSED, meaning=Meaning.SELECTION),
    jvp=_select_jvp,
    transpose=_select_transpose,
    batch=_select_batch,
    sharding=elementwise.but(refusal=_refusal),
    sums=sum_types.as_operand(1),
)

# ---------------------------------------------------------------- clamp


def clamp(min: Any, x: Any, max: Any) -> Any:
    """min if x < min, max if x > max, else x. The bounds have x's shape or are scalars.

    >>> lax.clamp(0, jnp.array([-3, 1, 8]), 5)
    Array([0, 1, 5], dtype=int32)
    """
    return clamp_p.bind(min, x, max)


def _clamp_type(low: ShapedArray, x: ShapedArray, high: ShapedArray) -> ShapedArray:
    for i, aval in enumerate((low, x, high)):
        check_dtype("clamp", aval.dtype, ORDERED, f" at position {i}")
    check_same_dtypes("clamp", (low, x, high))
    for name, bound in (("min", low), ("max", high)):
        if bound.shape not in ((), x.shape):
            raise TypeError(
                f"clamp requires {name}.shape == operand.shape or {name}.shape == (), got "
                f"{name}.shape={bound.shape}, operand.shape={x.shape}."
            )
    return ShapedArray(x.shape, x.dtype, low.weak_type and x.weak_type and high.weak_type)


def _where(condition, g, x):
    """g where the condition holds, else 0, in x's shape."""
    g = broadcast_to(g, typeof(x).shape)
    condition = broadcast_to(condition, typeof(x).shape)
    return select(condition, g, full_like(x, 0))


_clamp_rules = PerOperand(
    lambda g, ans, low, x, high: _where(bitwise_and(gt(low, x), lt(low, high)), g, x),
    lambda g, ans, low, x, high: _where(bitwise_and(gt(x, low), lt(x, high)), g, x),
    lambda g, ans, low, x, high: _where(lt(high, x), g, x),
)


def _clamp_batch(axis, args, dims):
    low, x, high = args
    shape = typeof(x).shape
    if dims[1] is not None and all(
        typeof(bound).ndim == 0 if d is None else d == dims[1] and typeof(bound).shape == shape
        for bound, d in ((low, dims[0]), (high, dims[2]))
    ):
        return clamp(*args), dims[1]
    x = batch_at(x, dims[1], 0, axis, by_numpy=True)
    shape = typeof(x).shape
    # Bounds without batch axis first, because they need no transpose.
    whole = {i: _whole_bound(args[i], shape, axis.size) for i in (0, 2) if dims[i] is None}
    for i in (0, 2):
        if i not in whole:
            vector = typeof(args[i]).ndim < len(shape)
            whole[i] = _along(args[i], shape, 0) if vector else move_dim(args[i], dims[i], 0)
    return clamp(whole[0], x, whole[2]), 0


def _whole_bound(bound: Any, shape: tuple[int, ...], size: int) -> Any:
    """A bound without batch axis, broadcast to the batched operand's shape."""
    return at_front(bound, None, size) if typeof(bound).ndim else broadcast_to(bound, shape)


clamp_p = Primitive(
    "clamp",
    type_rule=_clamp_type,
    reference=lambda low, x, high: np.minimum(np.maximum(x, low), high).astype(x.dtype),
    lower=Elementwise(scalar_rule("clamp"), 2),
    jvp=NOT_LINEAR,
    transpose=NOT_LINEAR,
    batch=_clamp_batch,
    sharding_type=lambda s: [s.axes(1)],
)
clamp_p.jvp = _clamp_rules.attach(clamp_p)
