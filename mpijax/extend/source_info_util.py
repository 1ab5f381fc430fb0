"""``mpijax.extend.source_info_util``: source lines of operations."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from mpijax import missing as _missing
from mpijax.core.base.source import (
    NO_SCOPES,
    UNKNOWN,
    NameStack,
    in_scope,
    inherited,
    register_exclusion,
    sources_from,
    transforming,
)
from mpijax.core.base.source import Source as SourceInfo
from mpijax.core.base.source import current_source as current

__all__ = [
    "NameStack", "SourceInfo", "current", "current_name_stack", "extend_name_stack", "new_name_stack",
    "new_source_info", "register_exclusion", "reset_name_stack", "set_name_stack", "summarize",
    "transform_name_stack", "user_context",
]  # fmt: skip


def current_name_stack() -> NameStack:
    """The scopes and transformations around the line being executed.

    >>> with mpijax.named_scope("layer"):
    ...     str(mpijax.extend.source_info_util.current_name_stack())
    'layer'
    """
    return inherited.scope


def new_name_stack(name: str = "") -> NameStack:
    """A stack with the scope `name`, or an empty one.

    >>> info = mpijax.extend.source_info_util
    >>> str(info.new_name_stack("model").transform("vmap").extend("layer"))
    'model/vmap(layer)'
    """
    return NO_SCOPES.extend(name) if name else NO_SCOPES


@contextmanager
def extend_name_stack(name: str) -> Iterator[NameStack]:
    """Operations inside are in the scope `name`, inside the current ones. A context manager and a decorator.

    >>> with mpijax.extend.source_info_util.extend_name_stack("layer") as stack:
    ...     str(stack)
    'layer'
    """
    with in_scope(inherited.scope.extend(name)):
        yield inherited.scope


@contextmanager
def transform_name_stack(name: str) -> Iterator[NameStack]:
    """Operations inside are those of a function under the transformation `name`. A context manager and a decorator.

    >>> info = mpijax.extend.source_info_util
    >>> with info.transform_name_stack("double"), info.extend_name_stack("layer") as stack:
    ...     str(stack)
    'double(layer)'
    """
    with transforming(name):
        yield inherited.scope


def set_name_stack(name_stack: NameStack) -> AbstractContextManager[None]:
    """Operations inside are in the scopes `name_stack` alone. A context manager and a decorator.

    >>> info = mpijax.extend.source_info_util
    >>> with mpijax.named_scope("outer"), info.set_name_stack(info.new_name_stack("layer")):
    ...     str(info.current_name_stack())
    'layer'
    """
    return in_scope(name_stack)


def reset_name_stack() -> AbstractContextManager[None]:
    """Operations inside are in no scope. A context manager and a decorator.

    >>> info = mpijax.extend.source_info_util
    >>> with mpijax.named_scope("outer"), info.reset_name_stack():
    ...     str(info.current_name_stack())
    ''
    """
    return in_scope(NO_SCOPES)


def new_source_info() -> SourceInfo:
    """An unknown source line without scopes.

    >>> mpijax.extend.source_info_util.summarize(mpijax.extend.source_info_util.new_source_info())
    'unknown'
    """
    return UNKNOWN


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """`file:line (function)` of the innermost user frame, the only one that is stored.

    >>> mpijax.extend.source_info_util.summarize(mpijax.extend.source_info_util.SourceInfo("model.py", 7, "step"))
    'model.py:7 (step)'
    """
    return str(source_info)


@contextmanager
def user_context(traceback: SourceInfo | None, *, name_stack: NameStack | None = None) -> Iterator[None]:
    """Operations inside get the source line `traceback` (None: the line being executed) and the scopes `name_stack`.

    Evaluators of Jaxprs pass `eqn.source_info.traceback` and `current_name_stack() + eqn.source_info.name_stack`.
    Without `name_stack`, operations are in the current scopes.

    >>> info = mpijax.extend.source_info_util
    >>> with info.user_context(info.SourceInfo("model.py", 7, "step").traceback):
    ...     print(info.summarize(info.current()))
    model.py:7 (step)
    """
    scope = inherited.scope if name_stack is None else name_stack
    with sources_from(traceback), in_scope(scope):
        yield


def __getattr__(name: str):
    raise _missing.error(__name__, name)
