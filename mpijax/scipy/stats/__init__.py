"""Distributions, each a module of functions, and statistics of samples. A module is loaded at its first use."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from mpijax.faces import Face

__all__ = [
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gaussian_kde",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "mode",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "rankdata",
    "sem",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
]

# Where the functions live; all other names are modules.
_FUNCTIONS = {"gaussian_kde": "kde", "mode": "samples", "rankdata": "samples", "sem": "samples"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mpijax.scipy.stats' has no attribute {name!r}")
    module = importlib.import_module(f"mpijax.scipy.stats.{_FUNCTIONS.get(name, name)}")
    if name not in _FUNCTIONS:
        return module
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = Face
