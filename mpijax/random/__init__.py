"""Random numbers from explicit keys: the same key gives the same numbers, JAX's, bit by bit.

key = random.key(0)
key, subkey = random.split(key)
x = random.normal(subkey, (3,))
"""

# ruff: noqa: F401
from mpijax.random.choosing import categorical, choice, permutation
from mpijax.random.continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    geometric,
    gumbel,
    laplace,
    logistic,
    lognormal,
    maxwell,
    normal,
    pareto,
    rademacher,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull_min,
)
from mpijax.random.keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from mpijax.random.uniform import bernoulli, bits, randint, uniform

# Samplers of JAX that need loops or linear algebra.
_MISSING = frozenset(
    """ball beta binomial chisquare dirichlet f gamma generalized_normal loggamma multinomial
    multivariate_normal orthogonal poisson t""".split()
)


def __getattr__(name: str):
    if name in _MISSING:
        raise AttributeError(f"mpijax.random does not have {name} yet (jax.random has it)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
