"""``mpijax.extend.source_info_util``: which lines of a program are said to be the user's."""

from mpijax import missing as _missing
from mpijax.core.source import Source as SourceInfo
from mpijax.core.source import current_source as current
from mpijax.core.source import register_exclusion

__all__ = ["SourceInfo", "current", "register_exclusion", "summarize"]


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """`file:line (function)` of the innermost of the user's frames, which is the one that is kept.

    >>> mpijax.extend.source_info_util.summarize(mpijax.extend.source_info_util.SourceInfo("model.py", 7, "step"))
    'model.py:7 (step)'
    """
    return str(source_info)


def __getattr__(name: str):
    raise _missing.error(__name__, name)
