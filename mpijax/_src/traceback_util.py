"""Which files belong to libraries, so that messages name the user's own lines."""

import types

from mpijax.core.base.source import excluded as _exclude_paths
from mpijax.core.base.source import is_internal, register_exclusion

__all__ = ["_exclude_paths", "api_boundary", "include_frame", "register_exclusion"]


def include_frame(f: types.FrameType) -> bool:
    """Whether a frame is the user's."""
    return not is_internal(f.f_code)


def api_boundary(fun, **_options):
    """`fun`: errors of mpijax name the user's line themselves, and tracebacks are left as they are."""
    return fun
