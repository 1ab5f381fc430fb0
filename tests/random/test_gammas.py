"""Samplers that loop or factorize: JAX's values up to rounding, and its derivatives."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import numpy as np
import pytest
from oracle import OURS, THEIRS, check

F32 = np.float32
COV = np.array([[2, 0.5], [0.5, 1]], F32)
SHARES = np.array([0.2, 0.3, 0.5], F32)

# Name, arguments. Counts are whole numbers: equal, unless JAX's and our logarithms round a draw apart.
CASES = [
    ("gamma", (np.array([0.3, 1, 5], F32), (2, 3))), ("gamma", (1.0, (3,), int)),
    ("gamma", (np.ones(3), (2,))), ("loggamma", (0.01, (4,))), ("beta", (0.5, 2.0, (3,))),
    ("dirichlet", (np.array([0.5, 1, 3], F32), (2,))), ("dirichlet", (1.0,)),
    ("f", (np.array([3.0, 2.0], F32), 4.0)), ("t", (3.0, (4,))),
    ("ball", (3, 2, (2,))), ("poisson", (np.array([0, 1, 30, 1000, -1], F32),)), ("poisson", (3.0, (3,), np.int16)),
    ("binomial", (np.array([100, 1000, 3, -1, np.inf, 3], F32), np.array([0.3, 0.9, 0.5, 0.5, 0.5, np.nan], F32))),
    ("multinomial", (10, SHARES)),
    ("multivariate_normal", (np.zeros(2, F32), COV, (3,))), ("multivariate_normal", (0.0, COV)),
    ("multivariate_normal", (np.zeros(2, F32), COV, (3,), None, "bad")),
    ("multivariate_normal", (np.zeros(3, F32), COV)), ("orthogonal", (2, (2,), None, 3)),
    ("orthogonal", (3, (), np.complex64)),
]  # fmt: skip


# The others are made of gamma; their derivatives and docstrings have values, too.
OFTEN = ("gamma", "dirichlet", "poisson", "binomial", "multivariate_normal", "orthogonal")


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c[0], marks=() if c[0] in OFTEN else pytest.mark.slow) for c in CASES]
)
@pytest.mark.one_in(3)
def test_values(case):
    name, args = case
    check(
        lambda J: lambda seed: getattr(J.random, name)(J.random.key(seed), *args),
        3, jaxpr=False, jitted=False, rtol=1e-4, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("method", ["eigh", "svd"])
def test_square_roots_of_covariances(method):
    """Each has its own signs; the distribution is the same."""
    draw = OURS.random.multivariate_normal(OURS.random.key(0), np.ones(2, F32), COV, (20_000,), method=method)
    np.testing.assert_allclose(np.mean(draw, 0), np.ones(2), atol=0.05)
    np.testing.assert_allclose(np.cov(draw, rowvar=False), COV, atol=0.1)


@pytest.mark.parametrize("name", ["gamma", pytest.param("loggamma", marks=pytest.mark.slow)])
def test_derivatives_of_gamma(name):
    a = np.array([0.3, 1.0, 5.0, 40.0], F32)
    slopes = [J.grad(lambda a: getattr(J.random, name)(J.random.key(1), a).sum())(a) for J in (THEIRS, OURS)]
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=2e-4)


def test_gamma_of_many_keys_is_that_of_each():
    keys = OURS.random.split(OURS.random.key(0), 3)
    batched = OURS.vmap(lambda key: OURS.random.gamma(key, 2.5, (4,)))(keys)
    each = np.stack([OURS.random.gamma(key, 2.5, (4,)) for key in keys])
    np.testing.assert_array_equal(batched, each)
    text = str(OURS.make_jaxpr(lambda key: OURS.random.gamma(key, 2.5))(keys[0]))
    assert "random_gamma[log_space=False]" in text


def test_orthogonal_matrices():
    q = OURS.random.orthogonal(OURS.random.key(0), 4, (3,))
    np.testing.assert_allclose(q @ q.mT, np.broadcast_to(np.eye(4), (3, 4, 4)), atol=1e-5)


def test_all_of_jaxs_names():
    theirs = {name for name in dir(THEIRS.random) if not name.startswith("_")}
    assert theirs - set(dir(OURS.random)) == set()
