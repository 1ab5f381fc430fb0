"""Dtypes against JAX: promotion of every pair, canonical dtypes, kinds, names, messages."""

import contextlib
import itertools
import pickle
import warnings
from types import SimpleNamespace

import jax
import ml_dtypes
import numpy as np
import pytest
from jax._src import dtypes as oracle

from mpijax import dtypes as public
from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.dtypes import promotion

STRONG = promotion.STRONG
# Operands in the four ways that an operation meets them.
VALUES = [True, 1, 1.0, 1j, np.float32(1), np.int64(1), np.float64(1), np.bool_(True), np.zeros(2, np.int8)]
TYPES = [bool, int, float, complex, np.int8, np.float32, "uint16", "bfloat16", None]


@contextlib.contextmanager
def options(x64, mode="standard", explicit="warn"):
    with contextlib.ExitStack() as stack:
        stack.enter_context(config.enable_x64(x64))
        stack.enter_context(config.numpy_dtype_promotion(mode))
        stack.enter_context(config.explicit_x64_dtypes(explicit))
        stack.enter_context(jax.enable_x64(x64))
        stack.enter_context(jax.numpy_dtype_promotion(mode))
        stack.enter_context(oracle.config.explicit_x64_dtypes(explicit))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", UserWarning)
        yield


def outcome(function, *args, **kwargs):
    """The result, or the class of the error."""
    try:
        return function(*args, **kwargs)
    except Exception as e:
        return next(c for c in type(e).__mro__ if c.__module__ == "builtins"), None


class Abstract:
    """Something that has the aval of an array, for us and for the oracle."""

    def __init__(self, dtype, weak=False):
        self.dtype, self.aval = dtype, SimpleNamespace(dtype=dtype, weak_type=weak)

    def __repr__(self):
        return f"Abstract({self.dtype}, {self.aval.weak_type})"


oracle.register_type_whose_dtype_should_not_be_canonicalized(Abstract)


@pytest.mark.sweep
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("mode", ["standard", "strict"])
@pytest.mark.parametrize("name", ["promote_types", "result_type", "lattice_result_type", "safe_to_cast"])
@pytest.mark.one_in(2)
def test_pairs_of_dtypes(name, mode, x64):
    with options(x64, mode):
        for a, b in itertools.product([*STRONG, int, float, complex], repeat=2):
            expected = outcome(getattr(oracle, name), a, b)
            for _ in range(2):  # the second time from the cache
                assert outcome(getattr(dtypes, name), a, b) == expected, (a, b)


@pytest.mark.sweep
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("mode", ["standard", "strict"])
@pytest.mark.one_in(2)
def test_pairs_of_arrays_weak_and_strong(mode, x64):
    operands = [Abstract(d) for d in STRONG] + [Abstract(d, True) for d in STRONG if d.name != "bool"]
    with options(x64, mode):
        for a, b in itertools.product(operands, repeat=2):
            for name in ("result_type", "lattice_result_type"):
                expected = outcome(getattr(oracle, name), a, b)
                if expected == (KeyError, None):  # JAX has no default for weak narrow integers
                    assert a.dtype is b.dtype and a.dtype in promotion.NARROW_INT
                    continue
                assert outcome(getattr(dtypes, name), a, b) == expected, (name, a, b)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_values_types_and_names(mode, x64):
    with options(x64, mode):
        for args in itertools.chain(
            itertools.product(VALUES + TYPES, repeat=1),
            itertools.product(VALUES + TYPES, repeat=2),
            itertools.product([np.dtype("float16"), 1, 2.0, np.float64(1), None], repeat=3),
        ):
            expected = outcome(oracle.result_type, *args, return_weak_type_flag=True)
            assert outcome(dtypes.result_type, *args, return_weak_type_flag=True) == expected, args
            assert outcome(dtypes.result_type, *args) == outcome(oracle.result_type, *args), args


def test_equal_values_of_different_types_are_not_confused():
    assert dtypes.result_type(True) == np.bool_
    assert dtypes.result_type(1) == np.int32
    assert dtypes.result_type(1.0) == np.float32
    f16 = np.dtype("float16")
    assert [dtypes.result_type(f16, one) for one in (True, 1, 1.0, 1j)] == [f16, f16, f16, np.complex64]


@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_three_operands(mode):
    # One of each neighbourhood of the lattice.
    names = "bool uint8 int8 uint32 int32 bfloat16 float16 float32 complex64 int4".split()
    nodes = [np.dtype(getattr(ml_dtypes, n, n)) for n in names] + [int, float]
    with options(False, mode):
        for args in itertools.product(nodes, repeat=3):
            expected = outcome(oracle.lattice_result_type, *args)
            assert outcome(dtypes.lattice_result_type, *args) == expected, args


def test_join_dtypes_is_lattice_result_type_on_pairs():
    f32, i8 = np.dtype("float32"), np.dtype("int8")
    assert dtypes.join_dtypes((f32, True), (i8, False)) == (np.float32, True)
    assert dtypes.join_dtypes((f32, False), (i8, False)) == (np.float32, False)
    assert dtypes.join_dtypes((i8, True)) == (i8, True)


@pytest.mark.parametrize(
    "args, phrase",
    [
        (("float8_e4m3fn", "float32"), "8-bit floats do not support implicit promotion"),
        (("float6_e2m3fn", "float32"), "6-bit floats do not support implicit promotion"),
        (("float4_e2m1fn", "float32"), "4-bit floats do not support implicit promotion"),
        (("int4", "int8"), "4-bit integers do not support implicit promotion"),
    ],
)
def test_no_path_says_why(args, phrase):
    a, b = (np.dtype(getattr(ml_dtypes, name, name)) for name in args)
    with pytest.raises(public.TypePromotionError, match=phrase) as error:
        dtypes.promote_types(a, b)
    assert f"('{args[0]}', '{args[1]}')" in str(error.value)


def test_strict_says_how_to_go_on():
    with config.numpy_dtype_promotion("strict"), pytest.raises(
        public.TypePromotionError, match="jax_numpy_dtype_promotion=strict. Try explicitly casting"
    ):
        dtypes.result_type(np.dtype("int32"), np.dtype("float32"))


@pytest.mark.parametrize("x64", [False, True])
def test_dtype_of(x64):
    things = [*VALUES, *TYPES, *STRONG, [1, 2], [1.5], object(), "S3", np.zeros(2, "U2"), "nonsense"]
    with options(x64):
        for x in things:
            assert outcome(dtypes.dtype, x) == outcome(oracle.dtype, x), x
            assert outcome(dtypes.scalar_type_of, x) == outcome(oracle.scalar_type_of, x), x


def test_arrays_keep_the_dtype_they_have():
    f64 = np.dtype("float64")
    assert dtypes.dtype(Abstract(f64)) == f64
    assert dtypes.result_type(Abstract(f64), Abstract(f64)) == f64
    assert dtypes.dtype(np.zeros(3)) == np.float32


@pytest.mark.parametrize("x64", [False, True])
def test_canonical(x64):
    with options(x64):
        for x in [*STRONG, *TYPES, np.float64, "float64", "complex128", "uint64"]:
            assert outcome(dtypes.canonicalize_dtype, x) == outcome(oracle.canonicalize_dtype, x), x
            expected = outcome(oracle.check_and_canonicalize_user_dtype, x)
            assert outcome(dtypes.check_user_dtype_supported, x) == expected, x
            assert outcome(dtypes.jax_dtype, x) == outcome(oracle.jax_dtype, x), x
        for kind in ("int", "uint", "float", "complex"):
            name = f"default_{kind}_dtype"
            assert getattr(dtypes, name)() == getattr(oracle, name)()


@pytest.mark.parametrize("wanted", ["float64", np.int64, np.dtype("complex128")])
def test_truncation_warns_in_jaxs_words(wanted):
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        oracle.check_and_canonicalize_user_dtype(wanted, "zeros")
    for _ in range(2):
        with warnings.catch_warnings(record=True) as ours:
            warnings.simplefilter("always")
            dtypes.check_user_dtype_supported(wanted, "zeros")
        assert [(w.category, str(w.message)) for w in ours] == [(w.category, str(w.message)) for w in theirs]


def test_truncation_in_promotion_warns_every_time():
    f64, f32 = np.dtype("float64"), np.dtype("float32")
    for _ in range(2):
        with pytest.warns(UserWarning, match="Explicitly requested dtype float64"):
            assert dtypes.result_type(f64, f32) == f32


def test_explicit_x64_dtypes():
    with options(False, explicit="allow"):
        assert dtypes.check_user_dtype_supported("float64") == np.float64
        assert dtypes.check_user_dtype_supported(float) == np.float32
    refused = pytest.raises(ValueError, match="float64 requested in zeros is not available")
    with options(False, explicit="error"), refused:
        dtypes.check_user_dtype_supported("float64", "zeros")


@pytest.mark.parametrize(
    "wanted, error, phrase",
    [
        ("S3", TypeError, "only supports number, bool, and string dtypes, got dtype S3 in zeros"),
        (None, ValueError, "dtype must be specified"),
        (np.zeros(3), ValueError, "Passing an array as a dtype argument"),
        (Abstract(np.dtype("int32")), ValueError, "Passing an array as a dtype argument"),
        ("nonsense", TypeError, "nonsense"),
    ],
)
def test_unusable_dtype_arguments(wanted, error, phrase):
    with pytest.raises(error, match=phrase):
        dtypes.check_user_dtype_supported(wanted, "zeros")


def test_check_valid_dtype():
    dtypes.check_valid_dtype(np.dtype("int8"))
    dtypes.check_valid_dtype(dtypes.float0)
    with pytest.raises(TypeError, match="is not a valid JAX array type"):
        dtypes.check_valid_dtype(np.dtype("S3"))


KINDS = [
    *(np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating),
    *(np.complexfloating, np.bool_, np.character),
]


def test_issubdtype():
    them = [*STRONG, *KINDS, *(d.type for d in STRONG), float, int, None, "float32", dtypes.float0]
    for a, b in itertools.product(them, repeat=2):
        assert dtypes.issubdtype(a, b) == oracle.issubdtype(a, b), (a, b)
        assert not dtypes.issubdtype(a, dtypes.extended) and not dtypes.issubdtype(a, dtypes.prng_key)


def test_isdtype():
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating"]
    for d, kind in itertools.product(STRONG, [*kinds, "numeric", "float32", np.int8, ("bool", "numeric")]):
        assert dtypes.isdtype(d, kind) == oracle.isdtype(d, kind), (d, kind)
    with pytest.raises(ValueError, match="Unrecognized kind='whole'"):
        dtypes.isdtype("int8", "whole")
    with pytest.raises(TypeError, match="Expected kind to be a dtype"):
        dtypes.isdtype("int8", object())


def test_names_and_sizes():
    for d in STRONG:
        assert dtypes.short_name(d) == oracle.short_dtype_name(d)
        assert dtypes.itemsize_bits(d) == oracle.itemsize_bits(d)
    assert dtypes.short_name(dtypes.float0) == "float0"
    assert dtypes.float0 == jax.dtypes.float0
    with pytest.raises(ValueError, match="cannot be None"):
        dtypes.itemsize_bits(None)


def test_infinity():
    for d in promotion.FLOAT + promotion.COMPLEX + promotion.SIGNED:
        with np.errstate(all="ignore"):
            real = dtypes.issubdtype(d, np.inexact) and bool(np.isinf(np.array(np.inf).astype(d)))
        assert dtypes.supports_inf(d) == real


@pytest.mark.parametrize("kind", ["numeric", "inexact", "floating", "complex"])
def test_conversions_of_kind(kind):
    name = f"to_{kind}_dtype"
    narrowest = ("int1", "uint1", "int2", "uint2")  # JAX leaves these integers as they are
    for d in STRONG:
        if d.name not in narrowest:
            assert outcome(getattr(dtypes, name), d) == outcome(getattr(oracle, name), d), d


def test_scalars():
    of = [dtypes.scalar_dtype(x).name for x in (True, 1, 1.0, 1j)]
    assert of == ["bool", "int32", "float32", "complex64"]
    assert dtypes.scalar_dtype(int) == np.int32
    for huge in (1 << 31, -(1 << 31) - 1):
        with pytest.raises(OverflowError, match=f"Python int {huge} too large to convert to int32"):
            dtypes.scalar_dtype(huge)
    assert dtypes.scalar_dtype(-(1 << 31)) == np.int32
    with config.enable_x64():
        assert dtypes.scalar_dtype(1 << 31) == np.int64
    assert dtypes.coerce_to_array(1).dtype == np.int32
    assert dtypes.coerce_to_array(1.5, np.float16).dtype == np.float16
    assert all(map(dtypes.is_weak, [1, 1.0, 1j, Abstract(np.dtype("int8"), True)]))
    assert not any(map(dtypes.is_weak, [True, np.float64(1), np.zeros(2), Abstract(np.dtype("int8"))]))
    assert dtypes.is_python_scalar(True) and not dtypes.is_python_scalar(np.float64(1))


class Threefry:
    tag, key_shape = "fry", (2,)


class Rbg:
    tag, key_shape = "rbg", (4,)


def test_key_dtype():
    key = dtypes.PRNGKeyDtype(Threefry)
    assert str(key) == repr(key) == key.name == dtypes.short_name(key) == "key<fry>"
    assert (key.itemsize, key.physical_shape, key.physical_dtype) == (8, (2,), np.uint32)
    assert key == dtypes.PRNGKeyDtype(Threefry) and hash(key) == hash(dtypes.PRNGKeyDtype(Threefry))
    assert key != dtypes.PRNGKeyDtype(Rbg) and key != np.dtype("uint32") and np.dtype("uint32") != key
    assert pickle.loads(pickle.dumps(key)) == key
    for kind in (dtypes.prng_key, dtypes.extended, np.generic, key):
        assert dtypes.issubdtype(key, kind) and not dtypes.issubdtype(key, np.number)
    assert not dtypes.issubdtype(np.float32, key)
    assert dtypes.dtype(key) is dtypes.dtype(Abstract(key)) is key
    assert dtypes.result_type(Abstract(key), Abstract(key)) is key
    with pytest.raises(ValueError, match="key<fry> is not a valid dtype for JAX type promotion"):
        dtypes.result_type(Abstract(key), 1.0)
    assert dtypes.canonicalize_dtype(key, allow_extended_dtype=True) is key
    with pytest.raises(ValueError, match="extended dtype key<fry>"):
        dtypes.canonicalize_dtype(key)
    assert dtypes.check_user_dtype_supported(key) is key is dtypes.jax_dtype(key)
    dtypes.check_valid_dtype(key)


def test_result_type_needs_an_operand():
    with pytest.raises(ValueError, match="at least one array or dtype is required"):
        dtypes.result_type()


def test_public_names():
    names = {name for name in dir(jax.dtypes) if not name.startswith("_")}
    assert set(public.__all__) == names
