"""Evaluates operations on concrete values while a function is traced."""

from __future__ import annotations

from contextlib import contextmanager

from mpijax.core.base.state import state
from mpijax.core.tracing.trace import EVAL, Trace, current_trace
from mpijax.core.tracing.tracer import Tracer


class FoldingTrace(Trace):
    """Runs operations on concrete values immediately, and passes operations on tracers to its parent."""

    __slots__ = ()

    def recorder(self) -> None:
        return None

    def _for(self, args) -> Trace:
        return self.parent if any(isinstance(x, Tracer) for x in args) else EVAL  # type: ignore[return-value]

    def records(self, args) -> bool:
        return self._for(args).records(args)

    def process_primitive(self, primitive, args, params):
        with current_trace(self._for(args)) as trace:
            return trace.process_primitive(primitive, args, params)

    def process_custom_call(self, call, args):
        with current_trace(self._for(args)) as trace:
            return trace.process_custom_call(call, args)


@contextmanager
def ensure_compile_time_eval():
    """Inside, operations on concrete arrays run immediately, even during tracing.

    Their results can decide a Python `if`, a shape or a table that the traced function then uses as a constant.
    Operations on traced values are traced as usual.

    >>> @mpijax.jit
    ... def f(x):
    ...     with mpijax.ensure_compile_time_eval():
    ...         small = jnp.max(jnp.arange(3)) < 5
    ...     return x if small else -x
    >>> f(jnp.arange(2))
    Array([0, 1], dtype=int32)
    """
    with current_trace(EVAL if state.trace is EVAL else FoldingTrace(state.trace)):
        yield
