"""Types, programs and traces."""

from typing import Any

from mpijax.core import *  # noqa: F403
from mpijax.core.base.errors import ShardingTypeError
from mpijax.core.base.state import state as trace_ctx
from mpijax.core.tracing.trace import trace_state_clean
from mpijax.core.types.typeof import typeof
from mpijax.extend.core import *  # noqa: F403

__all__ = ["ShardingTypeError", "full_lower", "get_aval", "trace_ctx", "trace_state_clean", "typeof"]

get_aval = typeof


def full_lower(x: Any) -> Any:
    """A value without tracers that a library says stand for another one."""
    lower = getattr(x, "full_lower", None)
    return x if lower is None else lower()
