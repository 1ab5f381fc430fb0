"""Bytes that a rank holds where the problem grows with the ranks: programs are planned for simulated ranks.

The axes that are split grow with the number of ranks. Where a program needs other axes of the same length to grow too,
they do, and a rank's share of its arguments may grow. `x` is the memory on the most ranks divided by that on the
fewest, after division by the least that a rank can hold: its share of arguments and results. A program is marked `!` if
that and the bytes themselves grow by more than 10 %.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import numpy as np

import mpijax as jax
from bench.partition.program import Program
from mpijax.sharding import Mesh, NamedSharding, PartitionSpec
from mpijax.stages import Compiled

RANKS = (2, 4, 8, 16)
DRAWN_FOR = 4  # ranks that the sizes of the programs are meant for
MORE = 1.1


@functools.cache
def simulated_mesh(shape: tuple[tuple[str, int], ...], rank: int) -> Mesh:
    names, sizes = zip(*shape, strict=True)
    devices = jax.simulate.devices(math.prod(sizes), rank)
    return Mesh(np.array(devices, dtype=object).reshape(sizes), names)


def arguments(program: Program, ranks: int, rank: int) -> list[jax.ShapeDtypeStruct]:
    """The types of the arguments on that many ranks. Raises what the program raises if no sizes suit it."""
    given, wanted = program.mesh_shape(DRAWN_FOR), program.mesh_shape(ranks)
    mesh = simulated_mesh(tuple(wanted.items()), rank)
    split = {a.shape[d]: axis for a in program.arrays for d, axis in enumerate(a.spec) if axis is not None}

    def grown(alike: dict[int, str]) -> list[jax.ShapeDtypeStruct]:
        found = []
        for a in program.arrays:
            axes = [a.spec[d] if d < len(a.spec) and a.spec[d] else alike.get(n) for d, n in enumerate(a.shape)]
            shape = [n if x is None else n * wanted[x] // given[x] for n, x in zip(a.shape, axes, strict=True)]
            dtype = np.int32 if isinstance(a.drawn, int) else a.dtype
            sharding = NamedSharding(mesh, PartitionSpec(*a.spec))
            found.append(jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding))
        return found

    try:
        jax.eval_shape(program.function, *grown({}))
        return grown({})
    except (TypeError, ValueError):
        jax.eval_shape(program.function, *grown(split))
        return grown(split)


def planned(program: Program, ranks: int, rank: int) -> Compiled:
    """The program as one of the ranks would run it."""
    return jax.jit(program.function).lower(*arguments(program, ranks, rank)).compile()


def held(program: Program, ranks: int) -> tuple[int, float]:
    """Bytes that a rank holds at once, the most of three ranks; and a rank's share of arguments and results."""
    most, least = 0, 0.0
    for rank in sorted({0, ranks // 2, ranks - 1}):
        compiled = planned(program, ranks, rank)
        sizes = compiled.memory_analysis()
        results = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(compiled.out_info))
        most = max(most, sizes.peak_memory_in_bytes)
        least = max(least, sizes.argument_size_in_bytes + results / ranks)
    return most, least


def row(program: Program) -> dict:
    """The bytes on each number of ranks, and how much they grow; or the error."""
    try:
        found = [held(program, ranks) for ranks in RANKS]
    except (TypeError, ValueError, ZeroDivisionError) as error:
        return {"name": program.name, "error": f"sizes are fixed: {error}".replace("\n", " ")[:100]}
    (first, least), (last, least_last) = found[0], found[-1]
    growth = last / least_last / (first / least)
    return {"name": program.name, "bytes": [n for n, _ in found], "x": growth, "grows": grows(first, last, growth)}


def grows(first: int, last: int, growth: float) -> bool:
    return growth > MORE and last > MORE * first


def text_table(rows: Iterable[dict]) -> str:
    """The rows, and what they say in two sentences."""
    rows = list(rows)
    cells = [["program", *(f"{n} ranks" for n in RANKS), "x", ""]]
    for r in rows:
        if "error" in r:
            cells.append([r["name"], *("" for _ in RANKS), "", r["error"]])
        else:
            cells.append([r["name"], *(f"{n:,}" for n in r["bytes"]), f"{r['x']:.2f}", "!" if r["grows"] else ""])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join([c[0].ljust(widths[0]), *map(str.rjust, c[1:-1], widths[1:-1]), c[-1]]).rstrip() for c in cells
    ]
    known = [r for r in rows if "error" not in r]
    growing = [r["name"] for r in known if r["grows"]]
    constant = len(known) - len(growing)
    lines += ["", f"{constant} of {len(known)} hold no more than 1.1 x as much on each of more ranks."]
    if growing:
        lines.append(f"{len(growing)} hold more: {', '.join(growing)}")
    return "\n".join(lines)
