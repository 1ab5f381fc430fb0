"""``mpijax.progress``: how far a loop has come, on rank 0: loops of Python, and loops inside compiled programs.

    for batch in mpijax.progress(batches, desc="epoch 1"): ...
    state = mpijax.progress.fori_loop(0, 100_000, body, state, desc="steps")
    state, ys = mpijax.progress.scan(f, state, xs)

A terminal and a notebook show a bar: that of tqdm, if it is installed. A file or a pipe gets a line every 10 %.
``MPIJAX_PROGRESS`` is ``bar``, ``lines`` or ``off`` to choose.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import numpy as np

from mpijax import lax, tree
from mpijax import numpy as jnp
from mpijax._ext import record
from mpijax.core.base import locks
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.tracing.tracer import Tracer
from mpijax.ops.callbacks.loop_progress import WatchedLoop, loop_mark_p, loop_part_p
from mpijax.runtime.arrays.devices import process_index

# Parts of a compiled loop; seconds between two states of a bar; between lines if there is no total.
_PARTS, _PAUSE, _LINE_PAUSE = 100, 0.1, 10.0
# Looks at no loop after which the thread ends that looks.
_IDLE = 50
_WIDTH = 30


class progress:
    """An iterator over `iterable` that shows on rank 0 how far it has come. Other ranks show nothing.

    desc: text before the bar. total: the number of items, for an iterable without ``len``.

    >>> sum(mpijax.progress(range(4), desc="sum"))
    6
    """

    def __init__(self, iterable: Iterable[Any], desc: str | None = None, total: int | None = None):
        self._iterable = iterable
        self._desc = desc or ""
        self._total = len(iterable) if total is None and isinstance(iterable, Sized) else total

    def __len__(self) -> int:
        if self._total is None:
            raise TypeError(
                f"the length of {type(self._iterable).__name__} is unknown. Pass it: progress(..., total=n)"
            )
        return self._total

    def __iter__(self) -> Iterator[Any]:
        if process_index() != 0:
            yield from self._iterable
            return
        bar = open_bar(self._desc, self._total)
        try:
            done = 0
            for done, item in enumerate(self._iterable, 1):
                yield item
                bar.show(done)
            bar.show(done, last=True)
        finally:
            bar.close()

    @staticmethod
    def fori_loop(lower: Any, upper: Any, body_fun: Callable, init_val: Any, *, desc: str | None = None) -> Any:
        """``lax.fori_loop`` that shows how far it has come, if it takes 0.1 s or longer.

        It runs as about 100 loops, one after the other. Between them the program only stores a number, so an iteration
        costs the same as without a bar. Under `grad` the bar shows the forward loop. The result has the same bits.

        >>> mpijax.progress.fori_loop(0, 1000, lambda i, x: x + i, 0)
        Array(499500, dtype=int32, weak_type=True)
        """
        if isinstance(lower, Tracer) or isinstance(upper, Tracer):
            return _loop_of_unknown_length(lower, upper, body_fun, init_val, desc or "")
        total = max(int(upper) - int(lower), 0)
        size, parts = _size(total), total // _size(total)

        def iterations(begin: Any, count: int, value: Any) -> Any:
            return lax.fori_loop(0, count, lambda i, x: body_fun(begin + i, x), value)

        with _watched(desc, total) as loop:

            def part(k: Any, value: Any) -> Any:
                _note_part(loop, k)
                return iterations(lower + k * size, size, value)

            value = lax.fori_loop(0, parts, part, init_val)
            return iterations(lower + parts * size, total - parts * size, value) if total > parts * size else value

    @staticmethod
    def scan(
        f: Callable,
        init: Any,
        xs: Any = None,
        length: int | None = None,
        reverse: bool = False,
        unroll: int | bool = 1,
        *,
        desc: str | None = None,
    ) -> tuple[Any, Any]:
        """``lax.scan`` that shows how far it has come, as `fori_loop` does.

        >>> mpijax.progress.scan(lambda c, x: (c + x, c), 0, jnp.arange(4))
        (Array(6, dtype=int32, weak_type=True), Array([0, 0, 1, 3], dtype=int32, weak_type=True))
        """
        leaves = tree.leaves(xs)
        total = int(np.shape(leaves[0])[0]) if leaves and np.ndim(leaves[0]) else length
        if total is None or any(np.shape(x)[:1] != (total,) for x in leaves) or length not in (None, total):
            return lax.scan(f, init, xs, length, reverse, unroll)  # which says what is wrong
        size, parts = _size(total), total // _size(total)
        whole, rest = parts * size, total - parts * size
        first = rest if reverse else 0
        split = tree.map(lambda x: jnp.asarray(x)[first : first + whole].reshape(parts, size, *np.shape(x)[1:]), xs)

        with _watched(desc, total) as loop:

            def part(state: Any, x: Any) -> Any:
                k, carry = state
                _note_part(loop, k)
                carry, ys = lax.scan(f, carry, x, size, reverse, unroll)
                return (k + 1, carry), ys

            (_, carry), ys = lax.scan(part, (jnp.int32(0), init), split, parts, reverse)
            ys = tree.map(lambda y: y.reshape(whole, *y.shape[2:]), ys)
            if rest:
                left = tree.map(lambda x: jnp.asarray(x)[:rest] if reverse else jnp.asarray(x)[whole:], xs)
                carry, more = lax.scan(f, carry, left, rest, reverse, unroll)
                ys = tree.map(lambda a, b: jnp.concatenate([b, a] if reverse else [a, b]), ys, more)
            return carry, ys


def _size(total: int) -> int:
    """Turns between two notes of a loop: such that about 100 parts are the whole loop, if some number of parts is."""
    if total <= _PARTS:
        return 1
    even = next((parts for parts in range(_PARTS, _PARTS // 4, -1) if total % parts == 0), None)
    return total // even if even else -(-total // _PARTS)


@contextmanager
def _watched(desc: str | None, total: Any) -> Iterator[WatchedLoop]:
    """The loop that is traced inside, between its marks."""
    loop = WatchedLoop(desc or "", None if isinstance(total, Tracer) else total, _watch)
    loop_mark_p.bind(jnp.asarray(total), loop=loop, ends=False)
    yield loop
    loop_mark_p.bind(jnp.asarray(total), loop=loop, ends=True)


def _note_part(loop: WatchedLoop, k: Any) -> None:
    loop_part_p.bind(jnp.asarray(k, jnp.int32), loop=loop)


def _loop_of_unknown_length(lower: Any, upper: Any, body_fun: Callable, init_val: Any, desc: str) -> Any:
    """A `while_loop`, as `lax.fori_loop` is for traced bounds."""
    total = jnp.maximum(upper - lower, 0)
    size = jnp.where(total <= _PARTS, 1, -(-total // _PARTS))
    with _watched(desc, total) as loop:

        def part(state: Any) -> Any:
            k, begin, value = state
            _note_part(loop, k)
            end = jnp.minimum(begin + size, upper)
            return k + 1, end, lax.fori_loop(begin, end, body_fun, value)

        begin = jnp.asarray(lower, jnp.result_type(lower, upper))
        _, _, value = lax.while_loop(lambda state: state[1] < upper, part, (jnp.int32(0), begin, init_val))
        return value


# ---------------------------------------------------------------- loops that run


class _Watch:
    """Shows how far compiled loops of rank 0 are, from a thread that looks every tenth of a second."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._running: dict[WatchedLoop, _RunningLoop] = {}
        self._thread: threading.Thread | None = None

    def forget(self) -> None:
        """Reset the state in a forked process, which does not have the thread."""
        self._running.clear()
        self._thread = None

    def __call__(self, loop: WatchedLoop, iterations: int, ends: bool) -> None:
        if process_index() != 0:
            return
        with self._lock:
            found = self._running.pop(loop, None)
            if ends:
                if found is not None:
                    found.end()
                return
            self._running[loop] = _RunningLoop(loop, iterations, time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="mpijax progress", daemon=True)
                self._thread.start()

    def _look(self) -> None:
        idle = 0
        while idle < _IDLE:
            time.sleep(_PAUSE)
            with self._lock:
                idle = 0 if self._running else idle + 1
                for running in self._running.values():
                    running.look()
                if idle == _IDLE:
                    self._thread = None


@dataclass
class _RunningLoop:
    loop: WatchedLoop
    iterations: int
    begin: float
    bar: Any = None

    def look(self) -> None:
        """Show a bar once the loop has run for some time."""
        if time.monotonic() - self.begin >= _PAUSE:
            self._show(min(record.part_begun(self.loop.number) * _size(self.iterations), self.iterations))

    def end(self) -> None:
        if self.bar is not None or time.monotonic() - self.begin >= _PAUSE:
            self._show(self.iterations, last=True)
            self.bar.close()

    def _show(self, done: int, last: bool = False) -> None:
        if self.bar is None:
            self.bar = open_bar(self.loop.desc, self.iterations, self.begin)
        self.bar.show(done, last)


_watch = _Watch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watch.forget)


# ---------------------------------------------------------------- bars


def open_bar(desc: str, total: int | None, begin: float | None = None) -> Any:
    """A bar that fits where the output goes. begin: when the loop began, if not now."""
    mode, begin = _mode(), time.monotonic() if begin is None else begin
    if mode == "bar":
        return (_TqdmBar if importlib.util.find_spec("tqdm") else _Bar)(desc, total, begin)
    return _ProgressLines(desc, total, begin) if mode == "lines" else _Nothing()


def _mode() -> str:
    wanted = os.environ.get("MPIJAX_PROGRESS", "auto")
    if wanted not in ("auto", "bar", "lines", "off"):
        raise ValueError(f"MPIJAX_PROGRESS must be 'auto', 'bar', 'lines' or 'off', got {wanted!r}")
    if wanted != "auto":
        return wanted
    return "bar" if _in_kernel() or getattr(sys.stderr, "isatty", lambda: False)() else "lines"


def _in_kernel() -> bool:
    """Whether a notebook shows what this process displays."""
    shell = getattr(builtins, "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class _Nothing:
    def show(self, done: int, last: bool = False) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing is open."""


class _TqdmBar:
    def __init__(self, desc: str, total: int | None, begin: float):
        import tqdm
        import tqdm.auto

        make = tqdm.tqdm
        if _in_kernel():
            with warnings.catch_warnings():  # without ipywidgets there is none but that of terminals
                warnings.simplefilter("ignore")
                make = tqdm.auto.tqdm
        self._bar = make(total=total, desc=desc or None, mininterval=_PAUSE, dynamic_ncols=True)
        self._bar.start_t -= time.monotonic() - begin

    def show(self, done: int, last: bool = False) -> None:
        self._bar.update(done - self._bar.n)
        if last:
            self._bar.refresh()

    def close(self) -> None:
        self._bar.close()


@dataclass
class _Timed:
    desc: str
    total: int | None
    begin: float

    def times(self, done: int) -> tuple[float, float | None]:
        """(seconds so far, seconds that are left if that is known)."""
        spent = time.monotonic() - self.begin
        return spent, spent * (self.total - done) / done if self.total and 0 < done < self.total else None


@dataclass
class _Bar(_Timed):
    """One line that is written over; in a notebook, one display."""

    shown: float = 0.0
    width: int = 0
    handle: Any = None

    def show(self, done: int, last: bool = False) -> None:
        if not last and time.monotonic() - self.shown < _PAUSE:
            return
        self.shown = time.monotonic()
        text = self.text(done)
        if _in_kernel():
            self._display(text)
            return
        sys.stderr.write("\r" + text.ljust(self.width))
        sys.stderr.flush()
        self.width = len(text)

    def text(self, done: int) -> str:
        spent, left = self.times(done)
        name = f"{self.desc}: " if self.desc else ""
        if not self.total:
            return f"{name}{done:,} in {_clock(spent)}"
        marks = "#" * (_WIDTH * done // self.total)
        rest = "" if left is None else f", {_clock(left)} left"
        return f"{name}{done / self.total:4.0%} [{marks:<{_WIDTH}}] {done:,}/{self.total:,} in {_clock(spent)}{rest}"

    def _display(self, text: str) -> None:
        from IPython.display import display

        data = {"text/plain": text}
        if self.handle is None:
            self.handle = display(data, raw=True, display_id=True)
        else:
            self.handle.update(data, raw=True)

    def close(self) -> None:
        if self.width:
            sys.stderr.write("\n")
            sys.stderr.flush()


@dataclass
class _ProgressLines(_Timed):
    """A line every 10 %; without a total, every 10 s."""

    tenths: int = 0
    shown: float = field(default_factory=time.monotonic)

    def show(self, done: int, last: bool = False) -> None:
        tenths = 10 * done // self.total if self.total else self.tenths
        late = not self.total and (last or time.monotonic() - self.shown > _LINE_PAUSE)
        if tenths == self.tenths and not late:
            return
        self.tenths, self.shown = tenths, time.monotonic()
        spent, left = self.times(done)
        share = f"{10 * tenths}% ({done:,} of {self.total:,})" if self.total else f"{done:,}"
        rest = "" if left is None else f", {_clock(left)} left"
        print(f"{self.desc or 'progress'}: {share} in {_clock(spent)}{rest}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Each line is complete."""


def _clock(seconds: float) -> str:
    """``0.4 s``, ``3:07`` or ``2:03:07``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02}"
