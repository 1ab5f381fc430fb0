"""Whether the rows of the table have JAX's values: many in one program, as compiling is what costs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import scipy.special
from edges.operands import kind
from edges.remembered import key_of, remembered
from edges.table import UNLIKE_JAX, Row
from oracle import OURS, THEIRS, Library, leaves_of, run

TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "complex64": 4e-6}  # others: 3e-14


@dataclass
class Case:
    row: Row
    label: str
    args: list[np.ndarray]

    def of(self, library: Any) -> Callable:
        names = {"n": library.numpy, "np": np, "J": library, "L": library.lax, "nn": library.nn}
        names["S"] = library.scipy.special
        return eval(f"lambda {', '.join(self.row.operands)}: ({self.row.source})", names)

    @property
    def key(self) -> str:
        return key_of(self.row.source, self.args)

    def __str__(self) -> str:
        return f"{self.row.source} of {self.label}"


def types_of(library: Library, case: Case) -> tuple:
    """("value", what is known of the leaves) or ("error", class name, message), without computing anything."""
    return run(lambda: [
        (t.shape, str(t.dtype), t.weak_type) for t in leaves_of(library.eval_shape(case.of(library), *case.args))
    ])  # fmt: skip


def values(library: Library, cases: list[Case]) -> list[list[np.ndarray] | Exception]:
    """Leaves of all cases, from one program if it compiles; an error for what has types but no code: matrices of
    narrow floats."""

    def program(operands: list) -> list:
        return [leaves_of(case.of(library)(*args)) for case, args in zip(cases, operands)]

    try:
        found = library.jit(program)([case.args for case in cases])
        return [[np.asarray(leaf) for leaf in leaves] for leaves in found]
    except Exception as error:
        if len(cases) == 1:
            return [error]
        half = len(cases) // 2
        return values(library, cases[:half]) + values(library, cases[half:])


def expected(cases: list[Case]) -> list[tuple[tuple, list[np.ndarray] | None]]:
    """JAX's types and values; None for values that it does not have."""

    def compute(places: list[int]) -> list[tuple]:
        types = [types_of(THEIRS, cases[place]) for place in places]
        good = [place for place, found in zip(places, types) if found[0] == "value"]
        leaves = dict(zip(good, values(THEIRS, [cases[place] for place in good]) if good else []))
        return [(found, leaves[place] if isinstance(leaves.get(place), list) else None)
                for place, found in zip(places, types)]  # fmt: skip

    return remembered([case.key for case in cases], compute)


def eagerly(library: Library, case: Case) -> list[np.ndarray]:
    found = case.of(library)(*map(library.numpy.asarray, case.args))
    return [np.asarray(library.numpy.asarray(leaf)) for leaf in leaves_of(found)]


def batched(cases: list[Case]) -> list[list[np.ndarray]]:
    """Our values of elementwise cases, an element of `x` at a time under `vmap`."""
    functions = [OURS.vmap(case.of(OURS), (0, None)[: len(case.args)]) for case in cases]
    found = OURS.jit(lambda operands: [leaves_of(f(*args)) for f, args in zip(functions, operands)])(
        [case.args for case in cases]
    )
    return [[np.asarray(leaf) for leaf in leaves] for leaves in found]


def wrong(cases: list[Case]) -> list[str]:
    """What differs from JAX, in types or values, and what differs between our values with and without `jit`.

    Not classes of errors, which are for other tests; and where JAX has types, but cannot compile, or what `UNLIKE_JAX`
    names, there is nothing to compare.
    """
    cases = [case for case in cases if not any(re.search(pattern, str(case)) for pattern, _ in UNLIKE_JAX)]
    lines, compared = [], []
    for case, (types, leaves) in zip(cases, expected(cases), strict=True):
        own = types_of(OURS, case)
        if types[0] == "value" == own[0] and types[1] == own[1] and leaves is not None:
            compared.append((case, leaves))
        elif types[:2] == ("error", "ZeroDivisionError"):
            continue  # an accident of JAX's, with an empty array
        elif types[0] == "error" != own[0] or (leaves is not None and types[:2] != own[:2]):
            lines.append(f"{case}\n  JAX:    {types}\n  mpijax: {own}")
    for (case, theirs), ours in zip(compared, values(OURS, [case for case, _ in compared]), strict=True):
        if isinstance(ours, Exception):
            lines.append(f"{case}: {ours!r}")
            continue
        lines += different(case, theirs, ours)
        if not same_bits(eagerly(OURS, case), ours):
            lines.append(f"{case}: other values without jit")
    return lines


# ---------------------------------------------------------------- comparison


def widened(x: np.ndarray) -> np.ndarray:
    """Floats in double precision, which all of them fit."""
    return x.astype({"f": np.float64, "c": np.complex128}.get(kind(x.dtype), x.dtype))


def apart(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> np.ndarray:
    """Where two arrays of one dtype differ: exactly for integers; signs of zeros and kinds of infinities count."""
    if kind(a.dtype) not in "fc":
        return a != b
    if kind(a.dtype) == "c":
        return parts_apart(a, b, rtol, atol).any(-1)
    return _floats_apart(a, b, _allowed(a, rtol, atol))


def _allowed(a: np.ndarray, rtol: float, atol: float) -> np.ndarray:
    return rtol * np.abs(widened(np.where(np.isfinite(a), a, a.dtype.type(0)))) + atol


def parts_apart(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> np.ndarray:
    """Where complex numbers differ: [..., 0] in their real, [..., 1] in their imaginary parts, by what both sizes
    allow."""
    # An infinite part says nothing of how far the other may be off.
    allowed = np.max([_allowed(z, rtol, atol) for z in (a, a.real, a.imag)], 0)
    return np.stack([_floats_apart(a.real, b.real, allowed), _floats_apart(a.imag, b.imag, allowed)], -1)


def _floats_apart(a: np.ndarray, b: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    allowed = allowed + 4 * float(ml_dtypes.finfo(a.dtype).tiny)  # XLA takes denormals for zero
    a, b = widened(a), widened(b)
    with np.errstate(all="ignore"):
        near = (np.abs(a - b) <= allowed) | (a == b)
    near &= ~((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)))
    return ~(near | (np.isnan(a) & np.isnan(b)))


def same_bits(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    """NaN has one kind here."""
    return all(x.dtype == y.dtype and x.shape == y.shape and _bits(x) == _bits(y) for x, y in zip(a, b, strict=True))


def _bits(x: np.ndarray) -> bytes:
    parts = np.stack([x.real, x.imag]) if kind(x.dtype) == "c" else x
    if kind(x.dtype) in "fc":
        parts = np.where(np.isnan(parts), parts.dtype.type(np.nan), parts)
    return parts.tobytes()


def different(case: Case, theirs: list[np.ndarray], ours: list[np.ndarray]) -> list[str]:
    """Lines that say where a case has neither JAX's value nor the exact one."""
    lines: list[str] = []
    truths: list[list[np.ndarray]] | None = None
    for number, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        if case.row.operands[:1] != ("x",) and kind(a.dtype) in "fc":
            a, b = a + a.dtype.type(0), b + a.dtype.type(0)  # sums and products, in any order: zeros have no sign
        rtol = case.row.rtol * TOLERANCE.get(str(a.dtype), 3e-14)
        differ = parts_apart if kind(a.dtype) == "c" else apart
        bad = differ(a, b, rtol, case.row.atol)
        if bad.any():
            if truths is None:
                truths = [found for flushed in (False, True) if (found := exact(case, a.dtype, flushed))]
            for truth in truths:
                if truth[number].shape == b.shape:
                    with np.errstate(all="ignore"):
                        bad &= differ(truth[number].astype(b.dtype), b, rtol, case.row.atol)
        if kind(a.dtype) == "c":
            bad = (bad & ~_undefined(case, a, b)).any(-1)
        else:
            bad &= ~_at_flushed_pole(case, a)
        places = [tuple(place) for place in np.argwhere(bad)]
        if places:
            lines.append(f"{case}: {len(places)} of {b.size}")
            lines += [f"  {_operands(case, p, b.shape)}: {b[p]}, JAX: {a[p]}" for p in places[:6]]
    return lines


def _undefined(case: Case, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Parts of a complex result `b` that JAX's, `a`, does not bind, of an infinite or NaN operand and at poles: where
    its formula comes to NaN, or both have one NaN; and the signs of infinities and zeros."""
    unbound = np.isinf(b)[..., None] & np.ones(2, bool)
    for x in case.args if case.row.operands[:1] == ("x",) else ():
        unbound |= ~np.isfinite(np.broadcast_to(x, b.shape))[..., None]
    parts, others = (np.stack([z.real, z.imag], -1) for z in (a, b))
    alike = np.isnan(parts) | np.isnan(others).any(-1, keepdims=True) | (np.abs(parts) == np.abs(others))
    return unbound & alike


def _at_flushed_pole(case: Case, a: np.ndarray) -> np.ndarray:
    """Where JAX's result is infinite as it takes a denormal for zero; the finite result is rounded in every step of a
    formula: gamma(x) near 1/x comes of a logarithm, of a bfloat16 of three digits."""
    if case.row.operands != ("x",) or case.args[0].dtype != a.dtype or kind(a.dtype) != "f":
        return np.zeros(a.shape, bool)
    x = np.broadcast_to(widened(case.args[0]), a.shape)
    return np.isinf(a) & (x != 0) & (np.abs(x) < float(ml_dtypes.finfo(a.dtype).tiny))


def _operands(case: Case, place: tuple[int, ...], shape: tuple[int, ...]) -> list[str]:
    try:
        return [str(np.broadcast_to(x, shape)[place]) for x in case.args]
    except ValueError:
        return [f"at {place}"]


LAX = {
    "div": "divide", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh",
    "atan2": "arctan2", "is_finite": "isfinite", "max": "maximum", "min": "minimum", "pow": "power", "sub": "subtract",
    "mul": "multiply", "neg": "negative", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal",
}  # fmt: skip
SPECIAL = {"bessel_i0e": "i0e", "bessel_i1e": "i1e", "erf_inv": "erfinv", "lgamma": "gammaln", "logistic": "expit",
           "digamma": "digamma", "erf": "erf", "erfc": "erfc"}  # fmt: skip


class _Lax:
    rsqrt = staticmethod(lambda x: 1 / np.sqrt(x))
    map = staticmethod(lambda function, x: function(x))

    def __getattr__(self, name: str) -> Any:
        return getattr(_Special(), SPECIAL[name]) if name in SPECIAL else getattr(np, LAX.get(name, name))


def _boxcox(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Complex: also the limits at x = 0."""
    if kind(x.dtype) != "c":
        return scipy.special.boxcox(x, y)
    return np.where(y == 0, np.log(x), (np.where((x == 0) & (y.real > 0), 0, x**y) - 1) / y)


def _by_mpmath(function: Callable) -> Callable:
    """Of floats, a number at a time, where SciPy has lost digits or takes denormals for zero."""

    def of_array(x: np.ndarray) -> np.ndarray:
        with mpmath.workdps(30):
            found = [float(function(mpmath.mpf(float(v)))) if np.isfinite(v) else np.nan for v in x.ravel()]
        return np.array(found).reshape(x.shape)

    return of_array


@_by_mpmath
def _gammaln(x: Any) -> Any:
    return mpmath.inf if x <= 0 and x == mpmath.floor(x) else mpmath.re(mpmath.loggamma(x))


@_by_mpmath
def _log_ndtr(x: Any) -> Any:
    if abs(x) > 1e6:
        return 0.0 if x > 0 else -x * x / 2
    tail = mpmath.erfc(abs(x) / mpmath.sqrt(2)) / 2
    return mpmath.log1p(-tail) if x > 0 else mpmath.log(tail)


def _loggamma(x: np.ndarray) -> np.ndarray:
    return scipy.special.loggamma(x) if kind(x.dtype) == "c" else np.where(x > 0, _gammaln(x), np.nan)


class _Special:
    bessel_jn = staticmethod(
        lambda z, v: np.stack([_by_mpmath(lambda x, order=order: mpmath.besselj(order, x))(z) for order in range(v + 1)])
    )
    boxcox = staticmethod(_boxcox)
    gammaln = staticmethod(_gammaln)
    log_ndtr = staticmethod(_log_ndtr)
    loggamma = staticmethod(_loggamma)
    multigammaln = staticmethod(
        lambda x, d: d * (d - 1) / 4 * np.log(np.pi) + sum(_gammaln(x - i / 2) for i in range(d))
    )

    def __getattr__(self, name: str) -> Any:
        return getattr(scipy.special, name)


def _elu(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(x))


_NN = SimpleNamespace(
    elu=_elu,
    celu=lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x / alpha)),
    selu=lambda x: 1.0507009873554805 * _elu(x, 1.6732632423543772),
    tanh=np.tanh,
    silu=lambda x: x * scipy.special.expit(x),
    mish=lambda x: x * np.tanh(np.log1p(np.exp(x))),
    log1mexp=lambda x: np.log(-np.expm1(-x)),
)
NUMPY = SimpleNamespace(numpy=np, lax=_Lax(), nn=_NN, scipy=SimpleNamespace(special=_Special()))


def exact(case: Case, dtype: np.dtype, flushed: bool) -> list[np.ndarray] | None:
    """NumPy's, SciPy's or mpmath's values in double precision, for a result of this dtype, where they have the
    function; `flushed`: of zeros in place of denormals, as which programs may take them. XLA puts complex functions
    together from real ones, which loses signs and infinities."""
    if case.row.operands[:1] != ("x",) and not case.row.source.startswith("S.") and kind(dtype) != "b":
        return None
    # Integers become floats of the result's dtype first.
    args = [x.astype(dtype) if kind(x.dtype) in "bui" and kind(dtype) in "fc" else x for x in case.args]
    args = [_without_denormals(x) if flushed and kind(x.dtype) == "f" else x for x in args]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run(lambda: [np.asarray(leaf) for leaf in leaves_of(case.of(NUMPY)(*map(widened, args)))])
    return found[1] if found[0] == "value" else None


def _without_denormals(x: np.ndarray) -> np.ndarray:
    small = np.abs(widened(x)) < float(ml_dtypes.finfo(x.dtype).tiny)
    return np.where(small, np.copysign(widened(x) * 0, widened(x)).astype(x.dtype), x)
