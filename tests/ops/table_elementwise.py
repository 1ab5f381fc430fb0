"""A row for each elementwise primitive and reduction: how to apply it, and to what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOATS = ("float32", "float16", "bfloat16")
COMPLEX = ("complex64",)
SIGNED = ("int32", "int8")
INTEGERS = (*SIGNED, "uint32", "uint8")
NUMBERS = (*FLOATS, *COMPLEX, *INTEGERS)
ORDERED = (*FLOATS, *INTEGERS, "bool")


@dataclass(frozen=True)
class Row:
    """A primitive.

    Attributes:
      make: `lax -> function` of the operands.
      domains: for each operand the range of its random floats.
      dtypes: of the operands; a differing dtype of single operands is in `operand_dtypes`.
      order: how often it can be differentiated, 0 or 2.
      rtol: largest relative deviation from NumPy in float32; None where results are exact.
      text: whether Jaxprs print as JAX's. Not so where JAX has no primitive of its own, prints the address
        of a function, or batches less than mpijax.
    """

    name: str
    make: Callable
    domains: tuple[tuple[float, float], ...] = ((-3.0, 3.0),)
    dtypes: tuple[str, ...] = FLOATS
    order: int = 2
    rtol: float | None = 2e-6
    operand_dtypes: tuple[str | None, ...] = ()
    shape: tuple[int, ...] = (2, 3)
    text: bool = True

    def operands(self, dtype: str, *lead: int, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        kinds = self.operand_dtypes or (None,) * len(self.domains)
        return [
            random(rng, kind or dtype, (*lead, *self.shape), *domain)
            for domain, kind in zip(self.domains, kinds, strict=True)
        ]


def random(rng, dtype: str, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Random numbers; of integer types small ones, with zeros among them."""
    from mpijax.core.dtypes import dtype as as_dtype

    d = as_dtype(dtype)
    if d.kind == "b":
        return rng.random(shape) < 0.5
    if d.kind in "iu":
        floor = 0 if d.kind == "u" else max(int(low * 4), -12)
        return rng.integers(floor, max(int(high * 4), 4), shape).astype(d)
    values = rng.uniform(low, high, shape)
    if d.kind == "c":
        return (values + 1j * rng.uniform(low, high, shape)).astype(d)
    return values.astype(np.float32).astype(d)


def named(name: str, attribute: str | None = None, **params: Any) -> Callable:
    """Apply the function of `lax` of that name."""

    def make(lax):
        function = getattr(lax, attribute or name)
        return lambda *xs: function(*xs, **params)

    return make


def unary(name: str, low: float = -3.0, high: float = 3.0, **fields) -> Row:
    fields.setdefault("dtypes", (*FLOATS, *COMPLEX))
    return Row(name, named(name), ((low, high),), **fields)


def binary(name: str, first=(-3.0, 3.0), second=(-3.0, 3.0), attribute=None, **fields) -> Row:
    return Row(name, named(name, attribute), (first, second), **fields)


def real(name: str, low: float = -3.0, high: float = 3.0, **fields) -> Row:
    return unary(name, low, high, dtypes=FLOATS, **fields)


def exact(
    name: str, dtypes: tuple[str, ...], attribute: str | None = None, operands: int = 2, **params
) -> Row:
    """Without derivative and rounding."""
    return Row(name, named(name, attribute, **params), ((-3.0, 3.0),) * operands, dtypes, 0, None)


AWAY = (0.4, 3.0)  # from zero

ARITHMETIC = [
    binary("add", dtypes=NUMBERS, rtol=None),
    binary("sub", dtypes=NUMBERS, rtol=None),
    binary("mul", dtypes=NUMBERS),
    binary("div", second=AWAY, dtypes=NUMBERS),
    binary("rem", second=AWAY, dtypes=(*FLOATS, *INTEGERS), rtol=None),
    binary("max", dtypes=(*NUMBERS, "bool"), rtol=None),
    binary("min", dtypes=(*NUMBERS, "bool"), rtol=None),
    binary("pow", AWAY),
    binary("atan2", AWAY),
    Row("complex", named("complex"), ((-3, 3), (-3, 3)), ("float32",), 2, None),
    Row("nextafter", named("nextafter"), ((-3, 3), (-3, 3)), FLOATS, 0, None),
    exact("mulhi", INTEGERS),
    unary("neg", dtypes=NUMBERS, rtol=None),
    unary("square", dtypes=NUMBERS),
    *[
        Row("integer_pow", named("integer_pow", y=y), (AWAY,), dtypes, rtol=4e-6)
        for powers, dtypes in (((-2, -1), (*FLOATS, *COMPLEX)), ((0, 1, 2, 3), NUMBERS))
        for y in powers
    ],
    Row("integer_pow", named("integer_pow", "reciprocal"), (AWAY,)),
]  # fmt: skip

SIGNS = [
    unary("abs", 0.2, 3.0, dtypes=(*FLOATS, *COMPLEX, *SIGNED)),
    exact("sign", (*FLOATS, *INTEGERS), operands=1),
    exact("floor", FLOATS, operands=1),
    exact("ceil", FLOATS, operands=1),
    exact("round", FLOATS, operands=1),
    exact("round", FLOATS, operands=1, rounding_method=1),
    exact("is_finite", FLOATS, operands=1),
    unary("real", dtypes=COMPLEX, rtol=None),
    unary("imag", dtypes=COMPLEX, rtol=None),
    unary("conj", dtypes=("float32", *COMPLEX), rtol=None),
    exact("reduce_precision", FLOATS, operands=1, exponent_bits=5, mantissa_bits=4),
]  # fmt: skip

TRANSCENDENTAL = [
    unary("exp"),
    unary("exp2", dtypes=FLOATS),
    unary("expm1", dtypes=FLOATS),
    unary("log", 0.2),
    unary("log1p", -0.5, dtypes=FLOATS),
    unary("logistic", dtypes=FLOATS),
    unary("sqrt", 0.2),
    unary("rsqrt", 0.2),
    real("cbrt", 0.2),
    unary("sin"),
    unary("cos"),
    unary("tan", -1.2, 1.2),
    unary("asin", -0.9, 0.9, dtypes=FLOATS),
    unary("acos", -0.9, 0.9, dtypes=FLOATS),
    unary("atan", dtypes=FLOATS),
    unary("sinh", dtypes=FLOATS),
    unary("cosh", dtypes=FLOATS),
    unary("tanh"),
    unary("asinh", dtypes=FLOATS),
    unary("acosh", 1.3, 3.0, dtypes=FLOATS),
    unary("atanh", -0.9, 0.9, dtypes=FLOATS),
]

SPECIAL = [
    real("erf"),
    real("erfc"),
    real("erf_inv", -0.9, 0.9, rtol=4e-6),
    real("lgamma", 0.3, 5.0, rtol=1e-5),
    real("digamma", 0.3, 5.0, rtol=1e-5),
    binary("polygamma", (1.0, 1.0), (0.3, 5.0), order=0, rtol=1e-5),
    binary("zeta", (1.5, 3.0), (0.5, 3.0), order=0, rtol=1e-5),
    binary("igamma", (0.5, 4.0), (0.5, 4.0), order=0, rtol=1e-5),
    binary("igammac", (0.5, 4.0), (0.5, 4.0), order=0, rtol=1e-5),
    binary("igamma_grad_a", (0.5, 4.0), (0.5, 4.0), order=0, rtol=1e-5),
    binary("random_gamma_grad", (0.5, 4.0), (0.5, 4.0), order=0, rtol=1e-4, text=False),
    Row(
        "regularized_incomplete_beta",
        named("betainc"),
        ((0.5, 3.0), (0.5, 3.0), (0.1, 0.9)),
        order=0,
        rtol=1e-5,
    ),
    real("bessel_i0e", rtol=1e-5),
    real("bessel_i1e", 0.3, 3.0, rtol=1e-5),
]

COMPARISONS = [
    *[exact(name, (*NUMBERS, "bool")) for name in ("eq", "ne")],
    *[exact(name, ORDERED) for name in ("lt", "le", "gt", "ge")],
    *[
        Row(name, lambda lax, name=name: getattr(lax, f"{name}_p").bind, ((-3, 3), (-3, 3)), FLOATS, 0, None)
        for name in ("eq_to", "le_to", "lt_to")
    ],
]

BITS = [
    *[exact(name, (*INTEGERS, "bool"), f"bitwise_{name}") for name in ("and", "or", "xor")],
    exact("not", (*INTEGERS, "bool"), "bitwise_not", operands=1),
    *[exact(name, INTEGERS) for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic")],
    exact("population_count", INTEGERS, operands=1),
    exact("clz", INTEGERS, operands=1),
]

CHOICES = [
    Row(
        "select_n",
        named("select_n"),
        ((0, 1), (-3, 3), (-3, 3)),
        (*NUMBERS, "bool"),
        2,
        None,
        ("bool", None, None),
    ),
    Row(
        "select_n",
        lambda lax: lambda which, *cases: lax.select_n(lax.rem(which, np.int32(3)), *cases),
        ((0, 1), (-3, 3), (-3, 3), (-3, 3)),
        ("float32",),
        2,
        None,
        ("int32", None, None, None),
    ),
    Row("clamp", named("clamp"), ((-2, -1), (-3, 3), (1, 2)), (*FLOATS, *SIGNED), 2, None),
]


def _convert(to: str, order: int) -> Row:
    make = lambda lax: lambda x: lax.convert_element_type(x, to)
    return Row(
        "convert_element_type", make, dtypes=("float32", "bfloat16", "int32", "bool"), order=order, rtol=None
    )


def _bitcast(of: str, to: str, **fields) -> Row:
    make = lambda lax: lambda x: lax.bitcast_convert_type(x, to)
    return Row("bitcast_convert_type", make, dtypes=(of,), order=0, rtol=None, **fields)


CONVERSIONS = [
    _convert("float16", 2),
    _convert("float32", 2),
    _convert("int8", 0),
    _convert("uint8", 0),
    _convert("bool", 0),
    _bitcast("float32", "int32"),
    _bitcast("float32", "int8"),
    _bitcast("int32", "uint8"),
    _bitcast("float16", "int16"),
    _bitcast("int8", "float32", shape=(3, 4), text=False),
]

DERIVATIVES = [
    Row("add_any", lambda lax: _add_any(lax), ((-3, 3), (-3, 3)), ("float32", "complex64"), 0, None),
    unary("stop_gradient", order=0, rtol=None),
    Row("copy", lambda lax: lax.copy_p.bind, dtypes=(*NUMBERS, "bool"), rtol=None),
]


def _add_any(lax):
    """Sums of cotangents are the only way to it."""
    if lax.__name__.startswith("mpijax"):
        from mpijax.ops.ad_ops import add_any_p
    else:
        from jax.interpreters.ad import add_jaxvals_p as add_any_p
    return add_any_p.bind


AXES = ((0,), (1,), (0, 2), (2, 0), (0, 1, 2), ())


def _reduction(name: str, dtypes: tuple[str, ...], order: int, rtol: float | None, axes=AXES) -> list[Row]:
    return [
        Row(
            name,
            lambda lax, a=a: lambda x: getattr(lax, name)(x, a),
            ((0.3, 2.0),),
            dtypes,
            order,
            rtol,
            shape=(3, 2, 5),
        )
        for a in axes
    ]


def _position(name: str, axis: int) -> Row:
    make = lambda lax: lambda x: getattr(lax, name)(x, axis, np.int32)
    return Row(name, make, dtypes=(*FLOATS, "int32", "bool"), order=0, rtol=None, shape=(3, 2, 5))


def _reduce(computation, init, dimensions: tuple[int, ...], order: int) -> Row:
    """`lax.reduce` of one operand, or of a float and an integer one."""

    def make(lax):
        return lambda *xs: lax.reduce(xs if len(xs) > 1 else xs[0], init, computation(lax), dimensions)

    several = isinstance(init, tuple)
    kinds, domains = ((None, "int32"), ((-3, 3), (-3, 3))) if several else ((None,), ((0.5, 2),))
    return Row("reduce", make, domains, ("float32",), order, 4e-6, kinds, (3, 5), text=False)


REDUCTIONS = [
    *_reduction("reduce_sum", (*NUMBERS,), 2, 2e-6),
    *_reduction("reduce_prod", ("float32", "int32"), 2, 2e-6, AXES[:5]),
    *_reduction("reduce_max", (*NUMBERS, "bool"), 2, None),
    *_reduction("reduce_min", ("float32", "int32", "bool"), 2, None),
    *_reduction("reduce_and", ("int32", "bool"), 0, None),
    *_reduction("reduce_or", ("int32", "bool"), 0, None),
    *_reduction("reduce_xor", ("int32", "uint8"), 0, None),
    *[_position(name, axis) for name in ("argmax", "argmin") for axis in range(3)],
    _reduce(lambda lax: lambda a, b: a * b, np.float32(1), (1,), order=2),
    _reduce(lambda lax: lambda a, b: lax.max(lax.abs(a), lax.abs(b)), np.float32(0), (0, 1), order=0),
    _reduce(
        lambda lax: lambda a, b: (lax.max(a[0], b[0]), lax.add(a[1], b[1])),
        (np.float32(-np.inf), np.int32(0)),
        (0,),
        order=0,
    ),
]

ROWS = [
    *ARITHMETIC,
    *SIGNS,
    *TRANSCENDENTAL,
    *SPECIAL,
    *COMPARISONS,
    *BITS,
    *CHOICES,
    *CONVERSIONS,
    *DERIVATIVES,
    *REDUCTIONS,
]
