"""``mpijax.extend.source_info_util``: source lines of operations."""

from contextlib import AbstractContextManager
from typing import Any

from mpijax import missing as _missing
from mpijax.core.source import Source as SourceInfo
from mpijax.core.source import current_source as current
from mpijax.core.source import register_exclusion, sources_from

__all__ = ["SourceInfo", "current", "register_exclusion", "summarize", "user_context"]


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """`file:line (function)` of the innermost user frame, the only one that is stored.

    >>> mpijax.extend.source_info_util.summarize(mpijax.extend.source_info_util.SourceInfo("model.py", 7, "step"))
    'model.py:7 (step)'
    """
    return str(source_info)


def user_context(traceback: SourceInfo | None, *, name_stack: Any = None) -> AbstractContextManager[None]:
    """Operations inside get the source line `traceback`; with None, the line being executed.

    Evaluators of Jaxprs pass `eqn.source_info.traceback`. `name_stack` is ignored.

    >>> info = mpijax.extend.source_info_util
    >>> with info.user_context(info.SourceInfo("model.py", 7, "step").traceback):
    ...     print(info.summarize(info.current()))
    model.py:7 (step)
    """
    return sources_from(traceback)


def __getattr__(name: str):
    raise _missing.error(__name__, name)
