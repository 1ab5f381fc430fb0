"""Random numbers from explicit keys: the same key gives the same numbers, JAX's, bit by bit.

key = random.key(0)
key, subkey = random.split(key)
x = random.normal(subkey, (3,))
"""

import mpijax.random.generators  # noqa: F401  (makes them known)
from mpijax.ops.random.gamma import random_gamma_p as random_gamma_p
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
from mpijax.random.counting import binomial, multinomial, poisson
from mpijax.random.gammas import ball, beta, chisquare, dirichlet, f, gamma, generalized_normal, loggamma, t
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
from mpijax.random.matrices import multivariate_normal, orthogonal
from mpijax.random.uniform import bernoulli, bits, randint, uniform

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice",
    "clone", "dirichlet", "double_sided_maxwell", "exponential", "f", "fold_in", "gamma", "generalized_normal",
    "geometric", "gumbel", "key", "key_data", "key_dtype", "key_impl", "laplace", "loggamma", "logistic",
    "lognormal", "maxwell", "multinomial", "multivariate_normal", "normal", "orthogonal", "pareto", "permutation",
    "poisson", "rademacher", "randint", "random_gamma_p", "rayleigh", "split", "t", "triangular",
    "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data",
]  # fmt: skip
