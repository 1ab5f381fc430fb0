"""One row for each elementwise primitive and reduction: how to apply it, to which operands, what is differentiable."""

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

    make: `lax -> function` of the operands.
    domains: for each operand the range of its random floats.
    dtypes: of the operands; a differing dtype of single operands is in `operand_dtypes`.
    order: how often it can be differentiated, 0 or 2.
    rtol: largest relative deviation from NumPy in float32; None where results are exact.
    """

    name: str
    make: Callable
    domains: tuple[tuple[float, float], ...] = ((-3.0, 3.0),)
    dtypes: tuple[str, ...] = FLOATS
    order: int = 2
    rtol: float | None = 2e-6
    operand_dtypes: tuple[str | None, ...] = ()
    shape: tuple[int, ...] = (2, 3)

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


def exact(name: str, dtypes: tuple[str, ...], attribute: str | None = None, operands: int = 2, **fields) -> Row:
    """Without derivative and rounding."""
    return Row(name, named(name, attribute), ((-3.0, 3.0),) * operands, dtypes, 0, None, **fields)


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
        Row("integer_pow", named("integer_pow", y=y), (AWAY,), (*FLOATS, *COMPLEX, *(INTEGERS if y >= 0 else ())), rtol=4e-6)
        for y in (-2, -1, 0, 1, 2, 3)
    ],
    Row("integer_pow", named("integer_pow", "reciprocal"), (AWAY,)),
]  # fmt: skip

SIGNS = [
    unary("abs", 0.2, 3.0, dtypes=(*FLOATS, *COMPLEX, *SIGNED)),
    exact("sign", (*FLOATS, *INTEGERS), operands=1),
    exact("floor", FLOATS, operands=1),
    exact("ceil", FLOATS, operands=1),
    exact("round", FLOATS, operands=1),
    Row("round", lambda lax: lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), ((-3, 3),), FLOATS, 0, None),
    exact("is_finite", FLOATS, operands=1),
    unary("real", dtypes=COMPLEX, rtol=None),
    unary("imag", dtypes=COMPLEX, rtol=None),
    unary("conj", dtypes=("float32", *COMPLEX), rtol=None),
    Row("reduce_precision", named("reduce_precision", exponent_bits=5, mantissa_bits=4), dtypes=FLOATS, order=0, rtol=None),
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
    binary("random_gamma_grad", (0.5, 4.0), (0.5, 4.0), order=0, rtol=1e-4),
    Row("regularized_incomplete_beta", named("betainc"), ((0.5, 3.0), (0.5, 3.0), (0.1, 0.9)), order=0, rtol=1e-5),
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
    Row("select_n", named("select_n"), ((0, 1), (-3, 3), (-3, 3)), (*NUMBERS, "bool"), 2, None, ("bool", None, None)),
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

CONVERSIONS = [
    *[
        Row("convert_element_type", lambda lax, to=to: lambda x: lax.convert_element_type(x, to), ((-3, 3),),
            ("float32", "bfloat16", "int32", "bool"), order, None)
        for to, order in (("float16", 2), ("int8", 0), ("bool", 0), ("uint8", 0), ("float32", 2))
    ],
    *[
        Row("bitcast_convert_type", lambda lax, to=to: lambda x: lax.bitcast_convert_type(x, to), ((-3, 3),), (of,), 0, None)
        for of, to in (("float32", "int32"), ("float32", "int8"), ("int32", "uint8"), ("float16", "int16"))
    ],
    Row("bitcast_convert_type", lambda lax: lambda x: lax.bitcast_convert_type(x, "float32"), ((-3, 3),), ("int8",), 0,
        None, shape=(3, 4)),
]  # fmt: skip

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
        Row(name, lambda lax, a=a: lambda x: getattr(lax, name)(x, a), ((0.3, 2.0),), dtypes, order, rtol, shape=(3, 2, 5))
        for a in axes
    ]


REDUCTIONS = [
    *_reduction("reduce_sum", (*NUMBERS,), 2, 2e-6),
    *_reduction("reduce_prod", ("float32", "int32"), 2, 2e-6, AXES[:5]),
    *_reduction("reduce_max", (*NUMBERS, "bool"), 2, None),
    *_reduction("reduce_min", ("float32", "int32", "bool"), 2, None),
    *_reduction("reduce_and", ("int32", "bool"), 0, None),
    *_reduction("reduce_or", ("int32", "bool"), 0, None),
    *_reduction("reduce_xor", ("int32", "uint8"), 0, None),
    *[
        Row(name, lambda lax, n=name, a=a: lambda x: getattr(lax, n)(x, a, np.int32), ((-3, 3),), (*FLOATS, "int32", "bool"), 0,
            None, shape=(3, 2, 5))
        for name in ("argmax", "argmin")
        for a in range(3)
    ],
    Row("reduce", lambda lax: lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b, (1,)), ((0.5, 2),), ("float32",), 2,
        4e-6, shape=(3, 5)),
    Row("reduce", lambda lax: lambda x: lax.reduce(x, np.float32(0), lambda a, b: lax.max(a, -b), (0, 1)), ((0.5, 2),),
        ("float32",), 0, None, shape=(1, 3)),
    Row("reduce", lambda lax: lambda x, y: lax.reduce(
        (x, y), (np.float32(-np.inf), np.int32(0)), lambda a, b: (lax.max(a[0], b[0]), lax.add(a[1], b[1])), (0,)),
        ((-3, 3), (-3, 3)), ("float32",), 0, None, (None, "int32"), (5, 2)),
]  # fmt: skip

ROWS = [
    *ARITHMETIC, *SIGNS, *TRANSCENDENTAL, *SPECIAL, *COMPARISONS, *BITS, *CHOICES, *CONVERSIONS, *DERIVATIVES, *REDUCTIONS
]  # fmt: skip
