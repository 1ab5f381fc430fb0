"""Random programs on global arrays: a list of operations on earlier values, drawn from a seed.

The same seed yields the same program, mesh and shardings in every process. Arguments are multiples of 1/4, and a value
is `exact` as long as any order of its sums yields the same bits; only such values are compared, searched, or turned into
positions, where a last bit would become another result.

    python -m spmd.random_global FIRST COUNT      (in tests/) runs programs on all devices, prints those that fail
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import spmd.random_functions  # noqa: F401  (more steps)
from spmd import random_algorithms  # the last steps
from spmd.random_steps import LARGEST, OPERATIONS, Known, draw_spec

import mpijax as jax
from mpijax import NamedSharding
from mpijax.core.base.config import same_bits
from mpijax.sharding import Mesh
from mpijax.sharding import PartitionSpec as P

SIZES = (1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 12, 13, 16)
EXACT = 1 << 18  # quarters; above that, sums of a few thousand could round
MESHES = {
    1: [(1,), (1, 1)],
    2: [(2,), (2, 1), (1, 2), (1, 2, 1)],
    3: [(3,), (3, 1), (1, 1, 3)],
    4: [(4,), (2, 2), (4, 1), (1, 4), (2, 1, 2), (2, 2, 1)],
    8: [(8,), (2, 4), (2, 2, 2)],
}
NAMES = "ijk"


@dataclass
class Program:
    """`steps`: (text, function, places of the operands); results are the values that no step uses.

    unsharded: leave out the shardings that steps ask for.
    """

    seed: int
    mesh: Mesh
    arguments: list[np.ndarray] = field(default_factory=list)
    specs: list[P] = field(default_factory=list)
    values: list[Known] = field(default_factory=list)
    steps: list[tuple[str, Callable, tuple[int, ...]]] = field(default_factory=list)
    unsharded: bool = False

    def __call__(self, *arguments):
        values = list(arguments)
        for _, f, places in self.steps:
            values.append(f(*(values[p] for p in places)))
        used = {p for _, _, places in self.steps for p in places}
        return [v for p, v in enumerate(values) if p not in used]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, mesh {dict(self.mesh.shape)}"]
        for p, (x, spec) in enumerate(zip(self.arguments, self.specs, strict=True)):
            lines.append(f"  v{p} = {x.dtype}{list(x.shape)} {spec}")
        for p, (text, _, places) in enumerate(self.steps, len(self.arguments)):
            operands = ", ".join(f"v{q}" for q in places)
            lines.append(f"  v{p} = {text}({operands}) -> {list(self.values[p].shape)}")
        return "\n".join(lines)

    def placed(self) -> list[Any]:
        return [
            jax.device_put(x, NamedSharding(self.mesh, spec)) for x, spec in zip(self.arguments, self.specs, strict=True)
        ]


# ---------------------------------------------------------------- meshes, shardings and arguments


def draw_mesh(rng) -> Mesh:
    devices = jax.devices()
    shapes = MESHES.get(len(devices), [(len(devices),)])
    shape = shapes[rng.integers(len(shapes))]
    order = rng.permutation(len(devices)) if rng.random() < 0.2 else np.arange(len(devices))
    return Mesh(np.array(devices, dtype=object)[order].reshape(shape), tuple(NAMES[: len(shape)]))


def draw_argument(rng, mesh: Mesh, whole_numbers: bool) -> np.ndarray:
    """Often with an axis that the mesh divides, and others of any size."""
    shape = [int(SIZES[rng.integers(len(SIZES))]) for _ in range(rng.integers(1, 4))]
    if rng.random() < 0.8:
        shape[rng.integers(len(shape))] = int(mesh.size * rng.integers(1, 5))
    while math.prod(shape) > LARGEST:
        shape[int(np.argmax(shape))] //= 2
    x = rng.integers(-12, 13, shape)
    return abs(x).astype(np.int32) if whole_numbers else (x / 4).astype(np.float32)


def draw(seed: int) -> Program:
    rng = np.random.default_rng([seed, 41])
    program = Program(seed, draw_mesh(rng))
    for k in range(rng.integers(2, 4)):
        x = draw_argument(rng, program.mesh, whole_numbers=k == 0)
        program.arguments.append(x)
        program.specs.append(draw_spec(rng, x.shape, program.mesh))
        program.values.append(Known(x.shape, 48, k == 0))
    wanted = rng.integers(3, 9)
    names = [n for n, make in OPERATIONS.items() if seed >= random_algorithms.FROM or make.__module__ != random_algorithms.__name__]
    for _ in range(100):
        if len(program.steps) == wanted:
            break
        _add(rng, program, names[rng.integers(len(names))])
    return program


def _add(rng, program: Program, name: str) -> None:
    """A step of that name, if an operand fits it."""
    at = _recent(rng, program)
    x = program.values[at]
    found = OPERATIONS[name](rng, x, program, at)
    if found is None:
        return
    f, others, bound = found
    places = (at, *others)
    avals = [jax.ShapeDtypeStruct(program.values[p].shape, _dtype(program.values[p])) for p in places]
    out = jax.eval_shape(f, *avals)
    if out.size > LARGEST:
        return
    bound = bound if 0 < bound < EXACT else 0
    program.steps.append((name, f, places))
    program.values.append(Known(out.shape, bound, out.dtype == np.int32))


def _recent(rng, program: Program) -> int:
    """Mostly one of the last values, so that programs are deep."""
    n = len(program.values)
    return int(n - 1 - min(rng.geometric(0.5) - 1, n - 1)) if rng.random() < 0.8 else int(rng.integers(n))


def _dtype(value: Known):
    return np.int32 if value.whole_numbers else np.float32


# ---------------------------------------------------------------- running


def fetch(x) -> np.ndarray:
    if x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    from mpijax.experimental.multihost_utils import process_allgather  # of arrays over ranks only

    return np.asarray(process_allgather(x, tiled=True))


def check(seed: int, bits: bool = False) -> str:
    """What is wrong with the program of a seed; nothing if its results are those of whole arrays.

    bits: under the option that asks for the same bits, with arguments whose sums round.
    """
    program = draw(seed)
    if bits:
        rng = np.random.default_rng(seed)
        program.arguments = [
            x if x.dtype.kind == "i" else (x * rng.uniform(0.5, 2, x.shape)).astype(x.dtype) for x in program.arguments
        ]
    with same_bits(bits):
        return _checked(program, bits)


def _checked(program: Program, bits: bool) -> str:
    try:
        got = [fetch(x) for x in jax.jit(lambda *xs: program(*xs))(*program.placed())]
        program.unsharded = True
        want = [np.asarray(x) for x in jax.jit(lambda *xs: program(*xs))(*program.arguments)]
    except Exception as e:
        return f"{program}\n  {type(e).__name__}: {e}"
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"{program}\n  result {k}: {g.dtype}{g.shape} instead of {w.dtype}{w.shape}"
        if bits and g.tobytes() != w.tobytes():
            return f"{program}\n  result {k} of {w.shape}: other bits in {np.count_nonzero(g != w)} of {w.size} elements"
        # At least 1e-3: what cancels to less is rounding.
        size = np.abs(w[np.isfinite(w)]).max(initial=1e-3) if w.dtype.kind == "f" else 0
        same = np.isclose(g, w, rtol=2e-4, atol=2e-4 * size, equal_nan=True) if w.dtype.kind == "f" else g == w
        if not same.all():
            return f"{program}\n  result {k} of {w.shape}: {np.count_nonzero(~same)} of {w.size} elements are wrong"
    return ""


def failures(seeds, bits: bool = False) -> list[str]:
    """Of several programs; ranks agree after each one, so that all of them know what failed on any of them."""
    found = []
    for seed in seeds:
        wrong = _agreed(check(seed, bits))
        if wrong:
            found.append(wrong)
    return found


def _agreed(wrong: str) -> str:
    if jax.process_count() == 1:
        return wrong
    from mpi4py import MPI  # mpijax has started it

    everywhere = MPI.COMM_WORLD.allgather(wrong)
    rank = next((r for r, text in enumerate(everywhere) if text), None)
    return "" if rank is None else f"on rank {rank}: {everywhere[rank]}"


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        [*wrong] = failures([seed])
        if wrong and jax.process_index() == 0:
            print(*wrong, sep="\n", flush=True)
    sys.exit(0)
