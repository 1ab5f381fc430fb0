"""``mpijax.extend``: define operations outside mpijax, and inspect programs.

`core` has the names of ``jax.extend.core``, `core.primitives` mpijax's own primitives, `lowering` the lowering records
of primitives, `sharding` the rules for sharded operands, `keys` the rules for PRNG keys, `linear_util` functions with
a stack of transformations. ``docs/custom-operations.md`` and ``docs/add-a-primitive.md`` are tutorials for these
packages.
"""

import importlib as _importlib

from mpijax import missing as _missing
from mpijax.extend import core as core
from mpijax.extend import keys as keys
from mpijax.extend import linear_util as linear_util
from mpijax.extend import lowering as lowering
from mpijax.extend import sharding as sharding
from mpijax.extend import source_info_util as source_info_util

__all__ = ["backend", "core", "keys", "linear_util", "lowering", "random", "sharding", "source_info_util"]


def __getattr__(name: str):
    if name in ("backend", "random"):  # deferred: they need the runtime, which the others do not need
        return _importlib.import_module(f"mpijax.extend.{name}")
    raise _missing.error(__name__, name)
