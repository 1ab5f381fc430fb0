"""Tracks the progress of a compiled loop: marks at its start and end, and a counter in memory while it runs.

A mark calls Python. A note of a part is a single store in machine code, so a loop may have many parts at no cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import field
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import HostCall, Native
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.types.effects import DebugEffect
from mpijax.ops.callbacks.host import example, run_directly

_EFFECTS = frozenset({DebugEffect()})
_numbers = itertools.count()


@dataclass(frozen=True)
class WatchedLoop:
    """A loop that reports its progress. Equal loops are one loop to the compiler, with the number of the first.

    watch: called with the loop, its number of iterations, and whether the loop ends.
    """

    desc: str
    iterations: int | None  # None: known at run time
    watch: Callable[[WatchedLoop, int, bool], None]
    number: int = field(default_factory=lambda: next(_numbers), compare=False)


def _mark(iterations: Any, *, loop: WatchedLoop, ends: bool) -> list[Any]:
    loop.watch(loop, int(iterations), ends)
    return []


class _NotePart:
    def __init__(self, loop: WatchedLoop):
        self.words: tuple[int, ...] = (loop.number,)
        self.label = "note how far a loop is"

    def address(self) -> int:
        from mpijax._ext import record

        return record.note_part_address()

    def failed(self, *_arrays: Any) -> Any:
        raise AssertionError("a store does not fail")


def _observer(name: str, **slots: Any) -> Primitive:
    """A primitive without results. Under `vmap` all examples are in the same iteration, so the first one reports."""

    def batch(_axis, args, dims, **params):
        return registry[name].bind(*example(args, dims, 0), **params), []

    return Primitive(
        name,
        type_rule=lambda *_, **params: [],
        jvp=lambda primals, _tangents, **params: (registry[name].bind(*primals, **params), []),
        transpose=lambda cts, *args, **params: [None] * len(args),
        batch=batch,
        multiple_results=True,
        effects=lambda params: _EFFECTS,
        **slots,
    )


loop_mark_p = _observer("loop_mark", reference=_mark, lower=HostCall(_mark))
loop_mark_p.impl = run_directly(loop_mark_p, _mark)
loop_part_p = _observer(
    "loop_part",
    reference=lambda *_, **params: [],
    lower=Native(lambda ins, outs, *, loop: _NotePart(loop), foreign=False),
)
