"""Writes a rank's record as a JSON file; `mpijax trace` merges the files of all ranks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from mpijax._ext import record
from mpijax.core.base.new_file import new_file
from mpijax.runtime.reports import step_notes
from mpijax.runtime.reports.recorder import Recorder, recorder


def write() -> Path:
    """Write this rank's last operations to ``mpijax-record-<job>-<rank>.json``; returns the path."""
    folder = Path(os.environ.get("MPIJAX_TRACE_DIR") or ".")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"mpijax-record-{recorder.job}-{recorder.rank}.json"
    descriptor, temporary = new_file(folder, ".new-")
    with os.fdopen(descriptor, "w") as file:
        json.dump(content(recorder), file)
    os.replace(temporary, path)
    return path.absolute()


def content(source: Recorder) -> dict[str, Any]:
    """The record as plain data.

    operations: [number, site, number in its sequence, bytes, begin, end] in ns since 1970; end None: in progress.
    sites: by number: label, line, sequence id, ranks of the communicator, ranks of messages.
    kernels: [label, line, begin, end] of the programs' steps since the first operation, if they were recorded.
    """
    region = source.mine
    last = int(region["started"])
    ring = region["ring"].copy()
    scale, zero = source.nanoseconds()

    def nanoseconds(tick: Any) -> int:
        return zero + int(int(tick) * scale)

    operations: list[list[Any]] = []
    first = int(region["started"]) - record.RING + 2  # new operations have overwritten the oldest; the next is starting
    for number in range(max(1, first), last + 1):
        e = ring[number % record.RING]
        end = nanoseconds(e["end"]) if e["end"] else None
        operations.append([number, int(e["site"]), int(e["number"]), int(e["nbytes"]), nanoseconds(e["begin"]), end])
    since = min((o[4] for o in operations), default=0)
    kernels = [[s.label, s.line, s.begin, s.end] for s in step_notes.spans() if s.begin >= since]
    used = sorted({o[1] for o in operations if o[1] in source.sites})
    sites = {str(i): _site(source, i) for i in used}
    return {
        "job": source.job, "rank": source.rank, "size": source.size, "host": os.uname().nodename,
        "pid": os.getpid(), "written": time.time_ns(), "sites": sites, "operations": operations,
        "kernels": kernels,
    }  # fmt: skip


def _site(source: Recorder, number: int) -> dict[str, Any]:
    site = source.sites[number]
    return {
        "label": site.label,
        "line": site.line,
        "sequence": source.sequence_of(source.mine, number),
        "group": site.group.name if site.group else "",
        "ranks": list(site.group.ranks) if site.group else [],
        "peers": None if site.peers is None else list(site.peers),
    }
