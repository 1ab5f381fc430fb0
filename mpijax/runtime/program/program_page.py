"""Renders a compiled program as a page: the user's lines with their steps, all steps, buffers, and array shardings."""

from __future__ import annotations

import html
import itertools
import linecache
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpijax.compiler.loops.show import nest_text
from mpijax.compiler.steps.instructions import (
    Communicate,
    GemmCall,
    KernelCall,
    NativeCall,
    PythonCall,
    bodies,
    line_of,
    walk,
)
from mpijax.compiler.steps.plan import ProgramPlan, ResultPlacement
from mpijax.core.base import pages
from mpijax.core.base.source import Source
from mpijax.core.base.units import amount
from mpijax.core.sharding.cuts import Cut, part_number
from mpijax.runtime.program.explain import explained
from mpijax.runtime.program.traffic import sent

_TEMPLATE = """<title>TITLE</title>
<style>
 body { font: 14px sans-serif; margin: 1em; } pre, code { font: 12px monospace; }
 table { border-collapse: collapse; } td, th { padding: 2px 8px; border: 1px solid #ddd; text-align: right; }
 td.text, th.text { text-align: left; } tr.line { cursor: pointer; } .chosen { background: #fff3b0; }
 .step { margin: 1px 0 1px 1em; padding: 1px 6px; border-left: 4px solid #bbb; }
 .kernel { border-color: #4a7ebb; } .library { border-color: #2f9e44; } .message { border-color: #d9534f; }
 .python { border-color: #f08c00; } .hidden { display: none; }
 pre { background: #f6f6f6; padding: 6px; overflow: auto; }
 svg { vertical-align: middle; } .rank { font: 9px monospace; }
</style>
<h1>TITLE</h1>
<p>SUMMARY</p>
<p><input id="filter" placeholder="show steps that contain ..." size="40"> Click a line to see its steps.</p>
<h2>Lines</h2>
<table>LINES</table>
PLACEMENT
<h2>Steps</h2>
<p>Blue: a kernel (open it to see its loops); green: a library; red: a message; orange: Python.</p>
STEPS
<details><summary>Buffers</summary><table>BUFFERS</table></details>
<details><summary>What this rank sends</summary><pre>SENT</pre></details>
<script>
const filter = document.getElementById("filter"), lines = document.querySelectorAll("tr.line");
const steps = document.querySelectorAll(".leaf");
let chosen = null;
function show() {
  const text = filter.value.toLowerCase();
  steps.forEach(s => s.classList.toggle("hidden",
    (chosen !== null && s.dataset.line !== chosen) || !s.textContent.toLowerCase().includes(text)));
  lines.forEach(l => l.classList.toggle("chosen", l.dataset.line === chosen));
}
lines.forEach(l => l.onclick = () => { chosen = chosen === l.dataset.line ? null : l.dataset.line; show(); });
filter.oninput = show;
</script>
"""

_KINDS = {
    KernelCall: "kernel", GemmCall: "library", NativeCall: "library", Communicate: "message", PythonCall: "python"
}  # fmt: skip
_COLOURS = ("#a5d8ff", "#b2f2bb", "#ffec99", "#ffc9c9", "#d0bfff", "#99e9f2", "#ffd8a8", "#eebefa")
_MOST_RANKS = 64  # the maximum that a grid shows one by one


class ProgramPage:
    """A compiled program as one self-contained HTML file. A notebook displays it.

    >>> page = mpijax.jit(jnp.sin).lower(jnp.ones(3)).compile().show()
    >>> "<h2>Steps</h2>" in page.html
    True
    """

    def __init__(self, plan: ProgramPlan, name: str):
        self.html = _page(plan, name)

    def save(self, path: str | os.PathLike) -> None:
        """Write the page to a file."""
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        return pages.frame(self.html)


def _page(plan: ProgramPlan, name: str) -> str:
    messages, nests = sent(plan), dict(_nests(plan))
    memory = plan.memory()
    held = memory["argument"] + memory["output"] - memory["alias"] + memory["temp"]
    count = [(kind, sum(isinstance(s, cls) for s in walk(plan.instructions))) for cls, kind in _KINDS.items()]
    what = ", ".join(f"{sum(n for _, n in group)} {kind}" for kind, group in itertools.groupby(count, lambda x: x[0]))
    volume = amount(sum(s.total for s in messages))
    summary = f"Steps: {what}. Memory: {amount(held)}. This rank sends {volume} in one run."
    return pages.page(
        _TEMPLATE,
        {
            "TITLE": html.escape(f"Program of {name}"),
            "SUMMARY": html.escape(summary),
            "LINES": _lines(plan, messages),
            "PLACEMENT": _placement(plan.placed, _volumes(messages)),
            "STEPS": "".join(_step(s, nests) for s in plan.instructions),
            "BUFFERS": _buffers(plan),
            "SENT": html.escape(explained(plan)),
        },
    )


def _at(source: Source | None) -> str:
    return f"{source.file}:{source.line}" if source is not None and source.file else ""


def _code(source: Source) -> str:
    return linecache.getline(source.file, source.line).strip()


def _lines(plan: ProgramPlan, messages: list[Any]) -> str:
    """A row for each of the user's lines: the number of steps of each kind, and bytes sent."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    sources: dict[str, Source] = {}
    for s in walk(plan.instructions):
        source = getattr(s, "source", None)
        if source is not None and type(s) in _KINDS and _at(source):
            counts[_at(source)][_KINDS[type(s)]] += 1
            sources[_at(source)] = source
    volume = _volumes(messages)
    head = '<tr><th class="text">line</th><th class="text">code</th>' + "".join(
        f"<th>{kind}</th>" for kind in ("kernel", "library", "message", "python", "bytes sent")
    )
    rows = []
    for at, source in sorted(sources.items(), key=lambda item: (item[1].file, item[1].line)):
        short = html.escape(f"{Path(source.file).name}:{source.line}")
        cells = "".join(f"<td>{counts[at][k] or ''}</td>" for k in ("kernel", "library", "message", "python"))
        bytes_sent = amount(volume[at]) if volume[at] else ""
        rows.append(
            f'<tr class="line" data-line="{html.escape(at)}"><td class="text">{short}</td>'
            f'<td class="text"><code>{html.escape(_code(source))}</code></td>{cells}<td>{bytes_sent}</td></tr>'
        )
    return head + "</tr>" + "".join(rows)


def _volumes(messages: list[Any]) -> dict[str, float]:
    """Bytes that this rank sends for each line."""
    volume: dict[str, float] = defaultdict(float)
    for m in messages:
        volume[_at(m.source)] += m.total
    return volume


def _nests(plan: ProgramPlan) -> Any:
    """The text of each kernel, by its name and line; of kernels alike, the first one's."""
    for kernel in reversed(plan.nests):
        yield (kernel.name, _at(kernel.source)), nest_text(kernel)


def _step(step: Any, nests: dict[tuple[str, str], str]) -> str:
    at = _at(getattr(step, "source", None))
    line = f'data-line="{html.escape(at)}"'
    text = f"<code>{html.escape(line_of(step).strip())}</code>"
    inside = bodies(step)
    if inside:
        parts = "".join(
            f"<div>{html.escape(f'part {i}') if len(inside) > 1 else ''}{''.join(_step(s, nests) for s in body)}</div>"
            for i, body in enumerate(inside)
        )
        return f'<details open class="step"><summary>{text}</summary>{parts}</details>'
    kind = _KINDS.get(type(step), "")
    if isinstance(step, KernelCall) and (step.label, at) in nests:
        loops = html.escape(nests[step.label, at])
        return f'<details class="step leaf {kind}" {line}><summary>{text}</summary><pre>{loops}</pre></details>'
    return f'<div class="step leaf {kind}" {line}>{text}</div>'


def _buffers(plan: ProgramPlan) -> str:
    most = max([1, *(b.nbytes for b in plan.buffers)])
    rows = "".join(
        f'<tr><td>b{i}</td><td class="text">{type(b).__name__.lower()}</td><td>{amount(b.nbytes)}</td>'
        f'<td class="text"><svg width="200" height="10"><rect width="{200 * b.nbytes / most:.1f}" height="10" '
        f'fill="#4a7ebb"/></svg></td></tr>'
        for i, b in enumerate(plan.buffers)
    )
    return f'<tr><th>buffer</th><th class="text">kind</th><th>size</th><th></th></tr>{rows}'


# ---------------------------------------------------------------- array shardings


def _placement(placed: Sequence[ResultPlacement], volume: dict[str, float]) -> str:
    """A row for each line, with a grid for each array that shows which rank has which block."""
    if not placed:
        return ""
    rows: dict[str, list[ResultPlacement]] = defaultdict(list)
    for p in placed:
        rows[_at(p.source)].append(p)
    out = []
    for at, arrays in rows.items():
        source = arrays[0].source
        first = {(p.aval.str_short(True), p.mesh, p.cuts): p for p in reversed(arrays)}
        cells = "".join(
            f"<td>{grid(p)}<br><code>{html.escape(f'{p.operation}: {p.aval.str_short(True)}')}</code></td>"
            for p in reversed(first.values())
        )
        short = html.escape(f"{Path(source.file).name}:{source.line}") if at else ""
        code = html.escape(_code(source)) if at else ""
        out.append(f'<tr><td class="text">{short}</td><td class="text"><code>{code}</code></td>'
            f"<td>{amount(volume[at])} sent</td>{cells}</tr>"
        )
    return (
        "<h2>Shards of arrays</h2><p>One grid for each result of a line. The numbers are ranks of the "
        f"mesh.</p><table>{''.join(out)}</table>"
    )


def grid(placed: ResultPlacement, width: int = 120, height: int = 60) -> str:
    """An array as a rectangle: first axis downwards, last axis to the right, one block for each part.

    Other axes are not drawn. A block lists the ranks that hold it.
    """
    last = len(placed.aval.shape) - 1
    rows = _spans(placed, 0) if placed.aval.shape else [(0.0, 1.0)]
    columns = _spans(placed, last) if last > 0 else [(0.0, 1.0)]
    owners = _owners(placed)
    parts = []
    for i, (top, bottom) in enumerate(rows):
        for j, (left, right) in enumerate(columns):
            ranks = owners.get((i, j), [])
            x, y, w, h = left * width, top * height, (right - left) * width, (bottom - top) * height
            colour = _COLOURS[ranks[0] % len(_COLOURS)] if ranks else "#fff"
            shown = html.escape(_ranks(ranks))
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{colour}" stroke="#555"/>'
                f'<text class="rank" x="{x + 3:.1f}" y="{y + min(h, 14) - 3:.1f}">{shown}</text>'
            )
    return f'<svg width="{width}" height="{height}" role="img">{"".join(parts)}</svg>'


def _spans(placed: ResultPlacement, dim: int) -> list[tuple[float, float]]:
    """The parts of an axis, as fractions of its length."""
    cut, size = placed.cuts[dim], placed.aval.shape[dim] or 1
    return [(0.0, 1.0)] if cut is None else [(low / size, high / size) for low, high in cut.spans]


def _owners(placed: ResultPlacement) -> dict[tuple[int, int], list[int]]:
    """The mesh ranks, in row-major order, that hold each (row, column) of blocks."""
    sizes = dict(placed.mesh)
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    if math.prod(sizes.values()) > _MOST_RANKS:
        return found
    first = placed.cuts[0] if placed.aval.shape else None
    second = placed.cuts[-1] if len(placed.aval.shape) > 1 else None
    for rank, place in enumerate(itertools.product(*(range(n) for n in sizes.values()))):
        at = dict(zip(sizes, place, strict=True))
        found[_part(first, sizes, at), _part(second, sizes, at)].append(rank)
    return found


def _part(cut: Cut | None, sizes: dict[Any, int], at: dict[Any, int]) -> int:
    return 0 if cut is None else part_number(cut.axes, sizes, at)


def _ranks(numbers: list[int]) -> str:
    """``0-3`` for [0, 1, 2, 3], ``0,2`` for [0, 2]."""
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))
