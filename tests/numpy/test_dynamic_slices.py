"""Indices made by `ds`, whose start may be traced: against JAX."""

import numpy as np
import pytest
from oracle import OURS, THEIRS

X = np.arange(10, dtype=np.int32)
Y = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
STARTS = [0, 4, 7, 8, 12, -1, -3, -20]

READS = {
    "one": lambda J, i: J.numpy.asarray(X)[J.ds(i, 3)],
    "stride": lambda J, i: J.numpy.asarray(X)[J.ds(i, 3, 2)],
    "beside an int": lambda J, i: J.numpy.asarray(Y)[0, :, J.ds(i, 2)],
    "before a slice": lambda J, i: J.numpy.asarray(Y)[J.ds(i, 1), 1:],
    "two": lambda J, i: J.numpy.asarray(Y)[J.ds(i, 1), :, J.ds(i, 2)],
    "beside an array": lambda J, i: J.numpy.asarray(Y)[:, np.array([0, 1]), J.ds(i, 2)],
    "beside None and dots": lambda J, i: J.numpy.asarray(Y)[None, ..., J.ds(i, 3)],
    "of a reference": lambda J, i: J.new_ref(J.numpy.asarray(X))[J.ds(i, 2)],
}
WRITES = {
    "set": lambda J, i: J.numpy.asarray(X).at[J.ds(i, 3)].set(-1),
    "add": lambda J, i: J.numpy.asarray(X).at[J.ds(i, 3)].add(np.arange(3, dtype=np.int32)),
    "rows": lambda J, i: J.numpy.asarray(Y).at[:, J.ds(i, 2)].set(7.0),
    "last axis": lambda J, i: J.numpy.asarray(Y).at[..., J.ds(i, 2)].multiply(2.0),
}


def outcomes(J, f):
    run = J.jit(lambda i: f(J, i))
    return [np.asarray(run(i)) for i in STARTS]


@pytest.mark.parametrize("name", [*READS, *WRITES])
@pytest.mark.one_in(3)
def test_values_are_jaxs(name):
    f = {**READS, **WRITES}[name]
    for ours, theirs in zip(outcomes(OURS, f), outcomes(THEIRS, f), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_known_starts_give_the_same():
    for name in ("one", "two", "beside an int"):
        for i in STARTS:
            np.testing.assert_array_equal(READS[name](OURS, i), OURS.jit(lambda i, n=name: READS[n](OURS, i))(i))
    np.testing.assert_array_equal(OURS.numpy.asarray(X)[OURS.ds(None)], X)
    np.testing.assert_array_equal(OURS.numpy.asarray(X)[OURS.ds(4)], X[:4])
    assert OURS.numpy.asarray(X)[OURS.ds(3, 0)].shape == (0,)
    for args in ((3,), (2, 3), (2, 3, 2), (None,)):
        assert repr(OURS.ds(*args)) == repr(THEIRS.ds(*args))


def test_jaxprs_are_jaxs():
    texts = [str(J.make_jaxpr(lambda x, i, J=J: x[J.ds(i, 3)])(X, 1)) for J in (OURS, THEIRS)]
    assert texts[0] == texts[1]


def test_references_are_written():
    def f(J, i):
        ref = J.new_ref(J.numpy.asarray(X))
        ref[J.ds(i, 2)] = J.numpy.full(2, 100, "int32")
        return ref[...]

    for i in (0, 3, 8):
        np.testing.assert_array_equal(*(J.jit(lambda i, J=J: f(J, i))(i) for J in (OURS, THEIRS)))


def test_gradients_go_through():
    def f(J):
        return J.grad(lambda y, i: (y[:, J.ds(i, 2)] ** 2).sum())(Y, 1)

    np.testing.assert_array_equal(f(OURS), f(THEIRS))


def test_what_does_not_fit_is_told():
    x = OURS.numpy.asarray(X)
    with pytest.raises(ValueError, match="Non-static stride"):
        OURS.ds(0, 2, 1.5)
    with pytest.raises(ValueError, match="stride of at least 1"):
        OURS.ds(0, 2, 0)
    with pytest.raises(TypeError):
        OURS.jit(lambda n: x[OURS.ds(0, n)])(2)
    with pytest.raises(IndexError, match="spans 11 elements"):
        x[OURS.ds(0, 11)]
    with pytest.raises(NotImplementedError, match="dynamic_update_slice"):
        OURS.numpy.asarray(Y).at[0, OURS.ds(0, 2)].set(1.0)
