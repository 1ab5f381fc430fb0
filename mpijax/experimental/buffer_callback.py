"""``jax.experimental.buffer_callback``: Python functions that write their results into the program's memory."""

from mpijax.ops.callbacks.buffer_callback import Buffer, ExecutionContext, ExecutionStage, buffer_callback

__all__ = ["Buffer", "ExecutionContext", "ExecutionStage", "buffer_callback"]
