"""JAX's types for all combinations of dtypes, at the ends of their ranges, of empty and 0-d arrays, and of numbers."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from numpy_oracle import check_error, check_types, function
from oracle import OURS, THEIRS, leaves_of, run
from quickly import one_in

FLOATS = [0, -0.0, 1, -1, 0.5, -0.5, 1.5, -2.5, 3, -7.25, 30.25, 88.9, -88.9, 1e-3, 0.999, np.inf, -np.inf, np.nan]


def edges(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([False, True])
    if dtype.startswith(("int", "uint")):
        limits = np.iinfo(dtype)
        return np.array([0, 1, 2, 3, 7, 100, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype)
    if dtype.startswith("complex"):
        parts = [0, -0.0, 1, -1.5, 0.25, 40, 1e-3]
        return np.array([complex(a, b) for a in parts for b in parts], dtype)
    limits = ml_dtypes.finfo(dtype)
    ends = [float(limits.max), -float(limits.max), float(limits.tiny), -float(limits.tiny), 1 + float(limits.eps)]
    return np.array(FLOATS + ends).astype(dtype)


UNARY = {
    "float32": """
        abs acosh arccos arcsin arcsinh arctan arctanh cbrt ceil conj cos cosh deg2rad exp exp2 expm1 fabs floor
        frexp i0 isfinite isinf isnan isneginf isposinf log log10 log1p log2 logical_not nan_to_num negative
        rad2deg real reciprocal rint signbit sin sinh sqrt square tan tanh trunc""",
    "int32 uint8": """
        abs arctan bitwise_count bitwise_not conj exp2 imag invert isfinite isnan log1p logical_not negative positive
        sign sin sqrt square""",
    "bool": "abs cos exp invert isnan logical_not sqrt",
    "complex64": "abs angle conj cos cosh exp exp2 isfinite log log10 reciprocal sin sinh sqrt square tan tanh",
}
BINARY = {
    "float32": """
        add arctan2 copysign divide equal floor_divide fmax fmin fmod greater greater_equal heaviside hypot less
        less_equal logaddexp logical_and logical_xor maximum minimum multiply nextafter not_equal power remainder
        subtract""",
    "int8 uint8": """
        add bitwise_and bitwise_or bitwise_xor equal gcd greater less_equal logical_or maximum minimum multiply
        subtract""",
    "complex64": "add equal greater less_equal maximum minimum multiply subtract",
}

# ---------------------------------------------------------------- types

DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "float16", "float32", "complex64"]
SPECIAL = """
    dawsn digamma entr erf erfc erfcx erfinv exp1 expi expit factorial gamma gammaln gammasgn i0 i0e i1 i1e log_ndtr
    logit loggamma ndtr ndtri spence wofz""".split()
ANY_UNARY = sorted({name for names in UNARY.values() for name in names.split()})
ANY_BINARY = sorted({name for names in BINARY.values() for name in names.split()} | {"left_shift", "float_power"})


def same_types(cases: list[tuple]) -> None:
    """Assert equal shapes, dtypes and weak types, or errors of one class, without computing anything.

    cases: expressions in x, y and z, each with its arguments. A library traces all of them as one function.
    """
    theirs, ours = (types_of(L, cases) for L in (THEIRS, OURS))
    for (source, *args), of_theirs, of_ours in zip(cases, theirs, ours, strict=True):
        assert of_theirs[:2] == of_ours[:2], (source, args, of_theirs, of_ours)


def types_of(L, cases: list[tuple]) -> list[tuple]:
    """("value", types of the leaves) of each case, or ("error", class name, message)."""
    outcomes = []

    def all_of(arguments):
        for (source, *args), tracers in zip(cases, arguments, strict=True):
            call = function(source, ", ".join("xyz"[: len(args)]))
            outcomes.append(run(lambda call=call, tracers=tracers: call(L)(*tracers)))
        return [outcome[1] if outcome[0] == "value" else None for outcome in outcomes]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's constants, some of which float16 does not have
        results = L.eval_shape(all_of, [tuple(args) for _, *args in cases])
    return [
        ("value", [(t.shape, str(t.dtype), t.weak_type) for t in leaves_of(result)]) if kind == "value" else (kind, *rest)
        for result, (kind, *rest) in zip(results, outcomes, strict=True)
    ]


@pytest.mark.parametrize("name", one_in(3, [*(f"n.{u}" for u in ANY_UNARY), *(f"J.scipy.special.{u}" for u in SPECIAL)]))
@pytest.mark.one_in(4)
def test_types_of_one_operand(name):
    operands = (*map(edges, DTYPES), np.zeros((0, 3), np.float32), 3, 0.5, True, 1j)
    same_types([(f"{name}(x)", x) for x in operands])


@pytest.mark.parametrize("name", one_in(3, ANY_BINARY))
@pytest.mark.one_in(3)
def test_types_of_two_operands(name):
    arrays = [np.ones(3, dtype) for dtype in DTYPES[:3] + DTYPES[4:]]
    operands = [(x, y) for x in arrays for y in (*arrays, 2, 0.5)]
    operands += [
        (2, True),
        (np.ones((2, 1, 3), np.float32), np.ones((4, 1), np.float32)),
        (np.ones(3, np.float32), np.ones(4, np.float32)),
    ]
    same_types([(f"n.{name}(x, y)", *xs) for xs in operands])


REDUCTIONS = "all any argmax count_nonzero cumprod cumsum max mean min nanmax nansum prod sort std sum var".split()


@pytest.mark.parametrize("name", one_in(3, REDUCTIONS))
@pytest.mark.one_in(2)
def test_types_of_reductions(name):
    cases = []
    for dtype in ("bool", "int8", "uint32", "float16", "float32"):
        for shape in ((2, 3), (2, 0)):
            cases += [(f"n.{name}(x, axis={axis})", np.zeros(shape, dtype)) for axis in (None, 0, -1)]
        cases.append((f"n.{name}(x)", np.ones((), dtype)))
    same_types(cases)


# ---------------------------------------------------------------- what went wrong once


@pytest.mark.parametrize("name", ("cumsum", "cumprod", "nancumsum", "nancumprod"))
def test_running_sums_of_0d(name):
    check_error(f"n.{name}(x, axis=-1)", x=np.float32(2))
    check_types(f"n.{name}(x)", x=np.float32(2))


def test_window_for_another_rank():
    check_error("J.lax.reduce_window(x, 0, J.lax.add, (2,), (1,), 'SAME')", x=np.ones((2, 3), np.int32))
    check_error("J.lax.reduce_window(x, 0, J.lax.add, (2,), (), 'SAME')", x=np.int32(3))


def test_powers_of_complex_infinities():
    """A real exponent leaves the angle of an infinity alone."""
    power = OURS.jit(lambda x: x ** np.complex64(3))(np.array([np.inf, -3, 0], np.complex64))
    np.testing.assert_allclose(power, [complex(np.inf, 0), -27, 0], rtol=1e-6, atol=2e-5)
