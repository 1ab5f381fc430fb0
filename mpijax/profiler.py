"""``mpijax.profiler``: named spans of time, from the names of ``jax.profiler``.

    with profiler.trace("/tmp/run"):                    # writes /tmp/run/rank0.trace.json, one file per rank
        with profiler.StepTraceAnnotation("train", step_num=3):
            step(...)

Between `start_trace` and `stop_trace` the annotated spans of Python are recorded: programs run to their end before
they return, so a span holds the work started in it. The files are in the format of chrome://tracing and
https://ui.perfetto.dev, which show the ranks below each other.
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
from mpijax.runtime.devices import process_index

__all__ = [
    "ProfileOptions", "StepTraceAnnotation", "TraceAnnotation", "annotate_function", "device_memory_profile",
    "save_device_memory_profile", "start_server", "start_trace", "stop_server", "stop_trace", "trace",
]  # fmt: skip


class _Recording:
    """The spans of a running trace."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.events: list[dict[str, Any]] = []


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


_lock = threading.Lock()
_recording: _Recording | None = None


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
            recording.events.append(event)


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


def start_trace(log_dir: str | os.PathLike, *_options: Any, **_more: Any) -> None:
    """Begin to record spans, to be written into a folder by `stop_trace`.

    Raises:
      RuntimeError: if a trace is being recorded.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mpijax.profiler.start_trace(folder)
    ...     y = jnp.sum(jnp.arange(3))
    ...     mpijax.profiler.stop_trace()
    ...     os.listdir(folder)
    ['rank0.trace.json']
    """
    global _recording
    with _lock:
        if _recording is not None:
            raise RuntimeError("Profile has already been started. Only one profile may be run at a time.")
        _recording = _Recording(log_dir)


def stop_trace() -> None:
    """Stop recording and write ``rank<r>.trace.json``. Starts MPI, to know the rank.

    Raises:
      RuntimeError: if no trace is being recorded.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mpijax.profiler.start_trace(folder)
    ...     y = jnp.sum(jnp.arange(3))
    ...     mpijax.profiler.stop_trace()
    ...     os.listdir(folder)
    ['rank0.trace.json']
    """
    global _recording

    with _lock:
        if _recording is None:
            raise RuntimeError("No profile started")
        recording, _recording = _recording, None
    rank = process_index()
    events = [{"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}]
    events += [{**event, "pid": rank} for event in recording.events]
    recording.folder.mkdir(parents=True, exist_ok=True)
    (recording.folder / f"rank{rank}.trace.json").write_text(json.dumps({"traceEvents": events}))


@contextmanager
def trace(log_dir: str | os.PathLike, *_options: Any, **_more: Any) -> Iterator[None]:
    """Record what happens inside; see `start_trace`.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with mpijax.profiler.trace(folder):
    ...         y = jnp.sum(jnp.arange(3))
    ...     os.listdir(folder)
    ['rank0.trace.json']
    """
    start_trace(log_dir)
    try:
        yield
    finally:
        stop_trace()


def _no_server(*_args: Any, **_kwargs: Any) -> Any:
    """Not available: raises NotImplementedError, which says what to do instead.

    >>> mpijax.profiler.start_server(9999)
    Traceback (most recent call last):
    ...
    NotImplementedError: mpijax has no profiler server: record spans with profiler.trace(folder), ...
    """
    raise NotImplementedError(
        "mpijax has no profiler server: record spans with profiler.trace(folder), and look at compiled programs with "
        "jit(f).lower(x).compile().cost_analysis()."
    )


start_server = stop_server = _no_server


def _no_memory_profile(*_args: Any, **_kwargs: Any) -> Any:
    """Not available: raises NotImplementedError, which says what to do instead.

    >>> mpijax.profiler.device_memory_profile()
    Traceback (most recent call last):
    ...
    NotImplementedError: mpijax has no device memory profile: arrays lie in the memory of the process. ...
    """
    raise NotImplementedError(
        "mpijax has no device memory profile: arrays lie in the memory of the process. "
        "jit(f).lower(x).compile().memory_analysis() tells what a program needs."
    )


device_memory_profile = save_device_memory_profile = _no_memory_profile


def __getattr__(name: str):
    raise _missing.error(__name__, name)
