"""Defines `platform_index`: selects the list of platforms that contains the present platform."""

from __future__ import annotations

import numpy as np

from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.families import NOT_LINEAR

PLATFORM = "cpu"


def _index(*, platforms) -> np.int32:
    """The index of the first entry that contains the platform. None, as the last entry, matches all platforms."""
    for i, names in enumerate(platforms):
        if names is None or PLATFORM in names:
            return np.int32(i)
    raise NotImplementedError(
        f"translation rule of platform_dependent not found for platform {PLATFORM}: it has branches for "
        f"{sorted(n for names in platforms for n in names)}. Add {PLATFORM}=function or default=function."
    )


platform_index_p = Primitive(
    "platform_index",
    type_rule=lambda *, platforms: ShapedArray((), np.dtype(np.int32)),
    reference=_index,
    lower=Decompose(_index),
    jvp=NOT_LINEAR,
    transpose=NOT_LINEAR,
    batch=NOT_LINEAR,
)
platform_index_p.impl = _index
