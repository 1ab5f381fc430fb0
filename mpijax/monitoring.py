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
    """Something happened: calls `listener(event, **kwargs)`."""
    _tell("event", event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Something took `duration` seconds: calls `listener(event, duration, **kwargs)`."""
    _tell("duration", event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: str | int) -> None:
    """Something lasted from one time to another: calls `listener(event, start_time, end_time, **kwargs)`."""
    _tell("time span", event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """A number was measured: calls `listener(event, value, **kwargs)`."""
    _tell("scalar", event, value, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Call it for every `record_event`."""
    _listeners["event"].append(callback)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Call it for every `record_event_duration_secs`."""
    _listeners["duration"].append(callback)


def register_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Call it for every `record_event_time_span`."""
    _listeners["time span"].append(callback)


def register_scalar_listener(callback: Callable[..., None]) -> None:
    """Call it for every `record_scalar`."""
    _listeners["scalar"].append(callback)


def unregister_event_listener(callback: Callable[..., None]) -> None:
    """Raises ValueError where it is not registered, as all of these do."""
    _forget("event", callback)


def unregister_event_duration_listener(callback: Callable[..., None]) -> None:
    """No more calls for durations."""
    _forget("duration", callback)


def unregister_event_time_span_listener(callback: Callable[..., None]) -> None:
    """No more calls for time spans."""
    _forget("time span", callback)


def unregister_scalar_listener(callback: Callable[..., None]) -> None:
    """No more calls for numbers."""
    _forget("scalar", callback)


def clear_event_listeners() -> None:
    """No listeners at all."""
    for found in _listeners.values():
        found.clear()
