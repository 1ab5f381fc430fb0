"""Binary arithmetic on operands of one dtype. Shapes are equal, or one operand is a scalar, or sizes are 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.rules import sum_types
from mpijax.core.rules.lowering import Elementwise, Meaning, Zeros
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.compare import eq
from mpijax.ops.elementwise.select import select
from mpijax.ops.families import (
    ANY,
    CONSTANT,
    FLOATING,
    INTEGER,
    LINEAR,
    NUMERIC,
    PerOperand,
    elementwise,
    scalar_rule,
    to_complex,
)
from mpijax.ops.rules import broadcast_shapes, broadcast_to, full_like, is_linear, unbroadcast
from mpijax.transforms.zeros import Zero, instantiate

# In this module `max`, `min` and `complex` are operations, not Python's builtins.


def _shape(*args) -> tuple[int, ...]:
    return broadcast_shapes(*(typeof(x).shape for x in args))


# ---------------------------------------------------------------- add, sub


def add(x: Any, y: Any) -> Any:
    """Sum x + y of numbers.

    Elementwise on integers, floats or complex numbers of one shape and dtype, or scalars; the result has the same shape
    and dtype. TypeError for others.

    >>> lax.add(jnp.array([1.0, 2.0]), 10.0)
    Array([11., 12.], dtype=float32)
    """
    return add_p.bind(x, y)


def _operand_ct(x, ct):
    return unbroadcast(x.aval, ct) if is_linear(x) else None


def _add_jvp(bind, negate):
    """The derivative of x + y or x - y; a single equation if both operands have tangents."""

    def jvp(primals, tangents):
        x, y = primals
        tx, ty = tangents
        out = bind(x, y)
        shape = typeof(out).shape
        if type(ty) is Zero:
            return out, tx if type(tx) is Zero else broadcast_to(tx, shape)
        if type(tx) is Zero:
            return out, broadcast_to(neg_p.bind(ty) if negate else ty, shape)
        return out, bind(tx, ty)

    return jvp


add_p = elementwise(
    "add",
    NUMERIC,
    NUMERIC,
    reference=np.add,
    jvp=_add_jvp(add, negate=False),
    lower=Elementwise(scalar_rule("add"), additive=True, zeros=Zeros.PASSED, meaning=Meaning.SUM),
    transpose=lambda ct, x, y: [_operand_ct(x, ct), _operand_ct(y, ct)],
)


def sub(x: Any, y: Any) -> Any:
    """Difference x - y of numbers.

    Elementwise on integers, floats or complex numbers of one shape and dtype, or scalars; the result has the same shape
    and dtype. TypeError for others.

    >>> lax.sub(jnp.array([1.0, 2.0]), 10.0)
    Array([-9., -8.], dtype=float32)
    """
    return sub_p.bind(x, y)


sub_p = elementwise(
    "sub",
    NUMERIC,
    NUMERIC,
    reference=np.subtract,
    jvp=_add_jvp(sub, negate=True),
    lower=Elementwise(scalar_rule("sub"), additive=True, zeros=Zeros.PASSED, meaning=Meaning.DIFFERENCE),
    transpose=lambda ct, x, y: [
        _operand_ct(x, ct),
        unbroadcast(y.aval, neg_p.bind(ct)) if is_linear(y) else None,
    ],
)


def _neg_transpose(ct, x):
    return [neg_p.bind(ct)]


def neg(x: Any) -> Any:
    """-x of numbers; unsigned integers wrap around.

    Elementwise on integers, floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.neg(jnp.array([1, -2]))
    Array([-1,  2], dtype=int32)
    """
    return neg_p.bind(x)


neg_p: Primitive = elementwise(
    "neg",
    NUMERIC,
    reference=np.negative,
    jvp=LINEAR,
    transpose=_neg_transpose,
    zeros=Zeros.PASSED,
    meaning=Meaning.NEGATION,
)
neg_p.sums = sum_types.linear

# ---------------------------------------------------------------- mul, div, rem


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """Product x * y of numbers.

    Elementwise on integers, floats or complex numbers of one shape and dtype, or scalars; the result has the same shape
    and dtype. TypeError for others.

    Args:
      out_dtype: dtype of the result, to which the operands are converted first; their dtypes may then differ.

    >>> lax.mul(jnp.array([1.0, 2.0]), 10.0)
    Array([10., 20.], dtype=float32)
    """
    if out_dtype is not None:
        return registry["wide_product"].bind(x, y, out_dtype=out_dtype)
    return mul_p.bind(x, y)


def _mul_transpose(ct, x, y):
    if is_linear(x) and is_linear(y):
        raise TypeError(
            f"A product of two values that depend on the arguments, {x.aval.str_short(True)} and "
            f"{y.aval.str_short(True)}, is not linear and has no transpose. linear_transpose needs a linear function. "
            "For other functions use jax.vjp."
        )
    if is_linear(x):
        return [unbroadcast(x.aval, mul(ct, y)), None]
    return [None, unbroadcast(y.aval, mul(x, ct))]


mul_p = elementwise(
    "mul",
    NUMERIC,
    NUMERIC,
    reference=np.multiply,
    jvp=PerOperand(lambda g, ans, x, y: mul(g, y), lambda g, ans, x, y: mul(x, g)),
    transpose=_mul_transpose,
    zeros=Zeros.PASSED,
    meaning=Meaning.PRODUCT,
)
mul_p.sums = sum_types.bilinear


def div(x: Any, y: Any) -> Any:
    """Quotient x / y of numbers. Integers truncate towards zero; x / 0 is -1.

    Elementwise on integers, floats or complex numbers of one shape and dtype, or scalars; the result has the same shape
    and dtype. TypeError for others.

    >>> lax.div(jnp.array([7, -7]), 2)
    Array([ 3, -3], dtype=int32)
    """
    return div_p.bind(x, y)


def _divide(x, y):
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    x, y = np.broadcast_arrays(x, y)
    zero = y == 0
    divisor = np.where(zero, y.dtype.type(1), y)
    if x.dtype.kind == "u":
        return np.where(zero, np.iinfo(x.dtype).max, x // divisor).astype(x.dtype)
    floor = x // divisor
    truncated = floor + ((floor < 0) & (floor * divisor != x))
    return np.where(zero, -1, truncated).astype(x.dtype)


div_p = elementwise(
    "div",
    NUMERIC,
    NUMERIC,
    reference=_divide,
    cost=4,
    jvp=PerOperand(
        lambda g, ans, x, y: div(g, y),
        lambda g, ans, x, y: mul(mul(neg(g), x), registry["integer_pow"].bind(y, y=-2)),
    ),
    transpose=lambda ct, x, y: [unbroadcast(x.aval, div(ct, y)), None],
    meaning=Meaning.QUOTIENT,
)


def rem(x: Any, y: Any) -> Any:
    """Remainder of x / y truncated towards zero: it has the sign of x. For integers x rem 0 is x.

    Elementwise on integers or floats of one shape and dtype, or scalars; the result has the same shape and dtype.
    TypeError for others.

    >>> lax.rem(jnp.array([7, -7]), 3)
    Array([ 1, -1], dtype=int32)
    """
    return rem_p.bind(x, y)


def _remainder(x, y):
    if x.dtype.kind in "iu":
        x, y = np.broadcast_arrays(x, y)
        zero = y == 0
        return np.where(zero, x, np.fmod(x, np.where(zero, y.dtype.type(1), y)))
    return np.fmod(x, y)


def _apply(name: str, x):
    """Apply a unary operation of a module that imports this one."""
    return registry[name].bind(x)


def _rem_jvp_y(g, ans, x, y):
    return mul(neg(g), mul(_apply("sign", div(x, y)), _apply("floor", _apply("abs", div(x, y)))))


rem_p = elementwise(
    "rem",
    (np.integer, np.floating),
    (np.integer, np.floating),
    reference=_remainder,
    cost=10,
    jvp=PerOperand(lambda g, ans, x, y: broadcast_to(g, _shape(x, y)), _rem_jvp_y),
)

# ---------------------------------------------------------------- max, min


def max(x: Any, y: Any) -> Any:
    """The larger of x and y, NaN if either is; complex numbers by real, then imaginary part.

    Elementwise on values of one shape and dtype, or scalars; the result has the same shape and dtype.

    >>> lax.max(jnp.array([1.0, 5.0]), 3.0)
    Array([3., 5.], dtype=float32)
    """
    return max_p.bind(x, y)


def min(x: Any, y: Any) -> Any:
    """The smaller of x and y, NaN if either is; complex numbers by real, then imaginary part.

    Elementwise on values of one shape and dtype, or scalars; the result has the same shape and dtype.

    >>> lax.min(jnp.array([1.0, 5.0]), 3.0)
    Array([1., 3.], dtype=float32)
    """
    return min_p.bind(x, y)


def _share(x, ans, y):
    """The fraction of the derivative for x: 1 if x is the result, 1/2 if both are, else 0."""
    is_x = select(eq(x, ans), full_like(ans, 1), full_like(ans, 0))
    among = select(eq(y, ans), full_like(ans, 2), full_like(ans, 1))
    return div(is_x, among)


def _extremum(name: str, reference, meaning: Meaning):
    return elementwise(
        name,
        ANY,
        ANY,
        reference=reference,
        jvp=PerOperand(
            lambda g, ans, x, y: mul(g, _share(x, ans, y)),
            lambda g, ans, x, y: mul(g, _share(y, ans, x)),
        ),
        zeros=Zeros.PASSED,
        meaning=meaning,
    )


max_p = _extremum("max", np.maximum, Meaning.MAXIMUM)
min_p = _extremum("min", np.minimum, Meaning.MINIMUM)

# ---------------------------------------------------------------- the others


def nextafter(x1: Any, x2: Any) -> Any:
    """The next representable value after x1 towards x2. Has no derivative.

    Elementwise on floats of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.nextafter(jnp.float32(1), jnp.float32(2)) - 1
    Array(1.1920929e-07, dtype=float32)
    """
    return nextafter_p.bind(x1, x2)


nextafter_p = elementwise(
    "nextafter",
    FLOATING,
    FLOATING,
    reference=np.nextafter,
    cost=6,
    jvp=Unsupported("Differentiation rule for 'nextafter' not implemented"),
)
nextafter_p.reference = np.nextafter


def complex(x: Any, y: Any) -> Any:
    """x + iy of two float32 or float64.

    Elementwise on floats of one shape and dtype, or scalars; the result is complex. TypeError for others.

    >>> lax.complex(jnp.array([1.0]), jnp.array([2.0]))
    Array([1.+2.j], dtype=complex64)
    """
    return complex_p.bind(x, y)


def _complex_transpose(ct, x, y):
    return [
        unbroadcast(x.aval, _apply("real", ct)) if is_linear(x) else None,
        unbroadcast(y.aval, _apply("imag", neg(ct))) if is_linear(y) else None,
    ]


def _complex_jvp(primals, tangents):
    return complex(*primals), complex(*map(instantiate, tangents))


_PARTS = (np.float32, np.float64)
complex_p = elementwise(
    "complex",
    _PARTS,
    _PARTS,
    reference=lambda x, y: x + y * to_complex(x.dtype).type(1j),
    result=to_complex,
    jvp=_complex_jvp,
    transpose=_complex_transpose,
)


def mulhi(x: Any, y: Any, /) -> Any:
    """The upper half of the double-width product of two integers.

    Elementwise on integers of one shape and dtype, or scalars; the result has the same shape and dtype. TypeError for
    others.

    >>> lax.mulhi(jnp.array([200], dtype="uint8"), jnp.array([100], dtype="uint8"))
    Array([78], dtype=uint8)
    """
    return mulhi_p.bind(x, y)


def _numpy_mulhi(x, y):
    bits = 8 * x.dtype.itemsize
    if bits < 64:
        wider = np.dtype(f"{x.dtype.kind}{x.dtype.itemsize * 2}")
        return ((x.astype(wider) * y.astype(wider)) >> bits).astype(x.dtype)
    return ((x.astype(object) * y.astype(object)) >> bits).astype(x.dtype)


mulhi_p = elementwise("mulhi", INTEGER, INTEGER, reference=_numpy_mulhi, cost=4, jvp=CONSTANT)
