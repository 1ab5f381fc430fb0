"""The page of `mpijax trace`: each rank's timeline and the communication matrix, in one file."""

from __future__ import annotations

import html
from collections import defaultdict
from typing import Any

from mpijax.core.base import pages
from mpijax.core.base.units import amount, duration

_PAGE = """<title>mpijax trace</title>
<style>
 body { font: 14px sans-serif; margin: 1em; }
 canvas { border: 1px solid #ccc; width: 100%; cursor: grab; }
 td { padding: 2px 8px; text-align: right; border: 1px solid #ddd; }
 pre { background: #f6f6f6; padding: 1em; overflow: auto; }
</style>
<h1>Communication</h1>
<p>Blue: transfer; red: waiting for a later rank; grey: computing; green: kernels; arrows: messages. The wheel zooms,
dragging moves, a double click shows everything, pointing tells.</p>
<p>KERNELS</p>
<p id="what">&nbsp;</p>
<canvas id="line"></canvas>
<h2>Bytes from rank (rows) to rank (columns)</h2>
<table>MATRIX</table>
<h2>Who waited for whom</h2>
<pre>SUMMARY</pre>
<script>
const rows = ROWS;  // [rank, begin, wait, length, name, text, kind] in microseconds; kind: see `fills`
const fills = ["#e3e6ea", "#4a7ebb", "#2f9e44"];  // between operations, an operation, a kernel
const arrows = ARROWS;  // [rank, time, rank, time]
const ranks = RANKS, height = 28, top_ = 24, left = 70;
const canvas = document.getElementById("line"), what = document.getElementById("what");
const end = rows.reduce((last, r) => Math.max(last, r[1] + r[3]), 1);
let from = 0, to = end, held = null;
const row = rank => top_ + ranks.indexOf(rank) * height;
function time_text(us, step) {
  for (const [unit, size] of [["s", 1e6], ["ms", 1e3], ["µs", 1], ["ns", 1e-3]])
    if (step >= size || unit === "ns") return +(us / size).toPrecision(6) + " " + unit;
}
function draw() {
  canvas.width = canvas.clientWidth; canvas.height = top_ + height * ranks.length + 4;
  const c = canvas.getContext("2d"), scale = (canvas.width - left) / (to - from), x = t => left + (t - from) * scale;
  c.font = "11px sans-serif";
  let step = Math.pow(10, Math.ceil(Math.log10((to - from) / 10)));
  if (step * scale > 240) step /= 2;
  c.strokeStyle = "#eee"; c.fillStyle = "#666";
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    c.beginPath(); c.moveTo(x(t), top_ - 6); c.lineTo(x(t), canvas.height); c.stroke();
    c.fillText(time_text(t, step), x(t) + 3, 12);
  }
  rows.forEach(r => {
    const a = x(r[1]), w = Math.max(1, r[3] * scale), y = row(r[0]) + 3;
    if (a > canvas.width || a + w < left) return;
    c.fillStyle = fills[r[6]]; c.fillRect(a, y, w, height - 6);
    c.fillStyle = "#d9534f"; c.fillRect(a, y, r[2] * scale, height - 6);
    const begin = Math.max(a, left), room = a + w - begin;
    if (room > 40) {
      c.save(); c.beginPath(); c.rect(begin, y, room, height - 6); c.clip();
      c.fillStyle = r[6] ? "#fff" : "#555"; c.fillText(r[4], begin + 3, y + 15); c.restore();
    }
  });
  c.strokeStyle = c.fillStyle = "#222";
  arrows.forEach(([a, begin, b, last]) => {
    if (last < from || begin > to) return;
    const down = row(b) > row(a), x0 = x(begin), x1 = x(last), y0 = row(a) + (down ? height - 3 : 3);
    const y1 = row(b) + (down ? 3 : height - 3), angle = Math.atan2(y1 - y0, x1 - x0);
    c.beginPath(); c.moveTo(x0, y0); c.lineTo(x1, y1); c.stroke();
    c.beginPath(); c.moveTo(x1, y1);
    for (const turn of [0.4, -0.4]) c.lineTo(x1 - 7 * Math.cos(angle + turn), y1 - 7 * Math.sin(angle + turn));
    c.fill();
  });
  c.fillStyle = "#fff"; c.fillRect(0, top_, left, canvas.height);
  c.fillStyle = "#000"; ranks.forEach(r => c.fillText("rank " + r, 4, row(r) + 18));
}
const time = e => from + (e.offsetX - left) / (canvas.clientWidth - left) * (to - from);
canvas.onwheel = e => {
  e.preventDefault();
  const t = time(e), f = e.deltaY > 0 ? 1.25 : 0.8;
  from = t - (t - from) * f; to = t + (to - t) * f; draw();
};
canvas.onmousedown = e => { held = time(e); };
canvas.ondblclick = () => { from = 0; to = end; draw(); };
window.onmouseup = () => { held = null; };
canvas.onmousemove = e => {
  const t = time(e);
  if (held !== null) { from += held - t; to += held - t; draw(); return; }
  const rank = ranks[Math.floor((e.offsetY - top_) / height)], near = (to - from) / canvas.clientWidth;
  const over = r => r[0] === rank && t >= r[1] - near && t <= r[1] + r[3] + near;
  const found = [1, 2, 0].map(kind => rows.find(r => r[6] === kind && over(r))).find(r => r);
  if (found) what.textContent = found[5];
};
window.onresize = draw;
draw();
</script>
"""


_HOW = """These records do not contain kernels. To see the kernels of each line of the program, run it with
<code>MPIJAX_PROFILE_KERNELS=1</code> in the environment."""


def page(
    operations: list[Any],
    kernels: list[Any],
    arrows: list[tuple[Any, Any]],
    matrix: list[list[int]],
    summary: str,
) -> str:
    """The whole page. arrows: (sending operation, receiving operation) of each message."""
    zero = min((o.begin for o in operations), default=0)
    in_order = sorted(operations, key=lambda o: o.begin)
    rows = [
        [o.rank, (o.begin - zero) / 1000, o.wait / 1000, (o.end - o.begin) / 1000, _name(o), _text(o), 1]
        for o in in_order
    ]
    messages = [
        [a.rank, (a.begin - zero) / 1000, b.rank, (max(b.end, a.begin) - zero) / 1000] for a, b in arrows
    ]
    parts = {
        "MATRIX": _table(matrix),
        "SUMMARY": html.escape(summary),
        "KERNELS": _busiest(kernels) if kernels else _HOW,
        "ROWS": pages.data(_between(in_order, zero) + _kernels(kernels, zero) + rows),
        "ARROWS": pages.data(messages),
        "RANKS": pages.data(sorted({o.rank for o in operations})),
    }
    return pages.page(_PAGE, parts)


def _between(in_order: list[Any], zero: int) -> list[list[Any]]:
    """The time of each rank between two operations, named by the lines around it."""
    latest: dict[int, Any] = {}
    rows = []
    for o in in_order:
        before = latest.get(o.rank)
        if before is not None and o.begin > before.end:
            length = (o.begin - before.end) / 1000
            text = f"rank {o.rank}, {duration(length)} of computing between {_name(before)} and {_name(o)}"
            rows.append([o.rank, (before.end - zero) / 1000, 0, length, _line(o), text, 0])
        latest[o.rank] = o
    return rows


def _kernels(kernels: list[Any], zero: int) -> list[list[Any]]:
    """The kernels, named by their lines."""
    rows = []
    for k in kernels:
        length = (k.end - k.begin) / 1000
        text = f"rank {k.rank}, {duration(length)} of {k.label} - {k.line or 'no line'}"
        rows.append([k.rank, (k.begin - zero) / 1000, 0, length, f"{k.label} {_short(k.line)}".strip(), text, 2])
    return rows


def _busiest(kernels: list[Any]) -> str:
    """The lines whose kernels take most time, summed over ranks."""
    times: dict[str, int] = defaultdict(int)
    for k in kernels:
        times[_short(k.line) or k.label] += k.end - k.begin
    most = sorted(times.items(), key=lambda item: -item[1])[:5]
    said = ", ".join(f"{html.escape(line)} ({duration(ns / 1000)})" for line, ns in most)
    return f"Lines whose kernels take most time, summed over all ranks: {said}."


def _line(o: Any) -> str:
    return _short(o.site["line"])


def _short(line: str) -> str:
    """``program.py:12`` of a line; empty if there is none."""
    return line.partition(" (")[0].rpartition("/")[2]


def _name(o: Any) -> str:
    line = _line(o)
    return f"{o.site['label']} {line}" if line else o.site["label"]


def _text(o: Any) -> str:
    waited = f", waited {duration(o.wait / 1000)} for rank {o.late}" if o.late >= 0 else ""
    state = "" if o.done else ", not finished"
    return (
        f"rank {o.rank}, operation {o.number}: {o.site['label']} on {o.site['group']}, {amount(o.nbytes)}, "
        f"{duration((o.end - o.begin) / 1000)}{waited}{state} - {o.site['line']}"
    )


def _table(matrix: list[list[int]]) -> str:
    most = max([1, *(n for row in matrix for n in row)])
    head = "<tr><td></td>" + "".join(f"<td>{r}</td>" for r in range(len(matrix))) + "</tr>"
    body = "".join(
        f"<tr><td>{r}</td>"
        + "".join(f'<td style="background:rgba(74,126,187,{n / most:.2f})">{amount(n)}</td>' for n in row)
        + "</tr>"
        for r, row in enumerate(matrix)
    )
    return head + body
