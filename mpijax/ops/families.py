"""Constructors of primitives: elementwise operations, comparisons, reductions.

An operation states the dtypes it accepts, its definition in NumPy, and its derivative by each operand. The whole family
shares the rules for types, batching, broadcasting and lowering.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax import scalar
from mpijax.core import dtypes
from mpijax.core.rules.lowering import Elementwise, Meaning, Zeros
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.rules import broadcast_shapes, expand_back, expand_front
from mpijax.transforms.batching import move_dim
from mpijax.transforms.zeros import Zero, add_tangents

BOOL = (np.bool_,)
INTEGER = (np.integer,)
FLOATING = (np.floating,)
INEXACT = (np.floating, np.complexfloating)
NUMERIC = (np.integer, np.floating, np.complexfloating)
ORDERED = (np.integer, np.floating, np.bool_)
BITS = (np.integer, np.bool_)
ANY = (np.integer, np.floating, np.complexfloating, np.bool_)

_BYTE = 8  # bits
_MAX_KNOWN = 4096  # operand types of an operation, for which the type of the result is cached

NOT_LINEAR = Unsupported(
    "this operation is not linear, so it has no transpose"
)
# Fills the slot until the rule is attached: the rule needs the primitive.
ATTACHED = Unsupported("the rule is added after the primitive is defined")

# ---------------------------------------------------------------- types


def accepts_dtype(dtype: Any, kinds: Sequence[type]) -> bool:
    return any(dtypes.issubdtype(dtype, k) for k in kinds)


def check_dtype(name: str, dtype: Any, kinds: Sequence[type], where: str = "") -> None:
    """Raise TypeError unless `dtype` is one of `kinds`."""
    if not accepts_dtype(dtype, kinds):
        listed = ", ".join(k.__name__.rstrip("_") for k in kinds)
        if dtype == dtypes.float0:
            raise TypeError(
                f"Called {name} with a float0{where}. float0s do not support any operations by design: they are the "
                "tangents of integer and bool values."
            )
        given = dtype.name if isinstance(dtype, np.dtype) else dtypes.short_name(dtype)
        raise TypeError(
            f"{name} does not accept dtype {given}{where}. Accepted dtypes{where} are subtypes of {listed}."
        )


def check_not_narrow(name: str, dtype: Any) -> None:
    """Raise TypeError for an integer of less than a byte."""
    if dtypes.issubdtype(dtype, np.integer) and dtypes.itemsize_bits(dtype) < _BYTE:
        raise TypeError(
            f"{name} does not accept dtype {dtype.name}. Support for narrow-width integers is platform-dependent and "
            "limited to a few specific operations, e.g. basic arithmetic and type casting."
        )


# The jax.numpy function that errors mention, if its name differs from the primitive's.
_NUMPY_NAMES = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum",
    "atan2": "arctan2", "nextafter": "nextafter", "eq": "equal", "ne": "not_equal",
    "shift_left": "left_shift",
    "shift_right_logical": "right_shift", "shift_right_arithmetic": "right_shift", "select": "where",
    "concatenate": "concatenate",
}  # fmt: skip


def check_same_dtypes(name: str, avals: Sequence[ShapedArray]) -> None:
    """Raise TypeError unless all operands have one dtype: lax does not promote."""
    first = avals[0].dtype
    if all(a.dtype == first for a in avals):
        return
    other = _NUMPY_NAMES.get(name)
    tip = (
        f" (Tip: jnp.{other} is a similar function that does automatic type promotion on inputs)."
        if other
        else "."
    )
    got = ", ".join(str(a.dtype) for a in avals)
    raise TypeError(
        f"lax.{name} requires arguments to have the same dtypes, got {got}.{tip if other else ''}"
    )


def broadcast_type(name: str, avals: Sequence[ShapedArray]) -> tuple[int, ...]:
    """Shape of an elementwise result. Raises TypeError unless ranks are equal or 0 and sizes equal or 1."""
    shapes = [a.shape for a in avals if a.shape]
    if len({len(s) for s in shapes}) > 1:
        ranks = ", ".join(map(str, sorted({len(s) for s in shapes})))
        raise TypeError(f"{name}: arrays must have the same number of dimensions, got {{{ranks}}}")
    shape = broadcast_shapes(*shapes)
    if any(d not in (1, full) for s in shapes for d, full in zip(s, shape, strict=True)):
        listed = ", ".join(str(s) for s in shapes)
        raise TypeError(f"{name} got incompatible shapes for broadcasting: {listed}.")
    return shape


def elementwise_type(
    name: str,
    accepts: Sequence[Sequence[type]],
    result: Callable | None,
    same: bool = True,
    weak: bool = True,
    narrow: bool = True,
) -> Callable:
    """The type rule of an elementwise operation, cached by operand types."""
    known: dict[tuple, ShapedArray] = {}

    def infer(avals):
        for i, (aval, kinds) in enumerate(zip(avals, accepts, strict=True)):
            check_dtype(name, aval.dtype, kinds, f" at position {i}" if len(accepts) > 1 else "")
            if not narrow:
                check_not_narrow(name, aval.dtype)
        if same and len(avals) > 1:
            check_same_dtypes(name, avals)
        dtype = avals[0].dtype if result is None else result(avals[0].dtype)
        return ShapedArray(broadcast_type(name, avals), dtype, weak and all(a.weak_type for a in avals))

    def type_rule(*avals, **_params):
        out = known.get(avals)
        if out is None:
            if len(known) >= _MAX_KNOWN:
                known.clear()
            out = known[avals] = infer(avals)
        return out

    return type_rule


def to_bool(_dtype) -> np.dtype:
    return np.dtype(np.bool_)


def to_real(dtype) -> np.dtype:
    """The dtype of the real and imaginary parts of a complex number; other dtypes unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def to_complex(dtype) -> np.dtype:
    return dtype if dtype.kind == "c" else np.dtype(f"c{dtype.itemsize * 2}")


# ---------------------------------------------------------------- NumPy references

_NARROW = 4


def wide(fun: Callable, result: Callable | None = None) -> Callable:
    """A NumPy function that computes floats of at most 16 bits in float32 and rounds once."""

    def reference(*args, **params):
        params.pop("accuracy", None)
        dtype = args[0].dtype
        if dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < _NARROW:
            args = [a.astype(np.float32) if a.dtype == dtype else a for a in args]
        with np.errstate(all="ignore"):
            out = fun(*args, **params)
        return np.asarray(out).astype(dtype if result is None else result(dtype), copy=False)

    return reference


# ---------------------------------------------------------------- derivatives


class PerOperand:
    """The derivative by each operand: `rule(g, ans, *primals, **params) -> tangent`, None for zero."""

    def __init__(self, *rules: Callable | None):
        self.rules = rules

    def attach(self, primitive: Primitive) -> Callable:
        def jvp(primals, tangents, **params):
            ans = primitive.bind(*primals, **params)
            terms = [
                rule(t, ans, *primals, **params)
                for rule, t in zip(self.rules, tangents, strict=True)
                if rule is not None and type(t) is not Zero
            ]
            return ans, functools.reduce(add_tangents, terms) if terms else Zero.of_primal(ans)

        return jvp


class _Linear:
    """The derivative of a linear operation of one operand: the operation itself."""

    def attach(self, primitive: Primitive) -> Callable:
        def jvp(primals, tangents, **params):
            (x,), (t,) = primals, tangents
            out = primitive.bind(x, **params)
            return out, Zero.of_primal(out) if type(t) is Zero else primitive.bind(t, **params)

        return jvp


class _Constant:
    """The derivative of a piecewise constant operation: zero."""

    def attach(self, primitive: Primitive) -> Callable:
        def jvp(primals, _tangents, **params):
            out = primitive.bind(*primals, **params)
            return out, Zero.of_primal(out)

        return jvp


LINEAR = _Linear()
CONSTANT = _Constant()

# ---------------------------------------------------------------- batching


def batch_elementwise(primitive: Primitive) -> Callable:
    """The batching rule for operands that broadcast. Differing batch axes are moved to the front."""

    def batch(axis, args, dims, **params):
        shapes = [typeof(x).shape for x in args]
        shape, dim = next((s, d) for s, d in zip(shapes, dims, strict=True) if d is not None)
        if all(s == shape and d == dim for s, d in zip(shapes, dims, strict=True) if s):
            return primitive.bind(*args, **params), dim
        ndim = max(len(s) + (d is None) for s, d in zip(shapes, dims, strict=True) if s)
        front = [
            x if not s else expand_front(x, len(s) + 1) if d is None else move_dim(x, d, 0)
            for x, s, d in zip(args, shapes, dims, strict=True)
        ]
        front = [x if typeof(x).ndim in (0, ndim) else expand_back(x, ndim) for x in front]
        return primitive.bind(*front, **params), 0

    return batch


# ---------------------------------------------------------------- printing


def hide_unset(*names: str) -> Callable:
    """Print parameters by name, except those of `names` that are None."""

    def pretty(eqn, _names):
        return [(k, v) for k, v in sorted(eqn.params.items()) if v is not None or k not in names]

    return pretty


# ---------------------------------------------------------------- primitives


def scalar_rule(name: str, ignored: Sequence[str] = ()) -> Callable:
    """The rule `name` of the scalar layer, looked up at the first use, and called without the `ignored` parameters."""

    def rule(builder, *operands, **params):
        for key in ignored:
            params.pop(key, None)
        return scalar.rule_for(name)(builder, *operands, **params)

    rule.__name__ = name
    return rule


def elementwise(
    name: str,
    *accepts: Sequence[type],
    reference: Callable,
    jvp: Any,
    transpose: Callable = NOT_LINEAR,
    batch: Callable | None = None,
    result: Callable | None = None,
    same_dtypes: bool = True,
    cost: int = 1,
    lower: Any = None,
    accuracy: bool = False,
    pretty: Callable | None = None,
    weak: bool = True,
    narrow: bool = True,
    zeros: Zeros = Zeros.SHOWN,
    meaning: Meaning = Meaning.OTHER,
) -> Primitive:
    """An elementwise primitive.

    Args:
      accepts: for each operand the accepted kinds of dtypes.
      reference: NumPy function of arrays; floats narrower than float32 are computed in float32.
      jvp: LINEAR, CONSTANT, `PerOperand(...)`, or a jvp rule.
      transpose, batch: rules; batching is derived unless given.
      result: dtype of the result from the first operand's dtype; the same if None.
      cost: about half the number of machine instructions for one vector.
      lower: replaces the scalar rule of the same name.
      accuracy: whether it has the parameter `accuracy`, printed only if given.
      weak: whether weakly typed operands give a weakly typed result.
      narrow: whether it accepts integers of less than 8 bits.
      zeros, meaning: how the result depends on the sign of a zero, and what it is, unless `lower` says it.
    """
    primitive = Primitive(
        name,
        type_rule=elementwise_type(name, accepts, result, same_dtypes, weak, narrow),
        reference=wide(reference, result),
        lower=lower
        or Elementwise(scalar_rule(name, ("accuracy",) if accuracy else ()), cost, zeros=zeros, meaning=meaning),
        jvp=jvp,
        transpose=transpose,
        batch=ATTACHED if batch is None else batch,
        pretty=hide_unset("accuracy") if accuracy else pretty,
    )
    if hasattr(jvp, "attach"):
        primitive.jvp = jvp.attach(primitive)
    if batch is None:
        primitive.batch = batch_elementwise(primitive)
    return primitive


def comparison(
    name: str, accepts: Sequence[type], reference: Callable, zeros: Zeros = Zeros.EQUAL, **says: Any
) -> Primitive:
    """A comparison of two operands; the result is bool, without derivative. says: more fields of its `Elementwise`."""
    lower = Elementwise(scalar_rule(name), zeros=zeros, **says)
    return elementwise(name, accepts, accepts, reference=reference, jvp=CONSTANT, result=to_bool, lower=lower)
