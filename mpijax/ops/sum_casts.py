"""Types replicated values as those with pending sums, by the casts of `ops/collectives/pending_sums.py`."""

from __future__ import annotations

from typing import Any

from mpijax.core.rules.registry import registry
from mpijax.core.types.avals import ShapedArray


def cast_sums(x: Any, aval: ShapedArray) -> Any:
    """The replicated value `x`, typed as unreduced and reduced as `aval` inside `shard_map`. It must be zero if that is
    unreduced."""
    mat = aval.mat
    if mat.unreduced:
        x = registry["pvary"].bind(x, axes=_ordered(mat.unreduced))
        x = registry["vary_unreduced_cast_p"].bind(x, axes=_ordered(mat.unreduced))
    return registry["preduced"].bind(x, axes=_ordered(mat.reduced)) if mat.reduced else x


def _ordered(names: frozenset) -> tuple:
    return tuple(sorted(names, key=str))
