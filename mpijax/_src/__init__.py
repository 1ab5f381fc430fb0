"""Names of ``jax._src`` that published libraries import although they are private, where mpijax has what they mean.

They are here for those libraries alone: nothing in mpijax imports this package, and all of it is public elsewhere or
belongs to `mpijax.core` and `mpijax.transforms`. They are there without an import of their modules, as in JAX.
"""

import importlib as _importlib
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    try:
        return _importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
