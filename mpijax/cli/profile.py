"""``mpijax profile -n 2 script.py``: run a program, and show where its time goes, by source line.

The table has a row for each line of the program: seconds per rank, the share of the time, the number of kernel runs,
bytes and operations per second, and the fraction of the machine's limit: of its bandwidth ("memory"), measured by
copying, or of its arithmetic ("arithmetic"), measured by a matrix product. Exchanges with other ranks have their own
rows. A rank computes with its share of the cores. The rest of the time is Python, tracing and compiling.
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from mpijax.cli import observed
from mpijax.cli.launcher import NoLauncher
from mpijax.cli.profiled import STARTER
from mpijax.core.base import pages
from mpijax.core.base.units import duration

_ROW = "{:>9} {:>6} {:>9} {:>10} {:>12}  {:14} {}"
# Minimum share of the time of a row in the table, and maximum number of rows.
_SHARE, _ROWS = 0.002, 40
_PAGE = """<title>mpijax profile</title>
<style>
 body { font: 13px sans-serif; margin: 1em; } pre { background: #f6f6f6; padding: 6px; overflow: auto; }
 .box { box-sizing: border-box; overflow: hidden; min-width: 0; }
 .name { border: 1px solid white; border-radius: 2px; padding: 1px 3px; white-space: nowrap; overflow: hidden;
         cursor: pointer; height: 18px; }
 .inside { display: flex; }
</style>
<h1>Time of WHAT</h1>
<p>SUMMARY</p>
<p>The width of a box is its time, summed over all ranks. Boxes are programs, their lines, and the steps of a line.
Click a box to zoom in. Click the top box to zoom out.</p>
<div id="flames">FLAMES</div>
<pre>TABLE</pre>
<script>
const all = document.querySelectorAll(".box");
document.getElementById("flames").addEventListener("click", event => {
  const box = event.target.closest(".box");
  if (!box) return;
  all.forEach(b => { b.style.flexGrow = b.dataset.time; b.style.display = ""; });
  for (let b = box; b.parentElement.closest(".box"); b = b.parentElement.closest(".box"))
    for (const other of b.parentElement.children) if (other !== b) other.style.display = "none";
});
</script>
"""
_COLORS = {"kernel": "#f6c177", "library": "#9ccfd8", "python": "#eb9fb4", "exchange": "#c4a7e7", "": "#e0def4"}


def parser() -> argparse.ArgumentParser:
    return observed.parser("profile", __doc__, "a flame graph and the table")


def main(arguments: list[str]) -> int:
    """Return the exit status of the program; 2 for wrong arguments, 1 if there is no launcher."""
    options, program = observed.parsed(parser(), arguments)
    try:
        status, records = observed.observed(options, program, STARTER)
    except NoLauncher as error:
        print(f"mpijax profile: {error}", file=sys.stderr)
        return 1
    if not records:  # a signal has ended a rank
        print("mpijax profile: no rank finished the program", file=sys.stderr)
        return status or 1
    found = merged(records)
    if options.html is not None:
        options.html.write_text(_page(" ".join(program), found), encoding="utf-8")
    print(json.dumps(found, indent=2) if options.json else text_of(found))
    return status


def merged(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The records of all ranks combined: mean times per rank; `by_rank` has each rank's."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in records:
        for step in record["steps"]:
            key = tuple(step[name] for name in ("program", "kind", "label", "line"))
            row = rows.setdefault(
                key, {**step, "calls": 0, "seconds": 0.0, "flops": 0, "bytes": 0, "by_rank": [0.0] * len(records)}
            )
            for name in ("calls", "seconds", "flops", "bytes"):
                row[name] += step[name] / len(records)
            row["by_rank"][records.index(record)] += step["seconds"]
    return {
        "ranks": len(records), "seconds": _mean(records, "seconds"),
        "bytes_per_second": _mean(records, "bytes_per_second"), "flops_per_second": _mean(records, "flops_per_second"),
        "steps": sorted(rows.values(), key=lambda row: -row["seconds"]),
    }  # fmt: skip


def _mean(records: list[dict[str, Any]], name: str) -> float:
    return sum(record[name] for record in records) / len(records)


def by_line(found: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each of the user's lines, and one for its exchanges; the longest first."""
    rows: dict[tuple[str, bool], dict[str, Any]] = {}
    for step in found["steps"]:
        key = step["line"] or step["label"], step["kind"] == "exchange"
        row = rows.setdefault(
            key, {"line": key[0], "labels": {}, "calls": 0.0, "seconds": 0.0, "flops": 0.0, "bytes": 0.0,
                  "exchange": key[1], "by_rank": [0.0] * found["ranks"]},
        )  # fmt: skip
        for name in ("calls", "seconds", "flops", "bytes"):
            row[name] += step[name]
        row["labels"][step["label"]] = None
        row["by_rank"] = [a + b for a, b in zip(row["by_rank"], step["by_rank"], strict=True)]
    return sorted(rows.values(), key=lambda row: -row["seconds"])


def text_of(found: dict[str, Any]) -> str:
    """The profile as a table."""
    rows, whole = by_line(found), found["seconds"]
    exchanging = sum(row["seconds"] for row in rows if row["exchange"])
    computing = sum(row["seconds"] for row in rows) - exchanging
    ranks = f", in the mean of {found['ranks']} ranks" if found["ranks"] > 1 else ""
    rest = whole - computing - exchanging
    parts = [("programs compute", computing), ("exchange", exchanging), ("Python and compiling", rest)]
    lines = [
        f"{duration(whole * 1e6)}{ranks}: " + ", ".join(f"{name} {duration(s * 1e6)}" for name, s in parts if s > 0),
        f"this machine, per rank: {found['bytes_per_second'] / 1e9:.3g} GB/s of memory, "
        f"{found['flops_per_second'] / 1e9:,.0f} Gflop/s of float32 products",
        _ROW.format("a rank", "share", "calls", "GB/s", "Gflop/s", "of the machine", "line"),
    ]
    for row in [r for r in rows if r["seconds"] >= _SHARE * whole][:_ROWS]:
        rates = (_rate(row, "bytes"), _rate(row, "flops"))
        lines.append(
            _ROW.format(
                duration(row["seconds"] * 1e6), f"{row['seconds'] / whole:.1%}", f"{row['calls']:,.0f}", *rates,
                _bound(row, found), f"{row['line']}  {_what(row)}",
            ).rstrip()
        )  # fmt: skip
        if found["ranks"] > 1 and max(row["by_rank"]) > 1.5 * row["seconds"]:
            slow = max(range(found["ranks"]), key=row["by_rank"].__getitem__)
            lines.append(f"{'':10}rank {slow} takes longest: {duration(row['by_rank'][slow] * 1e6)}")
    return "\n".join(lines)


def _rate(row: dict[str, Any], name: str) -> str:
    return f"{row[name] / row['seconds'] / 1e9:,.3g}" if row[name] and row["seconds"] else "-"


def _bound(row: dict[str, Any], found: dict[str, Any]) -> str:
    """The fraction of the machine that a line uses: of its memory or of its arithmetic, whichever is larger."""
    if not row["seconds"] or not (row["bytes"] or row["flops"]):
        return "-"
    parts = {
        "memory": row["bytes"] / row["seconds"] / found["bytes_per_second"],
        "arithmetic": row["flops"] / row["seconds"] / found["flops_per_second"],
    }
    name = max(parts, key=parts.__getitem__)
    return f"{parts[name]:.0%} {name}"


def _what(row: dict[str, Any]) -> str:
    labels = list(row["labels"])
    return ", ".join(labels[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")


def _page(what: str, found: dict[str, Any]) -> str:
    programs: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for step in found["steps"]:
        programs[step["program"]][step["line"] or "no line"].append(step)
    boxes = []
    for name, lines in programs.items():
        inner = []
        for line, steps in lines.items():
            own = [_box(s["label"], s["seconds"], s["kind"], []) for s in steps]
            inner.append(_box(line, _total(steps), "", own))
        boxes.append(_box(name, _total(s for steps in lines.values() for s in steps), "", inner))
    total = _total(found["steps"])
    summary, table = text_of(found).split("\n", 1)
    parts = {
        "WHAT": html.escape(what), "SUMMARY": html.escape(summary), "TABLE": html.escape(table),
        "FLAMES": _box("all programs", total, "", boxes),
    }  # fmt: skip
    return pages.page(_PAGE, parts)


def _total(steps: Iterable[dict[str, Any]]) -> float:
    return sum(s["seconds"] for s in steps)


def _box(name: str, seconds: float, kind: str, inner: list[str]) -> str:
    said = html.escape(f"{name}: {duration(seconds * 1e6)}")
    return (
        f'<div class="box" data-time="{seconds:.9f}" style="flex: {seconds:.9f} 0 0" title="{said}">'
        f'<div class="name" style="background: {_COLORS[kind]}">{html.escape(name)}</div>'
        f'<div class="inside">{"".join(inner)}</div></div>'
    )
