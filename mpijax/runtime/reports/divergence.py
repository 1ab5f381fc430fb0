"""Detects, in the records of a node's ranks, different collectives that MPI has matched with each other.

The guard compares programs before their first run. Two programs that both ranks have run may still run in different
orders, and MPI checks nothing. Each sequence of operations has digests of its first n operations (``record.h``). Before
a rank passes a collective to MPI, it compares its digest with those of other ranks of its node; so if two differ, the
later one raises. `compared_with` lists these ranks. A record may be written too late for that. So each rank also checks
the next rank of its node, twice a second (`watchdog`) and at exit.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mpijax._ext import record
from mpijax.core.base.errors import MismatchError
from mpijax.runtime.reports.recorder import COLLECTIVE, CommRecord, recorder


def found() -> str:
    """A description of how this rank and the next one diverged; '' if they did not."""
    for group in list(recorder.groups.values()):
        here = [r for r in group.ranks if r in recorder.ranks]
        if len(here) > 1 and recorder.rank in here:
            other = here[(here.index(recorder.rank) + 1) % len(here)]
            if _differs(group, other):
                time.sleep(_AGAIN)
                if number := _differs(group, other):
                    return f"{_told(group, sorted((recorder.rank, other)), number)}. They received wrong data"
    return ""


def different_collectives(what: str) -> MismatchError:
    """The error for a rank about to run another collective than another rank of its node; it names both."""
    if found := _with_any():
        return MismatchError(f"{found[0]}. No data was sent")
    return MismatchError(f"ranks run different collectives: another rank does not run {what}")


def failed_communication(text: str) -> RuntimeError:
    """The error for a collective that MPI, or the node's shared memory, refused; names a divergence if there is one."""
    if found := _with_any():
        return MismatchError(f"{text}\n{found[0]}")
    if any(name in text for name in _DIED):
        return RuntimeError(f"{text}\nA rank has died. mpijax.distributed.survivors() continues with the other ranks")
    return RuntimeError(text if len(recorder.ranks) == recorder.size else f"{text}\n{_OTHER_NODES}")


# MPI's error names after the death of a rank, in libraries that survive it.
_DIED = ("MPI_ERR_PROC_FAILED", "MPI_ERR_REVOKED")
_OTHER_NODES = (
    "Some ranks are on other nodes, and their state is unknown here. All ranks must run the same collective, with the "
    "same sizes, at this point"
)


def _with_any() -> list[str]:
    """How this rank and another one of its node diverged; the first case found, or []."""
    for group in list(recorder.groups.values()):
        for other in group.ranks:
            if recorder.rank in group.ranks and other in recorder.ranks and other != recorder.rank:
                if number := _differs(group, other):
                    return [_told(group, sorted((recorder.rank, other)), number)]
    return []


# Seconds until a divergence is checked again: the other rank may have been writing its record.
_AGAIN = 1e-3


def _differs(group: CommRecord, other: int) -> int:
    """A number of operations after which the digests of this rank and another one differ; 0 if none is known."""
    a, b = _digests(group, recorder.mine), _digests(group, recorder.region(other))
    common = max(a.keys() & b.keys(), default=0)
    return common if common and a[common] != b[common] else 0


def _digests(group: CommRecord, region: Any) -> dict[int, int]:
    """Digests by number of operations, as far as they are stored. The rank may add more meanwhile."""
    [at] = np.nonzero(region["sequences"]["id"] == group.id + COLLECTIVE)
    if not len(at):
        return {}
    copy = region["sequences"][at[0]].copy()
    count, now = int(copy["count"]), int(region["sequences"]["count"][at[0]])
    return {n: int(copy["digests"][n % record.DIGESTS]) for n in range(max(1, now + 2 - record.DIGESTS), count + 1)}


def _told(group: CommRecord, ranks: list[int], number: int) -> str:
    a, b = (_last(group, recorder.region(rank)) for rank in ranks)
    first = next((n for n in sorted(a.keys() & b.keys()) if _label(a[n]) != _label(b[n])), None)
    what = f": rank {ranks[0]} ran {a[first]}, but rank {ranks[1]} ran {b[first]}" if first else ""
    return (
        f"ranks {ranks[0]} and {ranks[1]} ran different collectives on the communicator of {group.name}, at or before "
        f"its operation number {first or number}{what}"
    )


def _last(group: CommRecord, region: Any) -> dict[int, str]:
    """The group's collectives among the last operations of a rank, by number."""
    ring = region["ring"].copy()
    mine = [e for e in ring[ring["begin"] > 0] if recorder.sequence_of(region, int(e["site"])) == group.id + COLLECTIVE]
    return {int(e["number"]): recorder.text_of(region, int(e["site"])) for e in mine}


def _label(text: str) -> str:
    return text.split(" on ")[0]
