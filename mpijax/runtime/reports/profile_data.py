"""Holds a profile in the classes of `jax.profiler`: a plane for this rank, with a line for each thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ProfileEvent:
    """A span of time with its name, in nanoseconds.

    >>> mpijax.profiler.ProfileEvent("sum", start_ns=5, duration_ns=3).end_ns
    8
    """

    name: str
    start_ns: float
    duration_ns: float
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def end_ns(self) -> float:
        return self.start_ns + self.duration_ns

    @property
    def stats(self) -> Iterator[tuple[str, Any]]:
        """(name, value) of the annotation's keyword arguments."""
        return iter(self.details.items())


@dataclass(frozen=True)
class ProfileLine:
    """The events of one thread."""

    name: str
    found: tuple[ProfileEvent, ...]

    @property
    def events(self) -> Iterator[ProfileEvent]:
        return iter(self.found)


@dataclass(frozen=True)
class ProfilePlane:
    """The lines of this rank's processor.

    >>> list(mpijax.profiler.ProfilePlane("/host:CPU", ()).lines)
    []
    """

    name: str
    threads: tuple[ProfileLine, ...]

    @property
    def lines(self) -> Iterator[ProfileLine]:
        return iter(self.threads)

    @property
    def stats(self) -> Iterator[tuple[str, Any]]:
        return iter(())


class ProfileData:
    """The events that a `ProfileSession` recorded.

    >>> with mpijax.profiler.trace() as session:
    ...     with mpijax.profiler.TraceAnnotation("sum"):
    ...         y = jnp.sum(jnp.arange(3))
    >>> plane = session.profile_data.find_plane_with_name("/host:CPU")
    >>> [event.name for line in plane.lines for event in line.events]
    ['sum']
    """

    def __init__(self, events: Iterable[dict[str, Any]]):
        self.trace_events = tuple(events)
        lines: dict[int, list[ProfileEvent]] = {}
        for e in self.trace_events:
            event = ProfileEvent(e["name"], 1e3 * e["ts"], 1e3 * e["dur"], e["args"])
            lines.setdefault(e["tid"], []).append(event)
        threads = (ProfileLine(str(thread), tuple(events)) for thread, events in lines.items())
        self._plane = ProfilePlane("/host:CPU", tuple(threads))

    @property
    def planes(self) -> Iterator[ProfilePlane]:
        return iter((self._plane,))

    def find_plane_with_name(self, name: str) -> ProfilePlane | None:
        return self._plane if name == self._plane.name else None
