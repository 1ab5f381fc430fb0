"""``mpijax trace``: merge the records of all ranks into one timeline, and show which rank waited for which.

A record (`runtime.reports.record_file`) has the begin and end of each operation of its rank. Operations of different
ranks match if they have the same number in the same sequence; in a collective every rank waits for the last one to
begin. Clocks of different nodes are not synchronized. Records of programs that ran with MPIJAX_PROFILE_KERNELS=1 also
have their kernels, by the user's lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from mpijax.cli.trace_page import page
from mpijax.core.base.lazy_dataclass import dataclass

# Maximum value of numbers in records, maximum ranks of a job, and maximum ranks for the table of senders and receivers.
_LARGEST, _MOST_RANKS, _MOST_PAIRED = 2**63, 1 << 24, 256
# With this many operations, a record may have lost its first ones.
_RING = 1000


@dataclass
class OperationEvent:
    """An operation of one rank; times in ns. wait: until the last rank began. late: that rank (-1: this one)."""

    rank: int
    number: int
    site: dict[str, Any]
    position: int
    nbytes: int
    begin: int
    end: int
    done: bool
    wait: int = 0
    late: int = -1


@dataclass(frozen=True)
class StepEvent:
    """A step of a program that one rank ran: a kernel, or a call of a library or of Python; times in ns."""

    rank: int
    label: str
    line: str
    begin: int
    end: int


def load(paths: list[Path]) -> tuple[int, list[OperationEvent], list[StepEvent]]:
    """(number of ranks of the job, operations and kernels of all records). Raises ValueError for files of different
    jobs."""
    operations: list[OperationEvent] = []
    kernels: list[StepEvent] = []
    jobs: dict[str, int] = {}
    for path in paths:
        try:
            record = json.loads(path.read_text())
            jobs[record["job"]] = record["size"]
            now = record["written"]
            _check(record)
            for number, site, position, nbytes, begin, end in record["operations"]:
                what = record["sites"][str(site)]
                done = end is not None
                operations.append(
                    OperationEvent(record["rank"], number, what, position, nbytes, begin, end if done else now, done)
                )
            kernels += [StepEvent(record["rank"], *kernel) for kernel in record.get("kernels", ())]
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is not a record of mpijax: {type(error).__name__}: {error}") from None
    if len(jobs) != 1:
        raise ValueError(f"the records belong to {len(jobs)} jobs ({', '.join(jobs)}): pass the records of one job")
    return max(jobs.values()), operations, kernels


def _check(record: dict[str, Any]) -> None:
    """Raise ValueError or TypeError for values that `runtime.reports.record_file` does not write."""
    size = _whole(record["size"], 1, _MOST_RANKS)
    _whole(record["rank"], 0, size - 1)
    _whole(record["written"])
    _text(record["job"])
    for site in record["sites"].values():
        for name in ("label", "line", "group"):
            _text(site[name])
        _whole(site["sequence"], -_LARGEST, 2 * _LARGEST)  # some are 64-bit digests
        if type(site["ranks"]) is not list or type(site["peers"]) not in (list, type(None)):
            raise TypeError("the ranks of an operation must be a list")
        for rank in (*site["ranks"], *(site["peers"] or ())):
            _whole(rank, -size, size - 1)
    for number, site, position, nbytes, begin, end in record["operations"]:
        for value in (number, site, position, nbytes, begin, *([] if end is None else [end])):
            _whole(value)
    for label, line, begin, end in record.get("kernels", ()):
        _text(label)
        _text(line)
        _whole(end, _whole(begin))


def _whole(value: Any, least: int = 0, most: int = _LARGEST) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.60} is not a number from {least} to {most}")
    return value


def _text(value: Any) -> None:
    if type(value) is not str:
        raise TypeError(f"{value!r:.60} is not a string")


def find_waits(operations: list[OperationEvent]) -> None:
    """Set the rank that each operation waited for, and the time."""
    together: dict[tuple[int, int], list[OperationEvent]] = defaultdict(list)
    for o in operations:
        if o.site["peers"] is None:
            together[o.site["sequence"], o.position].append(o)
        elif o.site["peers"]:
            o.late, o.wait = o.site["peers"][0], o.end - o.begin
    for group in together.values():
        last = max(group, key=lambda o: o.begin)
        absent = set(group[0].site["ranks"]) - {o.rank for o in group}
        for o in group:
            if not o.done and absent:
                o.late, o.wait = min(absent), o.end - o.begin
            elif o is not last:
                o.late, o.wait = last.rank, min(last.begin, o.end) - o.begin


def volumes(size: int, operations: list[OperationEvent]) -> list[list[int]]:
    """Bytes sent from each rank to each rank: messages to their receiver, collectives to all other ranks.

    Empty if there are too many ranks for a table.
    """
    if size > _MOST_PAIRED:
        return []
    matrix = [[0] * size for _ in range(size)]
    for o in operations:
        peers = o.site["peers"]
        for r in o.site["ranks"] if peers is None else peers[-1:]:
            if r != o.rank and not (peers is not None and o.site["label"].startswith("recv")):
                matrix[o.rank][r] += o.nbytes
    return matrix


def messages(operations: list[OperationEvent]) -> list[tuple[OperationEvent, OperationEvent]]:
    """(sending, receiving) operation of each message whose two ranks both have a record of it.

    MPI keeps the order of messages from one rank to another. A full record has lost its first operations, so messages
    are paired from the last one backwards.
    """
    sent: dict[tuple[int, int], list[OperationEvent]] = defaultdict(list)
    received: dict[tuple[int, int], list[OperationEvent]] = defaultdict(list)
    for o in sorted(operations, key=lambda o: o.number, reverse=True):
        peers, label = o.site["peers"], o.site["label"]
        if peers and not label.startswith("recv"):
            sent[o.rank, peers[-1]].append(o)
        if peers and o.done and label.startswith(("recv", "sendrecv")):
            received[peers[0], o.rank].append(o)
    found: list[tuple[OperationEvent, OperationEvent]] = []
    for pair, begun in sent.items():
        unfinished = max(len(begun) - len(received[pair]), 0) if len(begun) < _RING else 0
        found += zip(begun[unfinished:], received[pair], strict=False)
    return sorted(found, key=lambda pair: pair[0].begin)


def chrome(operations: list[OperationEvent], kernels: list[StepEvent]) -> dict[str, Any]:
    """The trace for Perfetto and chrome://tracing: a process for each rank, times in µs from the first operation."""
    zero = min((o.begin for o in operations), default=0)
    ranks = sorted({o.rank for o in operations})
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": r, "name": "process_name", "args": {"name": f"rank {r}"}} for r in ranks
    ]
    for o in operations:
        where = {"line": o.site["line"], "bytes": o.nbytes, "number": o.number, "communicator": o.site["group"]}
        if o.late >= 0:
            where |= {"waited for rank": o.late, "waited for µs": o.wait / 1000}
        start, length = (o.begin - zero) / 1000, (o.end - o.begin) / 1000
        name = o.site["label"] + ("" if o.done else " (not finished)")
        events.append({"ph": "X", "pid": o.rank, "tid": 0, "name": name, "ts": start, "dur": length, "args": where})
    for k in kernels:
        times = {"ts": (k.begin - zero) / 1000, "dur": (k.end - k.begin) / 1000}
        events.append({"ph": "X", "pid": k.rank, "tid": 1, "name": k.label, **times, "args": {"line": k.line}})
    for i, (a, b) in enumerate(messages(operations)):
        flow: dict[str, Any] = {"name": "message", "cat": "message", "id": i, "tid": 0}
        events.append({"ph": "s", "pid": a.rank, "ts": (a.begin - zero) / 1000, **flow})
        events.append({"ph": "f", "bp": "e", "pid": b.rank, "ts": (max(b.end, a.begin) - zero) / 1000, **flow})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _totals(
    operations: list[OperationEvent],
) -> tuple[dict[tuple[int, int], list[int]], dict[tuple[str, str], list[int]]]:
    """({(waiting rank, late rank): [ns, operations]}, {(label, line): [ns of waiting, ns, operations]})."""
    pairs: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    lines: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for o in operations:
        if o.late >= 0:
            pairs[o.rank, o.late][0] += o.wait
            pairs[o.rank, o.late][1] += 1
        row = lines[o.site["label"], o.site["line"]]
        row[0] += o.wait
        row[1] += o.end - o.begin
        row[2] += 1
    return pairs, lines


def figures(operations: list[OperationEvent]) -> dict[str, Any]:
    """The content of `summary` as data: times in seconds."""
    pairs, lines = _totals(operations)
    return {
        "operations": len(operations),
        "ranks": sorted({o.rank for o in operations}),
        "waits": [
            {"rank": a, "late": b, "seconds": t / 1e9, "operations": n} for (a, b), (t, n) in sorted(pairs.items())
        ],
        "lines": [
            {"operation": label, "line": line, "seconds": total / 1e9, "waiting": wait / 1e9, "operations": n}
            for (label, line), (wait, total, n) in sorted(lines.items())
        ],
        "unfinished": [
            {"rank": o.rank, "operation": o.site["label"], "line": o.site["line"]} for o in operations if not o.done
        ],
    }


def summary(operations: list[OperationEvent]) -> str:
    """Which rank waited for which, and in which lines."""
    pairs, lines = _totals(operations)
    out = [f"{len(operations)} operations of {len({o.rank for o in operations})} ranks"]
    out += [
        f"  rank {a} waited {t / 1e6:.3f} ms for rank {b} in {n} operations"
        for (a, b), (t, n) in sorted(pairs.items(), key=lambda item: -item[1][0])[:20]
    ]
    out.append("by line, summed over all ranks:")
    out += [
        f"  {total / 1e6:10.3f} ms ({wait / 1e6:.3f} ms waiting) in {n} x {label}  {line}"
        for (label, line), (wait, total, n) in sorted(lines.items(), key=lambda item: -item[1][1])[:20]
    ]
    out += [f"  rank {o.rank} is still in {o.site['label']}  {o.site['line']}" for o in operations if not o.done]
    return "\n".join(out)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="mpijax trace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("files", nargs="+", type=Path, help="mpijax-record-*.json, one file of each rank")
    p.add_argument(
        "-o", "--output", type=Path, default=Path("mpijax-trace"),
        help="output files, without suffix (default: mpijax-trace)",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="print the waits as JSON instead of text")
    return p


def main(arguments: list[str]) -> int:
    """Merge records; 1 if they do not belong to one job."""
    options = parser().parse_args(arguments)
    try:
        size, operations, kernels = load(options.files)
    except (OSError, ValueError) as error:
        print(f"mpijax trace: {error}", file=sys.stderr)
        return 1
    find_waits(operations)
    trace, html = options.output.with_suffix(".json"), options.output.with_suffix(".html")
    trace.write_text(json.dumps(chrome(operations, kernels)))
    text = page(operations, kernels, messages(operations), volumes(size, operations), summary(operations))
    html.write_text(text, encoding="utf-8")
    if options.json:
        files = {"trace": str(trace), "page": str(html)}
        print(json.dumps(figures(operations) | files, indent=2))
        return 0
    print(summary(operations))
    print(f"{trace}: open in https://ui.perfetto.dev or chrome://tracing; {html}: open in a browser")
    return 0
