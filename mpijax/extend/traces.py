"""Access to the current trace, for user-defined interpreters and for libraries with state between calls."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mpijax.core.base.state import state
from mpijax.core.tracing.jaxpr_trace import JaxprTrace
from mpijax.core.tracing.trace import EVAL, Trace, current_trace
from mpijax.transforms.batching import BatchTrace


class TraceTag:
    """Identifies the tracers of one use of a transformation. All tags are equal, so they do not affect caches.

    >>> mpijax.extend.core.TraceTag() == mpijax.extend.core.TraceTag()
    True
    """

    def __hash__(self) -> int:
        return hash(TraceTag)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceTag)


class OpaqueTraceState:
    """The trace that was current. Two are equal if it was the same trace, which must still be alive."""

    __slots__ = ("_trace", "_name")

    def __init__(self, trace: Trace):
        self._trace = weakref.ref(trace)
        self._name = type(trace).__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._trace == other._trace and self._trace() is not None

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"OpaqueTraceState({self._name})"


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """A value to compare later, to find out whether a transformation has started or ended.

    >>> mpijax.extend.core.get_opaque_trace_state() == mpijax.extend.core.get_opaque_trace_state()
    True
    """
    return OpaqueTraceState(state.trace)


def find_top_trace(_values: Any = ()) -> Trace:
    """The current trace.

    >>> type(mpijax.extend.core.find_top_trace()).__name__
    'EvalTrace'
    """
    return state.trace


def set_current_trace(trace: Trace):
    """Inside, `trace` processes operations.

    >>> with mpijax.extend.core.take_current_trace() as trace, mpijax.extend.core.set_current_trace(trace):
    ...     jnp.arange(3) + 1
    Array([1, 2, 3], dtype=int32)
    """
    return current_trace(trace)


@contextmanager
def take_current_trace() -> Iterator[Trace]:
    """Yields the current trace. Operations inside go to the trace that `set_current_trace` sets there.

    >>> with mpijax.extend.core.take_current_trace() as trace:
    ...     type(trace).__name__
    'EvalTrace'
    """
    outer = state.trace
    with current_trace(EVAL):
        yield outer


def nonempty_axis_env() -> bool:
    """Whether axis names are in scope.

    >>> mpijax.extend.core.nonempty_axis_env_DO_NOT_USE()
    False
    """
    return bool(state.axis_env)


def unsafe_get_axis_names() -> list[Any]:
    """The axis names in scope, outermost first.

    >>> show = lambda x: print(mpijax.extend.core.unsafe_get_axis_names_DO_NOT_USE())
    >>> mpijax.vmap(show, axis_name="i")(jnp.arange(2))
    ['i']
    """
    return list(state.axis_env)


def _stack() -> Iterator[Trace]:
    trace: Trace | None = state.trace
    while trace is not None:
        yield trace
        trace = trace.parent


def unsafe_am_i_under_a_jit() -> bool:
    """Whether operations are being recorded in a program.

    >>> mpijax.extend.core.unsafe_am_i_under_a_jit_DO_NOT_USE()
    False
    """
    return any(isinstance(t, JaxprTrace) for t in _stack())


def unsafe_am_i_under_a_vmap() -> bool:
    """Whether operations are being batched.

    >>> mpijax.extend.core.unsafe_am_i_under_a_vmap_DO_NOT_USE()
    False
    """
    return any(isinstance(t, BatchTrace) for t in _stack())
