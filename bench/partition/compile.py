"""Time to compile a program for one of several ranks, beside the same program without shardings.

Both are traced, planned and made machine code with nothing on disk, in turn; the least processor time counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import mpijax as jax
from bench.partition.memory import arguments
from bench.partition.program import Program
from mpijax.compiler.backend.llvm import compile_object
from mpijax.compiler.steps.plan import module_text

TIMES = 3
MORE = 1.5


class Spent(NamedTuple):
    """Seconds until a program is planned, and until it is machine code; its kernels."""

    planned: float
    compiled: float
    kernels: int


def spent(program: Program, given: Sequence[Any]) -> Spent:
    start = time.process_time()
    plan = jax.jit(lambda *args: program.function(*args)).lower(*given).compiler_ir()
    planned = time.process_time()
    if plan.kernels:
        compile_object(module_text(list(plan.kernels.values())))
    return Spent(planned - start, time.process_time() - start, len(plan.kernels))


def row(program: Program, ranks: int) -> dict:
    """What both take."""
    split = arguments(program, ranks, ranks // 2)
    alone = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in split]
    times = [(spent(program, alone), spent(program, split)) for _ in range(TIMES)]
    one, many = (Spent(*map(min, zip(*column, strict=True))) for column in zip(*times, strict=True))
    return {"name": program.name, "alone": one, "split": many, "x": many.compiled / one.compiled}


def text_table(rows: Iterable[dict]) -> str:
    """The rows, and how many programs take more than 1.5 times as long."""
    rows = sorted(rows, key=lambda r: r["x"])
    width = max(len(r["name"]) for r in rows)
    lines = [f"{'ms, one rank: split'.ljust(width)}         planned        compiled     x  kernels"]
    for r in rows:
        a, s, mark = r["alone"], r["split"], "!" if r["x"] > MORE else " "
        cells = f"{1e3 * a.planned:8.1f}{1e3 * s.planned:8.1f}{1e3 * a.compiled:8.1f}{1e3 * s.compiled:8.1f}"
        lines.append(f"{r['name'].ljust(width)}{cells}{r['x']:6.2f}{mark}{a.kernels:4}{s.kernels:4}")
    above, middle = sum(r["x"] > MORE for r in rows), statistics.median(r["x"] for r in rows)
    one, many = (sum(r[k].compiled for r in rows) for k in ("alone", "split"))
    lines += ["", f"Median {middle:.2f}, all together {many / one:.2f}; {above} of {len(rows)} above {MORE}."]
    return "\n".join(lines)
