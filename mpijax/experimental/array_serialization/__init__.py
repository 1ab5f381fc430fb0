"""``mpijax.experimental.array_serialization``: JAX's names for saving pytrees of arrays.

The files are those of `mpijax.checkpoint`. Programs that are written for mpijax use that module directly.
"""

import importlib as _importlib
from typing import Any

from mpijax import missing as _missing

_MODULES = ("pytree_serialization", "serialization", "tensorstore_impl")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise _missing.error(__name__, name)
    return _importlib.import_module(f"{__name__}.{name}")
