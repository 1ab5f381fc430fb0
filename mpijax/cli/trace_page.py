"""The page of `mpijax trace`: a timeline of each rank and the communication matrix, in one file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from typing import Any

_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; SCRIPT_SOURCE">
<title>mpijax trace</title>
<style>
 body { font: 14px sans-serif; margin: 1em; }
 canvas { border: 1px solid #ccc; width: 100%; }
 td { padding: 2px 8px; text-align: right; border: 1px solid #ddd; }
 pre { background: #f6f6f6; padding: 1em; overflow: auto; }
</style>
<h1>Communication</h1>
<p id="what">Red: waiting for a later rank; blue: transfer. The wheel zooms, dragging moves, pointing tells.</p>
<canvas id="line"></canvas>
<h2>Bytes from rank (rows) to rank (columns)</h2>
<table>MATRIX</table>
<h2>Who waited for whom</h2>
<pre>SUMMARY</pre>
<script>
const rows = ROWS;  // [rank, begin, wait, length, text] in microseconds
const ranks = RANKS, height = 24, canvas = document.getElementById("line"), what = document.getElementById("what");
const end = Math.max(1, ...rows.map(r => r[1] + r[3]));
let from = 0, to = end, held = null;
function draw() {
  canvas.width = canvas.clientWidth; canvas.height = height * ranks.length;
  const c = canvas.getContext("2d"), scale = (canvas.width - 70) / (to - from);
  rows.forEach(r => {
    const x = 70 + (r[1] - from) * scale, y = ranks.indexOf(r[0]) * height + 3;
    if (x > canvas.width || x + r[3] * scale < 70) return;
    c.fillStyle = "#4a7ebb"; c.fillRect(x, y, Math.max(1, r[3] * scale), height - 6);
    c.fillStyle = "#d9534f"; c.fillRect(x, y, r[2] * scale, height - 6);
  });
  c.fillStyle = "#fff"; c.fillRect(0, 0, 70, canvas.height);
  c.fillStyle = "#000"; ranks.forEach((r, i) => c.fillText("rank " + r, 4, i * height + 16));
}
const time = e => from + (e.offsetX - 70) / (canvas.clientWidth - 70) * (to - from);
canvas.onwheel = e => {
  e.preventDefault();
  const t = time(e), f = e.deltaY > 0 ? 1.25 : 0.8;
  from = t - (t - from) * f; to = t + (to - t) * f; draw();
};
canvas.onmousedown = e => { held = time(e); };
window.onmouseup = () => { held = null; };
canvas.onmousemove = e => {
  const t = time(e);
  if (held !== null) { from += held - t; to += held - t; draw(); return; }
  const rank = ranks[Math.floor(e.offsetY / height)], near = (to - from) / canvas.clientWidth;
  const found = rows.find(r => r[0] === rank && t >= r[1] - near && t <= r[1] + r[3] + near);
  if (found) what.textContent = found[4];
};
window.onresize = draw;
draw();
</script>
"""


def page(operations: list[Any], matrix: list[list[int]], summary: str) -> str:
    """The whole page."""
    zero = min((o.begin for o in operations), default=0)
    rows = [
        [o.rank, (o.begin - zero) / 1000, o.wait / 1000, (o.end - o.begin) / 1000, _text(o)]
        for o in sorted(operations, key=lambda o: o.begin)
    ]
    parts = {
        "MATRIX": _table(matrix),
        "SUMMARY": html.escape(summary),
        "ROWS": _script_data(rows),
        "RANKS": _script_data(sorted({o.rank for o in operations})),
    }
    text = re.sub("|".join(parts), lambda found: parts[found[0]], _PAGE)
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return text.replace("SCRIPT_SOURCE", f"script-src 'sha256-{digest}'", 1)


def _script_data(value: Any) -> str:
    """JSON that a script element can hold: nothing in it ends the element, or begins a comment."""
    return json.dumps(value).replace("<", "\\u003c")


def _text(o: Any) -> str:
    waited = f", waited {o.wait / 1000:.1f} µs for rank {o.late}" if o.late >= 0 else ""
    state = "" if o.done else ", not finished"
    return (
        f"rank {o.rank}, operation {o.number}: {o.site['label']} on {o.site['group']}, {o.nbytes} bytes, "
        f"{(o.end - o.begin) / 1000:.1f} µs{waited}{state} - {o.site['line']}"
    )


def _table(matrix: list[list[int]]) -> str:
    most = max([1, *(n for row in matrix for n in row)])
    head = "<tr><td></td>" + "".join(f"<td>{r}</td>" for r in range(len(matrix))) + "</tr>"
    body = "".join(
        f"<tr><td>{r}</td>"
        + "".join(f'<td style="background:rgba(74,126,187,{n / most:.2f})">{n}</td>' for n in row)
        + "</tr>"
        for r, row in enumerate(matrix)
    )
    return head + body
