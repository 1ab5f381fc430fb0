"""Functions as objects: `reduce`, `accumulate`, `at`, `reduceat`, `outer`."""

import numpy as np
import pytest
from numpy_oracle import check_error, check_jax, check_numpy, function, rows
from oracle import OURS, THEIRS, check, sample
from quickly import one_in

X = sample(3, 5)
BINARY = (
    "add subtract multiply minimum maximum bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor "
    "logaddexp logaddexp2"
).split()


@pytest.mark.parametrize("name", [*BINARY, "negative"])
def test_attributes(name):
    theirs, ours = getattr(THEIRS.numpy, name), getattr(OURS.numpy, name)
    assert isinstance(ours, OURS.numpy.ufunc)
    for attribute in ("nin", "nout", "nargs", "identity", "__name__"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert repr(ours) == repr(theirs)
    assert ours == getattr(OURS.numpy, name) and hash(ours) == hash(getattr(OURS.numpy, name))
    for attribute in ("nin", "nout", "nargs", "identity", "_func"):
        with pytest.raises(AttributeError):
            setattr(ours, attribute, None)


@pytest.mark.parametrize("name", one_in(3, BINARY))
@pytest.mark.one_in(2)
def test_methods(name):
    x = (X * 8).astype(np.int32) if name.startswith("bitwise") else X
    check_numpy(f"n.{name}.reduce(x)", x=x)
    check_numpy(f"n.{name}.reduce(x, axis=1, keepdims=True)", x=x)
    check_numpy(f"n.{name}.accumulate(x, axis=1)", x=x)
    check_numpy(f"n.{name}.outer(x[0], x[:2])", x=x)
    # Stretches of one element are themselves, in the dtype of the array: of bools, where the function gives bools.
    check_numpy(f"n.{name}.reduceat(x, n.array([0, 2, 2, 4]), axis=1)", x=x > 0 if name.startswith("logical") else x)


REDUCTIONS = rows("""
    n.add.reduce(x, initial=2.0, where=x > 0)
    n.add.reduce(x, axis=None)
    n.multiply.reduce(x, dtype="float16")
    n.maximum.reduce(x, initial=-1.0, where=x > 0)
    n.bitwise_and.reduce(x.astype(int), where=x > 0)
    n.logaddexp.reduce(x, where=x > 0, initial=0.5)
    n.logical_xor.reduce(x > 0, axis=1)
    n.add.accumulate(x > 0)
    n.subtract.reduce(x, axis=None, keepdims=True)
    n.subtract.reduce(x, initial=1.0)
""")


@pytest.mark.parametrize("source", one_in(3, REDUCTIONS))
def test_reductions_as_jaxs(source):
    check_jax(source, x=X)


ATS = rows("""
    n.add.at(x, n.array([0, 0, 2]), 1.5, inplace=False)
    n.add.at(x > 0, (0, n.array([0, 0])), True, inplace=False)
    n.multiply.at(x, (n.array([0, 0]), n.array([1, 1])), n.array([2.0, 3.0]), inplace=False)
    n.subtract.at(x, 1, x[0], inplace=False)
    n.maximum.at(x, n.array([0, 0, 2]), x * 2, inplace=False)
    n.negative.at(x, n.array([0, 0, 2]), inplace=False)
""")


@pytest.mark.parametrize("source", one_in(2, ATS))
def test_at(source):
    make = function(source, "x")
    check(make, X, jaxpr=False, jitted=False)


ERRORS = rows("""
    n.add.at(x, 0, 1.0)
    n.negative.reduce(x)
    n.negative.outer(x, x)
    n.frompyfunc(lambda a, b: (a, b), 2, 2).accumulate(x)
    n.add(x, x, out=x)
    n.add(x, x, where=x > 0)
    n.add.reduce(x, out=())
    n.subtract.reduce(x, where=x > 0)
    n.add.reduce(x, where=x)
    n.subtract.reduce(x, axis=(0, 1))
    n.subtract.reduce(x[:0])
    n.subtract.accumulate(x, axis=None)
    n.bitwise_or.reduce(x)
    n.add.reduceat(x, n.array([[0]]))
    n.add.reduceat(x, n.array([0]), axis=None)
    n.add.outer(x, [1])
    n.add([1], x)
    n.frompyfunc(lambda a: a, 1, 1)([1])
""")


@pytest.mark.parametrize("source", ERRORS)
def test_errors(source):
    check_error(source, x=X)


def test_frompyfunc():
    def make(J):
        fused = J.numpy.frompyfunc(lambda x, y: x * y + 1, 2, 1, identity=0)
        return lambda x: (
            fused(x, 2.0), fused.reduce(x, axis=1), fused.accumulate(x), fused.outer(x[0], x[1]),
            fused.reduceat(x, np.array([0, 2]), axis=1), fused.at(x, np.array([0, 0, 1]), 2.0, inplace=False),
        )  # fmt: skip

    check(make, X, jaxpr=False, jitted=False, rtol=1e-6)


def test_ufuncs_leave_no_trace_and_have_gradients():
    check(lambda J: lambda x: J.numpy.add(x, 1.0), X, eager=False, jitted=False)
    slope = OURS.grad(lambda x: OURS.numpy.multiply.reduce(x))(np.array([2.0, 3.0, 4.0], np.float32))
    np.testing.assert_array_equal(slope, [12, 8, 6])
