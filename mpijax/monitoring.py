"""``mpijax.monitoring``: named events, and functions that are called for each.

mpijax reports none of its own yet: programs use it for theirs, and listeners of other libraries can be registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "clear_event_listeners", "record_event", "record_event_duration_secs", "record_event_time_span", "record_scalar",
    "register_event_duration_secs_listener", "register_event_listener", "register_event_time_span_listener",
    "register_scalar_listener", "unregister_event_duration_listener", "unregister_event_listener",
    "unregister_event_time_span_listener", "unregister_scalar_listener",
]  # fmt: skip

_listeners: dict[str, list[Callable]] = {"event": [], "duration": [], "time span": [], "scalar": []}


def _tell(kind: str, *args: Any, **kwargs: Any) -> None:
    for listener in tuple(_listeners[kind]):
        listener(*args, **kwargs)


def _forget(kind: str, callback: Callable) -> None:
    if callback not in _listeners[kind]:
        raise ValueError(f"{callback!r} is not registered as a listener of {kind} events.")
    _listeners[kind].remove(callback)


def record_event(event: str, **kwargs: str | int) -> None:
    """Something happened: calls `listener(event, **kwargs)`.

    >>> mpijax.monitoring.record_event("/app/checkpoint")
    """
    _tell("event", event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Something took `duration` seconds: calls `listener(event, duration, **kwargs)`.

    >>> mpijax.monitoring.record_event_duration_secs("/app/load", 1.5)
    """
    _tell("duration", event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: str | int) -> None:
    """Something lasted from one time to another: calls `listener(event, start_time, end_time, **kwargs)`.

    >>> mpijax.monitoring.record_event_time_span("/app/load", 10.0, 11.5)
    """
    _tell("time span", event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """A number was measured: calls `listener(event, value, **kwargs)`.

    >>> mpijax.monitoring.record_scalar("/app/loss", 0.25)
    """
    _tell("scalar", event, value, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Call it for every `record_event`.

    >>> listener = lambda event, **details: print(event, details)
    >>> mpijax.monitoring.register_event_listener(listener)
    >>> mpijax.monitoring.record_event("/app/checkpoint", step=3)
    /app/checkpoint {'step': 3}
    >>> mpijax.monitoring.unregister_event_listener(listener)
    """
    _listeners["event"].append(callback)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Call it for every `record_event_duration_secs`.

    >>> listener = lambda event, duration, **details: print(event, duration)
    >>> mpijax.monitoring.register_event_duration_secs_listener(listener)
    >>> mpijax.monitoring.record_event_duration_secs("/app/load", 1.5)
    /app/load 1.5
    >>> mpijax.monitoring.unregister_event_duration_listener(listener)
    """
    _listeners["duration"].append(callback)


def register_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Call it for every `record_event_time_span`.

    >>> listener = lambda event, start, end, **details: print(event, end - start)
    >>> mpijax.monitoring.register_event_time_span_listener(listener)
    >>> mpijax.monitoring.record_event_time_span("/app/load", 10.0, 11.5)
    /app/load 1.5
    >>> mpijax.monitoring.unregister_event_time_span_listener(listener)
    """
    _listeners["time span"].append(callback)


def register_scalar_listener(callback: Callable[..., None]) -> None:
    """Call it for every `record_scalar`.

    >>> listener = lambda event, value, **details: print(event, value)
    >>> mpijax.monitoring.register_scalar_listener(listener)
    >>> mpijax.monitoring.record_scalar("/app/loss", 0.25)
    /app/loss 0.25
    >>> mpijax.monitoring.unregister_scalar_listener(listener)
    """
    _listeners["scalar"].append(callback)


def unregister_event_listener(callback: Callable[..., None]) -> None:
    """Raises ValueError where it is not registered, as all of these do.

    >>> listener = lambda event, **details: print(event)
    >>> mpijax.monitoring.register_event_listener(listener)
    >>> mpijax.monitoring.unregister_event_listener(listener)
    """
    _forget("event", callback)


def unregister_event_duration_listener(callback: Callable[..., None]) -> None:
    """No more calls for durations.

    >>> listener = lambda event, duration, **details: print(event, duration)
    >>> mpijax.monitoring.register_event_duration_secs_listener(listener)
    >>> mpijax.monitoring.unregister_event_duration_listener(listener)
    """
    _forget("duration", callback)


def unregister_event_time_span_listener(callback: Callable[..., None]) -> None:
    """No more calls for time spans.

    >>> listener = lambda event, start, end, **details: print(event)
    >>> mpijax.monitoring.register_event_time_span_listener(listener)
    >>> mpijax.monitoring.unregister_event_time_span_listener(listener)
    """
    _forget("time span", callback)


def unregister_scalar_listener(callback: Callable[..., None]) -> None:
    """No more calls for numbers.

    >>> listener = lambda event, value, **details: print(event)
    >>> mpijax.monitoring.register_scalar_listener(listener)
    >>> mpijax.monitoring.unregister_scalar_listener(listener)
    """
    _forget("scalar", callback)


def clear_event_listeners() -> None:
    """No listeners at all.

    >>> mpijax.monitoring.clear_event_listeners()
    """
    for found in _listeners.values():
        found.clear()
