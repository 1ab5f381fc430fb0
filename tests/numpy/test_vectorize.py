"""jnp.vectorize: values, shapes and errors beside JAX."""

from functools import partial

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, run, sample
from quickly import one_in

X3, X23, X34, X234 = sample(3), sample(2, 3), sample(3, 4), sample(2, 3, 4)


def matvec(J):
    return J.numpy.vectorize(J.numpy.matmul, signature="(m,n),(n)->(m)")


CASES = {
    "scalars": (lambda J: J.numpy.vectorize(lambda x, y: x + y * 2), (X23, X3)),
    "broadcast": (lambda J: J.numpy.vectorize(lambda x, y: x * y), (X23[:, :, None], X34[:1])),
    "sizes of one": (lambda J: J.numpy.vectorize(lambda x: x.sum(), signature="(n)->()"), (sample(1, 1, 3),)),
    "matrix and vector": (matvec, (X234, sample(2, 4))),
    "shared matrix": (matvec, (X34, sample(5, 2, 4))),
    "several results": (
        lambda J: J.numpy.vectorize(lambda x: (x.max(), x * 2), signature="(n)->(),(n)"),
        (X23,),
    ),
    "new dimension": (lambda J: J.numpy.vectorize(lambda x: J.numpy.outer(x, x)[:2], signature="(n)->(k,n)"), (X23,)),
    "excluded position": (lambda J: J.numpy.vectorize(lambda s, x: x * len(s), excluded={0}), ("abc", X3)),
    "excluded name": (
        lambda J: lambda x: J.numpy.vectorize(lambda x, *, s: x * len(s), excluded={"s"})(x, s="ab"),
        (X3,),
    ),
    "none": (lambda J: lambda x: J.numpy.vectorize(lambda x, y: x if y is None else y)(x, None), (X3,)),
    "keyword": (lambda J: lambda x: J.numpy.vectorize(lambda x, y=1.0: x * y)(x, y=3.0), (X3,)),
    "gradient": (lambda J: J.grad(lambda a: matvec(J)(a, X3).sum()), (X23,)),
    "bad signature": (lambda J: J.numpy.vectorize(lambda x: x, signature="(n)(n)"), (X3,)),
    "core sizes differ": (matvec, (X34, X3)),
    "too few dimensions": (matvec, (X3, X3)),
    "too many arguments": (matvec, (X34, X3, X3)),
    "one result of two": (lambda J: J.numpy.vectorize(lambda x: x, signature="(n)->(n),(n)"), (X3,)),
    "two results of one": (lambda J: J.numpy.vectorize(lambda x: (x, x), signature="(n)->(n)"), (X3,)),
    "result of another rank": (lambda J: J.numpy.vectorize(lambda x: x.sum(), signature="(n)->(n)"), (X3,)),
    "result of another size": (lambda J: J.numpy.vectorize(lambda x: x[:1], signature="(n)->(n)"), (X3,)),
    "negative exclusion": (lambda J: J.numpy.vectorize(lambda x: x, excluded={-1}), (X3,)),
    "excluded object": (lambda J: J.numpy.vectorize(lambda x: x, excluded={1.5}), (X3,)),
}


@pytest.mark.parametrize("name", one_in(3, CASES))
def test_vectorize_is_jaxs(name):
    make, args = CASES[name]
    check(lambda J: lambda *xs: make(J)(*xs), *args, jaxpr=False, jitted=False, rtol=1e-6)


def test_messages_are_jaxs():
    for name in ("bad signature", "core sizes differ", "two results of one", "result of another rank"):
        make, args = CASES[name]
        theirs, ours = (run(partial(make(J), *args))[2] for J in (THEIRS, OURS))
        assert ours == theirs


def test_against_numpy():
    f = OURS.numpy.vectorize(lambda x, y: OURS.numpy.maximum(x, y) - y)
    expected = np.vectorize(lambda x, y: max(x, y) - y)(X23, X3)
    np.testing.assert_allclose(f(X23, X3), expected)
