"""`live_arrays`: searches Python's objects on request, so that creating an array records nothing."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from mpijax._ext.array import ArrayBase
from mpijax.runtime.arrays import devices

# Number of objects whose references one call fetches.
_AT_A_TIME = 1000


def live_arrays(platform: str | None = None) -> list[Any]:
    """The arrays of this process that Python can reach and that are not deleted, in no particular order.

    The search visits all Python objects, about half a second for a million of them. It does not find arrays that only C
    code holds: operands of an expression under evaluation, and constants of compiled programs.

    Raises RuntimeError for an unknown platform.

    >>> x = jnp.arange(3)
    >>> any(x is y for y in mpijax.live_arrays())
    True
    """
    devices.local_devices(backend=platform)  # raises
    found: dict[int, Any] = {}
    for value in _values():
        if isinstance(value, ArrayBase) and not value.is_deleted():
            found[id(value)] = value
    return list(found.values())


def _values() -> Iterator[Any]:
    """The referents of Python's objects and of variables in running functions, some of them several times."""
    holders = gc.get_objects()
    for begin in range(0, len(holders), _AT_A_TIME):
        yield from _and_inside(gc.get_referents(*holders[begin : begin + _AT_A_TIME]))
    del holders
    for frame in sys._current_frames().values():
        current: Any = frame
        while current is not None:
            yield from _and_inside(_variables(current))
            current = current.f_back
        del frame  # which may be this function's own: a cycle would keep all that its callers hold


def _variables(frame: FrameType) -> list[Any]:
    names = frame.f_locals
    values = list(names.values())
    if type(names) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        names.clear()  # up to Python 3.12 a copy, which would keep the values alive
    return values


def _and_inside(values: Iterable[Any]) -> Iterator[Any]:
    """The values, and the contents of tuples and dicts that the garbage collector does not track."""
    for value in values:
        yield value
        if type(value) in (tuple, dict) and not gc.is_tracked(value):
            yield from _and_inside(gc.get_referents(value))
