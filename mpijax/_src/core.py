"""Types, programs and traces."""

from mpijax.core import *  # noqa: F403
from mpijax.core.errors import ShardingTypeError
from mpijax.core.trace import state as trace_ctx
from mpijax.core.trace import trace_state_clean, typeof
from mpijax.extend.core import *  # noqa: F403

__all__ = ["ShardingTypeError", "get_aval", "trace_ctx", "trace_state_clean", "typeof"]

get_aval = typeof
