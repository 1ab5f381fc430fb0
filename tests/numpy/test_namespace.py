"""The Python Array API's questions about the namespace, its methods of arrays, and NumPy beside them."""

import importlib
import inspect
import operator

import numpy as np
import pytest
from oracle import OURS, THEIRS

KINDS = [
    None, "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric",
    ("bool", "real floating"),
]  # fmt: skip


@pytest.mark.parametrize("x64", [False, True])
def test_dtypes(x64):
    found = []
    for J in (THEIRS, OURS):
        with J.enable_x64(x64):
            info = J.numpy.__array_namespace_info__()
            found.append([info.default_dtypes(), *(info.dtypes(kind=kind) for kind in KINDS), info.capabilities()])
    assert found[1] == found[0]


def test_namespace():
    x = OURS.numpy.ones(3)
    assert x.__array_namespace__() is OURS.numpy
    assert x.__array_namespace__(api_version="2024.12") is OURS.numpy
    with pytest.raises(ValueError, match=r"api_version='2021\.12' is not available"):
        x.__array_namespace__(api_version="2021.12")
    assert OURS.jit(lambda x: x.__array_namespace__().sum(x))(x) == 3
    assert OURS.numpy.__array_api_version__ == THEIRS.numpy.__array_api_version__
    info = OURS.numpy.__array_namespace_info__()
    assert info.default_device() is None and info.devices() == [None, *OURS.devices()]


def test_array_module():
    x = OURS.numpy.ones(3)
    assert x.__array_module__((OURS.Array,)) is OURS.numpy
    assert x.__array_module__((OURS.Array, str)) is NotImplemented


def test_bytes():
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert OURS.numpy.asarray(x).tobytes() == x.tobytes()
    with pytest.raises(OURS.errors.ConcretizationTypeError):
        OURS.jit(lambda x: x.tobytes())(x)


def test_all_of_jaxs_names_with_their_parameters():
    """Names, kinds and order of the parameters: what a call can be written with."""
    theirs = {name for name in dir(THEIRS.numpy) if not name.startswith("_")}
    assert {name for name in theirs if not hasattr(OURS.numpy, name)} == set()

    def parameters(fun):
        return [(p.name, p.kind) for p in inspect.signature(fun).parameters.values()]

    def functions(J):
        found = {name: getattr(J.numpy, name) for name in theirs}
        return {n: f for n, f in found.items() if callable(f) and not isinstance(f, (type, np.ufunc))}

    ours = functions(OURS)
    for name, fun in functions(THEIRS).items():
        # Scalar types and functions in C have no signatures.
        if name in ours and hasattr(fun, "__code__" if inspect.isfunction(fun) else "__wrapped__"):
            assert parameters(ours[name]) == parameters(fun), name


@pytest.mark.parametrize("module", ["", "numpy", "lax", "lax.linalg", "nn", "random", "scipy.special", "scipy.stats"])
def test_vars_lists_the_names(module):
    def names(J):
        found = operator.attrgetter(module)(J) if module else importlib.import_module(J.name)
        return {name for name in vars(found) if not name.startswith("_")}

    gone = {"lib", "jax2tf_associative_scan_reductions"}
    assert names(THEIRS) - names(OURS) - gone == set()


def test_the_class_of_arrays_lists_their_members():
    def members(J, cls, kind):
        return {name for name, x in inspect.getmembers(cls) if kind(x) and not name.startswith("_")}

    for kind in (callable, lambda x: isinstance(x, property)):
        assert members(THEIRS, THEIRS.Array, kind) - members(OURS, OURS.Array, kind) == set()
    of_ours, of_theirs = (
        members(J, type(J.numpy.ones(2)), lambda x: isinstance(x, property)) for J in (OURS, THEIRS)
    )
    assert of_theirs - of_ours == {"device_buffer", "device_buffers", "traceback"}
    x = OURS.numpy.ones(2)
    assert type(x).shape.fget(x) == x.shape == (2,)


def test_unions_of_types_join_names_in_quotes():
    for J in (THEIRS, OURS):
        unions = [
            J.typing.ArrayLike, J.typing.DTypeLike, J.lax.PrecisionLike, J.lax.ConvGeneralDilatedDimensionNumbers,
            J.core.Atom,
        ]  # fmt: skip
        assert all("Mine" in str(union | "Mine") for union in unions)


def test_numpys_functions_take_arrays():
    x = OURS.numpy.arange(4.0)
    np.testing.assert_array_equal(np.sin(x), np.sin(np.arange(4, dtype=np.float32)))
    # Operators of a NumPy array beside one of ours give ours.
    for result in (np.ones(4, np.float32) + x, np.float32(2) * x, x - np.ones(4), np.ones((4, 4), np.float32) @ x):
        assert isinstance(result, OURS.Array) and result.dtype == np.float32
