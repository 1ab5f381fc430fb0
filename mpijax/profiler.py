"""``mpijax.profiler``: named spans of time, from the names of ``jax.profiler``.

    with profiler.trace("/tmp/run"):                    # writes /tmp/run/rank0.trace.json, one file per rank
        with profiler.StepTraceAnnotation("train", step_num=3):
            step(...)

Between `start_trace` and `stop_trace` the annotated spans of Python are recorded: programs run to their end before
they return, so a span holds the work started in it. With ``MPIJAX_PROFILE_KERNELS=1`` the kernels of programs are
recorded too, under the names that `compiled.as_text()` has, with the user's lines. The files are in the format of
chrome://tracing and https://ui.perfetto.dev, which show the ranks below each other.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from mpijax import missing as _missing
from mpijax.core.base import locks
from mpijax.runtime.arrays.devices import process_index
from mpijax.runtime.reports import step_notes
from mpijax.runtime.reports.profile_data import ProfileData, ProfileEvent, ProfilePlane

__all__ = [
    "ProfileData", "ProfileEvent", "ProfileOptions", "ProfilePlane", "ProfileSession", "StepTraceAnnotation",
    "TraceAnnotation", "annotate_function", "device_memory_profile", "export_profile_data",
    "save_device_memory_profile", "start_server", "start_trace", "stop_server", "stop_trace", "trace",
]  # fmt: skip


class ProfileOptions:
    """What XLA's profiler would record, by its names and defaults; `start_trace` and `trace` take it.

    Here annotated spans are recorded, whatever the options say (docs/debugging.md). Raises AttributeError for other
    names.

    >>> options = mpijax.profiler.ProfileOptions()
    >>> options.host_tracer_level = 1
    """

    _DEFAULTS = {
        "advanced_configuration": {}, "duration_ms": 0, "enable_hlo_proto": True, "host_tracer_level": 2,
        "include_dataset_ops": True, "python_tracer_level": 1, "raise_error_on_start_failure": False,
        "repository_path": "", "session_id": "", "start_timestamp_ns": 0,
    }  # fmt: skip
    __slots__ = tuple(_DEFAULTS)

    def __init__(self) -> None:
        for name, value in self._DEFAULTS.items():
            setattr(self, name, dict(value) if isinstance(value, dict) else value)


_lock = locks.lock()
_recording: ProfileSession | None = None


class TraceAnnotation(ContextDecorator):
    """A span of time with a name, and details given by keyword; also a decorator.

    >>> with mpijax.profiler.TraceAnnotation("sum"):
    ...     jnp.sum(jnp.arange(3))
    Array(3, dtype=int32)
    """

    def __init__(self, name: str, **details: Any):
        self.name = name
        self.details = details
        self._starts: list[int] = []

    def __enter__(self) -> TraceAnnotation:
        self._starts.append(time.perf_counter_ns())
        return self

    def __exit__(self, *_exc: Any) -> None:
        start = self._starts.pop()
        recording = _recording
        if recording is None:
            return
        event = {
            "name": self.name,
            "ph": "X",
            "ts": start / 1e3,
            "dur": (time.perf_counter_ns() - start) / 1e3,
            "tid": threading.get_ident(),
            "args": {k: v if isinstance(v, (int, float, str, bool)) else str(v) for k, v in self.details.items()},
        }
        with _lock:
            recording._events.append(event)


class StepTraceAnnotation(TraceAnnotation):
    """The span of one step of a program; give its number as `step_num`.

    >>> with mpijax.profiler.StepTraceAnnotation("train", step_num=0):
    ...     jnp.sum(jnp.arange(3))
    Array(3, dtype=int32)
    """

    def __init__(self, name: str, **details: Any):
        super().__init__(name, _r=1, **details)


def annotate_function(func: Callable, name: str | None = None, **details: Any) -> Callable:
    """`func`, each call of which is a span under its name.

    >>> mpijax.profiler.annotate_function(jnp.sum, name="sum")(jnp.arange(3))
    Array(3, dtype=int32)
    """
    label = name or getattr(func, "__qualname__", None) or func.__class__.__name__

    @wraps(func)
    def annotated(*args, **kwargs):
        with TraceAnnotation(label, **details):
            return func(*args, **kwargs)

    return annotated


class ProfileSession:
    """A profile: `start`, `stop`, and `export_profile_data`. One of them runs at a time.

    >>> session = mpijax.profiler.ProfileSession()
    >>> session.start()
    >>> y = jnp.sum(jnp.arange(3))
    >>> session.stop() is session.profile_data
    True
    """

    def __init__(self, *_options: Any, **_more: Any):
        self._events: list[dict[str, Any]] = []
        self._data: ProfileData | None = None
        self._folder: str | os.PathLike | None = None
        self._begin = 0

    @property
    def is_running(self) -> bool:
        return _recording is self

    @property
    def profile_data(self) -> ProfileData | None:
        """What was recorded; None before it has stopped."""
        return self._data

    def start(self) -> None:
        """Begin to record spans. Raises RuntimeError if a profile is being recorded."""
        global _recording
        with _lock:
            if _recording is not None:
                raise RuntimeError("Profile has already been started. Only one profile may be run at a time.")
            self._events, self._data, self._begin = [], None, time.time_ns()
            _recording = self

    def stop(self) -> ProfileData:
        """What was recorded. Raises RuntimeError if this profile is not running."""
        global _recording
        with _lock:
            if _recording is not self:
                raise RuntimeError("No profile started")
            _recording = None
        self._data = ProfileData([*self._events, *_kernel_events(self._begin)])
        return self._data

    def export_profile_data(self, log_dir: str | os.PathLike) -> None:
        """Write ``rank<r>.trace.json`` into a folder. Raises RuntimeError before the profile has stopped."""
        if self._data is None:
            raise RuntimeError("This profile has no data yet. Call start() and stop() first")
        export_profile_data(self._data, log_dir)


def _kernel_events(begin: int) -> list[dict[str, Any]]:
    """The steps of programs since a time in ns since 1970, where they were noted, in the time of spans."""
    offset = time.perf_counter_ns() - time.time_ns()
    return [
        {
            "name": s.label, "ph": "X", "ts": (s.begin + offset) / 1e3, "dur": (s.end - s.begin) / 1e3,
            "tid": s.thread, "args": {"line": s.line},
        }
        for s in step_notes.spans() if s.begin >= begin
    ]  # fmt: skip


def export_profile_data(profile: ProfileSession | ProfileData, log_dir: str | os.PathLike) -> None:
    """Write what was recorded as ``rank<r>.trace.json`` into a folder. Starts MPI, to know the rank.

    >>> import os, tempfile
    >>> with mpijax.profiler.trace() as session:
    ...     y = jnp.sum(jnp.arange(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mpijax.profiler.export_profile_data(session, folder)
    ...     os.listdir(folder)
    ['rank0.trace.json']
    """
    if isinstance(profile, ProfileSession):
        profile.export_profile_data(log_dir)
        return
    rank, folder = process_index(), Path(log_dir)
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}},
        *({**event, "pid": rank} for event in profile.trace_events),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"rank{rank}.trace.json").write_text(json.dumps({"traceEvents": events}))


def start_trace(log_dir: str | os.PathLike | None = None, *_options: Any, **_more: Any) -> ProfileSession:
    """Begin to record spans; with a folder, `stop_trace` writes them there.

    Raises:
      RuntimeError: if a trace is being recorded.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     session = mpijax.profiler.start_trace(folder)
    ...     y = jnp.sum(jnp.arange(3))
    ...     data = mpijax.profiler.stop_trace()
    ...     os.listdir(folder)
    ['rank0.trace.json']
    """
    session = ProfileSession()
    session._folder = log_dir
    session.start()
    return session


def stop_trace() -> ProfileData:
    """Stop recording, and write ``rank<r>.trace.json`` if `start_trace` was given a folder; see there.

    Raises:
      RuntimeError: if no trace is being recorded.

    >>> session = mpijax.profiler.start_trace()
    >>> mpijax.profiler.stop_trace() is session.profile_data
    True
    """
    session = _recording
    if session is None:
        raise RuntimeError("No profile started")
    data = session.stop()
    if session._folder is not None:
        session.export_profile_data(session._folder)
    return data


@contextmanager
def trace(log_dir: str | os.PathLike | None = None, *_options: Any, **_more: Any) -> Iterator[ProfileSession]:
    """Record what happens inside; see `start_trace`. Its value is the `ProfileSession`.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with mpijax.profiler.trace(folder):
    ...         y = jnp.sum(jnp.arange(3))
    ...     os.listdir(folder)
    ['rank0.trace.json']
    """
    session = start_trace(log_dir)
    try:
        yield session
    finally:
        stop_trace()


def _no_server(*_args: Any, **_kwargs: Any) -> Any:
    """Not available: raises NotImplementedError, which says what to do instead.

    >>> mpijax.profiler.start_server(9999)
    Traceback (most recent call last):
    ...
    NotImplementedError: mpijax has no profiler server. Record spans with profiler.trace(folder). ...
    """
    raise NotImplementedError(
        "mpijax has no profiler server. Record spans with profiler.trace(folder). Inspect compiled programs with "
        "jit(f).lower(x).compile().cost_analysis()."
    )


start_server = stop_server = _no_server


def _no_memory_profile(*_args: Any, **_kwargs: Any) -> Any:
    """Not available: raises NotImplementedError, which says what to do instead.

    >>> mpijax.profiler.device_memory_profile()
    Traceback (most recent call last):
    ...
    NotImplementedError: mpijax has no device memory profile, because arrays are in the memory of the process. ...
    """
    raise NotImplementedError(
        "mpijax has no device memory profile, because arrays are in the memory of the process. For the memory of a "
        "program use jit(f).lower(x).compile().memory_analysis()."
    )


device_memory_profile = save_device_memory_profile = _no_memory_profile


def __getattr__(name: str):
    raise _missing.error(__name__, name)
