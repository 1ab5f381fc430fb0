"""Distributions, each a module of functions, and statistics of samples. Loaded when first used."""

from __future__ import annotations

import importlib
from typing import Any

_DISTRIBUTIONS = """
    bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace
    logistic multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises
    wrapcauchy""".split()
_FUNCTIONS = {"gaussian_kde": "kde", "mode": "samples", "rankdata": "samples", "sem": "samples"}

__all__: list[str] = []
__all__ += _DISTRIBUTIONS
__all__ += _FUNCTIONS


def __getattr__(name: str) -> Any:
    if name in _DISTRIBUTIONS:
        return importlib.import_module(f"mpijax.scipy.stats.{name}")
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'mpijax.scipy.stats' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"mpijax.scipy.stats.{_FUNCTIONS[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
