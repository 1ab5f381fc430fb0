"""The matching guard: checks that ranks will communicate alike, before one of them blocks forever.

When a schedule of collectives first runs on a communicator, its ranks compare a hash of it: operations, shapes, dtypes,
reductions, roots and permutations in program order, with the structure of loops and branches. If hashes differ, EVERY
rank raises `MismatchError`, which shows the schedules, the ranks with each, and the source lines. Messages (send, recv)
are exempt, because ranks may differ there; `announcements` compares their dtypes and `pairing` their derivatives.

The guard remembers schedules, not programs: a rank that compiles a second program with the same schedule (another
static or donated argument) must not wait for ranks that do not. All ranks of a communicator have agreed to the same
schedules, so ranks that run matching programs decide alike whether to compare.
The comparison runs up and down a binary tree of messages on a separate communicator. So no communicator has to be
created, and these messages cannot match the user's: 2 log2(ranks) messages of 17 bytes, once.
MPIJAX_GUARD=0 turns it off.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from mpijax.compiler.steps.instructions import Loop, Switch, While, visits
from mpijax.core.base.errors import MismatchError
from mpijax.runtime.machine.executable import Call
from mpijax.runtime.matching import announcements, counts, pairing
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.reports.recorder import COLLECTIVE, GUARD, CommRecord, Site, ranges, recorder

# Maximum bytes of a schedule's text, sent if schedules differ, and of the message that comes back.
TEXT = 1 << 14
# Seconds after which a waiting rank checks whether the others can still arrive.
PATIENCE = 1.0
# Seconds within which ranks that agree complete a collective on the communicator, if it is the same one.
MEETING = 5.0
_PRIME = (1 << 127) - 1
_BASE = 0x9E3779B97F4A7C15F39CC0605CEDC835 % _PRIME


def enabled() -> bool:
    return os.environ.get("MPIJAX_GUARD", "1").lower() not in ("0", "off", "false", "no")


# ---------------------------------------------------------------- schedules
#
# A sequence is hashed as a polynomial, (number of operations, value). So sequences are joined and repeated without
# expanding them, and a loop of 3 iterations equals its 3 iterations one after the other.

_Hash = tuple[int, int]
_EMPTY: _Hash = (0, 0)


def _joined(a: _Hash, b: _Hash) -> _Hash:
    return a[0] + b[0], (a[1] * pow(_BASE, b[0], _PRIME) + b[1]) % _PRIME


def _repeated(a: _Hash, times: int) -> _Hash:
    out = _EMPTY
    while times > 0:
        out = _joined(out, a) if times & 1 else out
        a, times = _joined(a, a), times >> 1
    return out


def _atom(*parts: Any) -> _Hash:
    return 1, int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=15).digest(), "little")


def schedule(instructions: tuple, group: CommRecord) -> _Hash:
    """The hash of what the group's ranks must run in the same order: collectives on it and on supergroups."""
    out = _EMPTY
    for x in instructions:
        out = _joined(out, _of_instruction(x, group))
    return out


def _of_instruction(x: Any, group: CommRecord) -> _Hash:
    if isinstance(x, Call):
        around = x.report.group
        counts = x.carrier.matched and around is not None and set(group.ranks) <= set(around.ranks)
        return _atom(x.report.label, around.id) if counts else _EMPTY
    if isinstance(x, Loop):
        return _repeated(schedule(x.body, group), x.count)
    if isinstance(x, While):
        iteration = schedule(x.cond, group), schedule(x.body, group)
        return _EMPTY if iteration == (_EMPTY, _EMPTY) else _atom("while", *iteration)
    if isinstance(x, Switch):
        branches = [schedule(b, group) for b in x.branches]
        return branches[0] if branches.count(branches[0]) == len(branches) else _atom("branches", *branches)
    return _EMPTY


def text(instructions: tuple, group: CommRecord, indent: str = "  ") -> list[str]:
    """The schedule as text: one line for each operation."""
    out: list[str] = []
    for x in instructions:
        if _of_instruction(x, group) == _EMPTY:
            continue
        if isinstance(x, Call):
            report = x.report
            where = "" if report.group is group else f" on {report.group.name}"
            out.append(f"{indent}{report.label}{where}" + (f"   at {report.line}" if report.line else ""))
        elif isinstance(x, Loop):
            out += [f"{indent}{x.count} times:", *text(x.body, group, indent + "  ")]
        elif isinstance(x, While):
            out += [f"{indent}while:", *text(x.cond + x.body, group, indent + "  ")]
        else:
            for k, branch in enumerate(x.branches):
                out += [f"{indent}branch {k}:", *(text(branch, group, indent + "  ") or [f"{indent}  nothing"])]
    return out


def groups_of(instructions: tuple) -> list[CommRecord]:
    """The groups with collectives among the instructions, in order of first use."""
    return list(dict.fromkeys(x.report.group for x in _collectives(instructions)))


def _collectives(instructions: tuple) -> Iterator[Call]:
    """The collectives that may run."""
    for visit in visits(instructions):
        x = visit.instruction
        if visit.times and isinstance(x, Call) and x.carrier.matched and x.report.group is not None:
            yield x


# ---------------------------------------------------------------- agreement


def before_first_run(
    instructions: tuple, name: str, check: Callable[[list[Any], str], None]
) -> Callable[[list[Any]], Callable[[], None] | None] | None:
    """The function that a program calls with its arguments before its first run; None if there is nothing to agree on.

    It returns the function to call after that run, or None. check: compares the arguments, if the ranks had not agreed
    on the schedule before. If they had, the program may be new on some ranks only.
    """
    if not mpi_start.started() or not enabled():
        return None
    pairs = pairing.before_first_run(instructions, name)
    announce = announcements.before_first_run(instructions, name)
    groups = [g for g in groups_of(instructions) if len(g.ranks) > 1]
    if pairs is None and announce is None and not groups:
        return None
    schedules = [(g, schedule(instructions, g)[1].to_bytes(16, "little")) for g in groups]

    def agree(args: list[Any]) -> Callable[[], None] | None:
        if _agree(schedules, instructions, name):
            check(args, name)
        if pairs is not None:
            pairs()
        return None if announce is None else announce()

    return agree


def _agree(schedules: list[tuple[CommRecord, bytes]], instructions: tuple, name: str) -> bool:
    """Compare on all groups at once, since ranks may disagree on which is first. Raises MismatchError.

    Returns whether all ranks of the job have compared a schedule.
    """
    new = [(g, digest) for g, digest in schedules if digest not in g.agreed]
    if not new:
        return False
    where = _first_line(instructions)
    with recorder.operation(Site(f"agreement on the collectives of {name!r}", where, new[0][0]), GUARD):
        exchanges = [_compare_all(g, digest, instructions, name) for g, digest in new]
        answers = _all(exchanges, new[0][0], name)
    for (g, digest), answer in zip(new, answers, strict=True):
        if answer:
            raise MismatchError(answer)
        g.agreed.add(digest)
    return any(len(g.ranks) == mpi_start.size() for g, _ in new)


def agree(group: CommRecord, digest: bytes, what: str, line: str) -> None:
    """Raise MismatchError on all ranks of a group unless all are about to make the same object.

    Ranks that are about to run a program there for the first time count as different. Call it inside a GUARD operation.
    """
    shown = f"  {what}" + (f"   at {line}" if line else "")
    if answer := _all([_answered(_compare(group, digest, lambda: shown))], group, what)[0]:
        raise MismatchError(answer)


def same_values(group: CommRecord, kinds: bytes, values: bytes, what: str, line: str) -> bool:
    """Whether all ranks of a group have the same values, given each rank's 8-byte digest of them.

    kinds: digest of the types and places of the values. Raises MismatchError on all ranks if it differs. See `agree`.
    """

    def exchange() -> Generator[None, None, str | bool]:
        found = yield from _verdict(group, kinds + values)
        if found == DIFFERENT:
            return (yield from _difference(group, f"  {what}   at {line}".encode()[: TEXT - 1]))
        return found == ALIKE

    [answer] = _all([_answered(exchange())], group, what)
    if isinstance(answer, str):
        raise MismatchError(answer)
    return answer


def _answered(exchange: Generator[None, None, Any]) -> Iterator[Any]:
    yield (yield from exchange)


def _compare_all(group: CommRecord, digest: bytes, instructions: tuple, name: str) -> Iterator[str | None]:
    """Compares the schedules, then the omitted counts. Yields None while it waits, then '' or the difference."""
    describe = functools.partial(_described, instructions, group, name)
    answer = yield from _compare(group, digest, describe)
    given = list(counts.exchanges(instructions, group))
    if given and not answer:
        lines = yield from counts.differences(mpi_start.start().control, group, given)
        wrong = recorder.rank + 1 if lines else 0
        answer = yield from _compare(group, wrong.to_bytes(16, "little"), lambda: "\n".join([describe(), *lines]))
    if group.comm is not None and not group.agreed and not answer:
        answer = yield from _meet(group, describe)
    yield answer


def _meet(group: CommRecord, describe: Callable[[], str]) -> Generator[None, None, str]:
    """Whether the ranks that agree use the same communicator, since several may have the same ranks; '' if so."""
    MPI = mpi_start.start().MPI
    mine, largest = np.array([group.id >> 1, -(group.id >> 1)], np.int64), np.empty(2, np.int64)
    request, began = group.comm.Iallreduce(mine, largest, MPI.MAX), time.monotonic()
    while not request.Test():
        if time.monotonic() - began > MEETING:
            return (
                f"ranks do not use the same communicator of {group.name}: all ranks are in a collective, but on "
                f"different communicators. Rank {recorder.rank}: {describe()}\nMake communicators in the same order "
                "on all ranks, and use each one first in the same order."
            )
        yield None
    if largest[0] != -largest[1]:
        return (
            f"ranks use the communicators of {group.name} in different orders: the other ranks run the collective of "
            f"rank {recorder.rank} on another communicator. Rank {recorder.rank}: {describe()}\nMake communicators in "
            "the same order on all ranks, and use each one first in the same order."
        )
    return ""


def _described(instructions: tuple, group: CommRecord, name: str) -> str:
    return "\n".join([f"program {name!r}:", *text(instructions, group)])


def _first_line(instructions: tuple) -> str:
    return next((x.report.line for x in _collectives(instructions) if x.report.line), "")


def _all(exchanges: list[Iterator[str | None]], group: CommRecord, name: str) -> list[str]:
    """Advance the exchanges until each has yielded its answer: '' or the difference."""
    answers: list[Any] = [None] * len(exchanges)
    began = looked = time.monotonic()
    suspicion: dict[int, int] = {}
    while True:
        for i, exchange in enumerate(exchanges):
            if answers[i] is None:
                answers[i] = next(exchange)
        if None not in answers:
            return answers
        now = time.monotonic()
        if now - looked > PATIENCE:
            looked = now
            _check_for_absent(group, name, suspicion)
        pairing.rest(now - began)


def _compare(group: CommRecord, digest: bytes, describe: Callable[[], str]) -> Generator[None, None, str]:
    """Yields None while it waits, then '' or the difference."""
    if (yield from _verdict(group, digest)) == ALIKE:
        return ""
    return (yield from _difference(group, describe().encode()[: TEXT - 1]))


# The result of a comparison: equal digests; equal first halves; neither.
DIFFERENT, HALF, ALIKE = range(3)


def _likeness(heard: np.ndarray, mine: np.ndarray) -> int:
    """The combined result of a rank and of the subtree of a child, given the child's digest and result."""
    if bytes(heard[:16]) == bytes(mine[:16]):
        return int(heard[16])
    return min(HALF, int(heard[16])) if bytes(heard[:8]) == bytes(mine[:8]) else DIFFERENT


def _verdict(group: CommRecord, digest: bytes) -> Generator[None, None, int]:
    """Up the tree: is my subtree like me? Down: are all ranks alike? Yields None while it waits."""
    comm = mpi_start.start().control
    tag = _tag(group)
    place, n = group.ranks.index(recorder.rank), len(group.ranks)
    children = [group.ranks[c] for c in (2 * place + 1, 2 * place + 2) if c < n]
    parent = group.ranks[(place - 1) // 2]
    heard = [np.zeros(17, np.uint8) for _ in children]
    yield from _wait([comm.Irecv(h, c, tag) for h, c in zip(heard, children)])
    mine = np.frombuffer(digest + bytes([ALIKE]), np.uint8).copy()
    mine[16] = min([_likeness(h, mine) for h in heard], default=ALIKE)
    verdict = mine[16:].copy()
    if place:
        yield from _wait([comm.Isend(mine, parent, tag)])
        yield from _wait([comm.Irecv(verdict, parent, tag)])
    yield from _wait([comm.Isend(verdict, c, tag) for c in children])
    return int(verdict[0])


def _tag(group: CommRecord) -> int:
    return group.id % 30011 + 1


def _difference(group: CommRecord, own: bytes) -> Generator[None, None, str]:
    """The group's first rank collects all schedules and sends the difference to everybody."""
    comm, tag = mpi_start.start().control, _tag(group)
    first, others = group.ranks[0], group.ranks[1:]
    answer = np.zeros(4 * TEXT, np.uint8)
    if recorder.rank == first:
        texts = np.zeros((len(others), TEXT), np.uint8)
        yield from _wait([comm.Irecv(t, r, tag) for t, r in zip(texts, others)])
        schedules: dict[str, list[int]] = {}
        for rank, data in zip(group.ranks, [own, *(bytes(t).rstrip(b"\0") for t in texts)]):
            schedules.setdefault(data.decode("utf-8", "replace"), []).append(rank)
        data = _message(group, schedules).encode()[: 4 * TEXT - 1]
        answer[: len(data)] = np.frombuffer(data, np.uint8)
        yield from _wait([comm.Isend(answer, r, tag) for r in others])
    else:
        sent = np.zeros(TEXT, np.uint8)
        sent[: len(own)] = np.frombuffer(own, np.uint8)
        yield from _wait([comm.Isend(sent, first, tag)])
        yield from _wait([comm.Irecv(answer, first, tag)])
    return bytes(answer).rstrip(b"\0").decode("utf-8", "replace")


def _wait(requests: list[Any]) -> Generator[None, None, None]:
    for request in requests:
        while not request.Test():
            yield None


def _message(group: CommRecord, schedules: dict[str, list[int]]) -> str:
    parts = [
        f"ranks run different collectives: on the communicator of {group.name} they would run",
        *(f"rank{'s' if len(r) > 1 else ''} {ranges(r)}: {t}" for t, r in list(schedules.items())[:8]),
    ]
    if len(schedules) > 8:
        parts.append(f"... and {len(schedules) - 8} more")
    parts.append(
        "Every rank of a communicator must run the same collectives, with the same shapes and dtypes, in the same "
        "order. Usual causes: `if rank == 0:` around a collective, shapes that depend on the rank, iteration over a "
        "set. (MPIJAX_GUARD=0 turns this check off.)"
    )
    return "\n".join(parts)


# ---------------------------------------------------------------- ranks that cannot arrive


def _check_for_absent(group: CommRecord, name: str, suspicion: dict[int, int]) -> None:
    """Raise if a rank of this node has ended, or waits in a collective that this rank will never enter.

    A rank inside a collective of this group that is not in this agreement waits for us, and we for it: a deadlock. It
    must be seen there twice. suspicion: the operation in which each rank was last seen.
    """
    agreed = recorder.count(recorder.mine, group.id + GUARD)
    for rank in group.ranks:
        region = recorder.region(rank)
        if region is None or rank == recorder.rank or recorder.count(region, group.id + GUARD) >= agreed:
            continue
        if recorder.is_gone(rank):
            raise MismatchError(f"rank {rank} has ended, but rank {recorder.rank} waits for it to run {name!r}")
        number, busy = recorder.progress(region)
        site = int(recorder.last(region)["site"])
        if busy and recorder.sequence_of(region, site) == group.id + COLLECTIVE:
            if suspicion.get(rank) == number:
                raise MismatchError(
                    f"ranks run different collectives: rank {recorder.rank} is about to run {name!r} for the first "
                    f"time on the communicator of {group.name}, but rank {rank} waits in "
                    f"{recorder.text_of(region, site)}, which {name!r} does not contain"
                )
            suspicion[rank] = number
