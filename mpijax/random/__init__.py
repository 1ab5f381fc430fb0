"""Random numbers from explicit keys: the same key gives the same numbers, JAX's, bit by bit.

    key = random.key(0)
    key, subkey = random.split(key)
    x = random.normal(subkey, (3,))
"""

from mpijax.random.choosing import categorical as categorical, choice as choice, permutation as permutation
from mpijax.random.continuous import (
    cauchy as cauchy,
    double_sided_maxwell as double_sided_maxwell,
    exponential as exponential,
    geometric as geometric,
    gumbel as gumbel,
    laplace as laplace,
    logistic as logistic,
    lognormal as lognormal,
    maxwell as maxwell,
    normal as normal,
    pareto as pareto,
    rademacher as rademacher,
    rayleigh as rayleigh,
    triangular as triangular,
    truncated_normal as truncated_normal,
    wald as wald,
    weibull_min as weibull_min,
)
from mpijax.random.keys import (
    PRNGKey as PRNGKey,
    clone as clone,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    key_dtype as key_dtype,
    key_impl as key_impl,
    split as split,
    wrap_key_data as wrap_key_data,
)
from mpijax.random.uniform import bernoulli as bernoulli, bits as bits, randint as randint, uniform as uniform
