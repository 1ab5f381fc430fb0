"""Simulated ranks: programs planned for one rank of many, without running."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from quickly import one_in

import mpijax as jax
from bench.partition import memory
from bench.partition.program import PROGRAMS, load_programs
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.core.sharding.cuts import Cut, even_cut
from mpijax.ops.products import over_ranks as dot_over_ranks
from mpijax.sharding import AxisType, Mesh
from mpijax.sharding import PartitionSpec as P

PLANNED_FAST = [
    "elementwise/chain", "reduce/mean and variance", "reduce/argmax", "reduce/logsumexp", "matmul/2-D", "nn/Megatron MLP",
    "nn/attention, heads", "matmul/power iteration", "conv/space split", "stencil/heat by .at", "stencil/heat, 2-D mesh",
    "stencil/gradient of heat", "control/fori_loop", "control/while_loop", "scan/cumsum across", "fft/one long line",
    "sort/top_k across", "shape/flip", "uneven/append a row", "vmap/of while_loop", "grad/clip by global norm",
]  # fmt: skip


def simulated(shape: dict[str, int], rank: int, kind: AxisType = AxisType.Auto) -> Mesh:
    count = int(np.prod(list(shape.values())))
    return jax.make_mesh(tuple(shape.values()), tuple(shape), (kind,) * len(shape), devices=jax.simulate.devices(count, rank))


def compiled(f, mesh: Mesh, *shapes):
    args = [jax.ShapeDtypeStruct(s, np.float32, sharding=NamedSharding(mesh, P("i"))) for s in shapes]
    return jax.jit(f).lower(*args).compile()


def heat(u):
    return u.at[1:-1].add(0.1 * (u[2:] + u[:-2] - 2 * u[1:-1]))


# ---------------------------------------------------------------- what a rank does


@pytest.mark.parametrize(("rank", "rows"), [(0, 1), (5, 2), (63, 1)])
def test_bytes_of_each_rank(rank, rows):
    """Ranks at a border send one row, others two."""
    found = compiled(heat, simulated({"i": 64}, rank), (64 * 8, 16))
    assert found.cost_analysis()["bytes sent"] == rows * 16 * 4
    assert found.memory_analysis().argument_size_in_bytes == 8 * 16 * 4
    assert "ppermute" in found.as_text() and "ppermute" in found.explain()
    assert found.output_shardings.mesh.size == 64 and found.out_info.shape == (64 * 8, 16)


def test_memory_of_the_gradient_of_causal_attention():
    """In the last round too, scores exist for one of 8 heads at a time, and twice: 67 MB each."""
    mesh = simulated({"i": 4}, 2)
    args = [jax.ShapeDtypeStruct((1, 16384, 8, 64), np.float32, sharding=NamedSharding(mesh, P(None, "i")))] * 3
    f = jax.grad(lambda *x: (jax.nn.dot_product_attention(*x, is_causal=True) ** 2).sum(), (0, 1, 2))
    assert jax.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes < 400e6


@pytest.mark.parametrize(("f", "rank", "parts"), [(jnp.linalg.qr, 15, 8.5), (jnp.linalg.qr, 0, 8.5), (lax.linalg.lu, 0, 6.5)])
def test_memory_of_factorizations_by_block_columns(f, rank, parts):
    """Of the blocks that have been processed, a rank keeps its own rows of the factors, not what they were computed in."""
    found = compiled(f, simulated({"i": 16}, rank), (256, 256)).memory_analysis()
    assert found.peak_memory_in_bytes < parts * found.argument_size_in_bytes


@pytest.mark.slow  # by default test_rounds.py has pairs of fewer operations
def test_pairs_after_and_before_many_operations(monkeypatch):
    """What rounds need is found in one walk, however often operations share their operands."""
    monkeypatch.setattr(dot_over_ranks, "LARGE", 0)

    def program(x):
        for _ in range(80):
            x = jnp.sin(x) + x
        scores = x @ x.T
        for _ in range(80):
            scores = jnp.tanh(scores) + scores
        return jnp.sum(jax.nn.softmax(scores) @ x)

    found = compiled(jax.grad(program), simulated({"i": 4}, 2), (512, 8))
    assert "ppermute" in found.as_text() and "all_gather" not in found.as_text()


def test_coordinates_in_a_grid():
    mesh = simulated({"i": 32, "j": 32}, 37)
    assert mesh.coordinates() == (1, 5) and mesh.is_multi_process and not mesh.is_local
    assert [d.id for d in mesh.local_devices] == [37]
    slices = NamedSharding(mesh, P("i", "j")).local_slices((64, 64))
    assert slices == (slice(2, 4), slice(10, 12))


def test_bodies_of_shard_map_and_explicit_axes():
    mesh = simulated({"i": 1024}, 3)
    total = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    assert compiled(total, mesh, (2048,)).cost_analysis()["bytes sent"] == pytest.approx(2 * 8 * 1023 / 1024)
    explicit = simulated({"i": 1024}, 3, AxisType.Explicit)
    assert compiled(lambda x: jnp.sum(x * 2), explicit, (2048,)).cost_analysis()["communications"] == 1


def test_large_programs_are_planned_on_small_machines(monkeypatch):
    monkeypatch.setenv("MPIJAX_MEMORY_LIMIT", "1000000")
    assert compiled(jnp.sin, simulated({"i": 1024}, 3), (2**40,)).memory_analysis().peak_memory_in_bytes == 2**33


# ---------------------------------------------------------------- nothing runs


@pytest.mark.parametrize(
    "use",
    [
        lambda mesh, rows: compiled(jnp.sin, mesh, (8,))(np.ones(8, np.float32)),
        lambda mesh, rows: jax.device_put(np.ones(8), rows),
        lambda mesh, rows: jax.device_put(np.ones(8), mesh.devices.flat[0]),
        lambda mesh, rows: jax.jit(lambda x: x + 1, out_shardings=rows)(jnp.ones(8)),
        lambda mesh, rows: jax.jit(lambda x: lax.with_sharding_constraint(x, rows))(jnp.ones(8)),
        lambda mesh, rows: jax.shard_map(jnp.sin, mesh=mesh, in_specs=P("i"), out_specs=P("i"))(jnp.ones(8)),
        lambda mesh, rows: jax.make_array_from_callback((8,), rows, lambda at: np.ones(8)[at]),
        lambda mesh, rows: pickle.dumps(mesh.devices.flat[0]),
    ],
)
def test_nothing_runs(use):
    mesh = simulated({"i": 4}, 1)
    with pytest.raises(RuntimeError, match=r"rank 1 of 4 simulated ranks.*mpijax run -n 4"):
        use(mesh, NamedSharding(mesh, P("i")))


def test_a_mesh_is_of_one_job():
    with pytest.raises(ValueError, match="All devices of a Mesh must be of one job"):
        Mesh(np.array([*jax.simulate.devices(2, 0)[:1], *jax.simulate.devices(2, 1)[1:]]), ("i",))
    assert simulated({"i": 4}, 1) != simulated({"i": 4}, 2)
    with pytest.raises(ValueError, match="got ranks=4 and rank=4"):
        jax.simulate.devices(4, 4)


# ---------------------------------------------------------------- a thousand ranks


def calls(f) -> int:
    """How many functions, of Python and of C, it calls."""
    count = 0

    def called(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        f()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", one_in(2, PLANNED_FAST))
@pytest.mark.one_in(3)
def test_planning_for_a_thousand_ranks_takes_no_longer_than_for_four(name):
    load_programs()
    found = {}
    for ranks in (4, 1024):
        args = memory.arguments(PROGRAMS[name], ranks, ranks // 2)

        def plan(args=args):
            jax.jit(lambda *a: PROGRAMS[name].function(*a)).lower(*args).compile()

        plan()  # loads what it imports
        found[ranks] = calls(plan)
    assert found[1024] <= 2 * found[4], found


def test_cuts_of_a_thousand_parts():
    rows = even_cut(4096, ("i",), 1024)
    assert rows == Cut(("i",), rows.spans) and hash(rows) == hash(Cut(("i",), rows.spans))
    assert rows.part(1023) == (4092, 4096) and rows.runs == [((0, 4096), 0)]
    uneven = even_cut(4095, ("i",), 1024)
    assert uneven.runs == [((0, 4095), 0)] and not uneven.is_even and uneven.follows
    shorter = rows.mapped(lambda at: np.clip(at - 1, 0, 4095))
    assert shorter.runs == [((0, 3), 0), ((3, 4095), 4)]


# ---------------------------------------------------------------- memory


def test_memory_of_programs_that_grow_with_the_ranks():
    load_programs()
    row = memory.row(PROGRAMS["stencil/heat by .at"])
    assert not row["grows"] and row["bytes"][0] == pytest.approx(row["bytes"][-1], rel=0.1)
    assert memory.row(PROGRAMS["shape/tile"])["grows"]
    assert "sizes are fixed" in memory.row(PROGRAMS["shape/split the split axis"])["error"]
    text = memory.text_table([row, memory.row(PROGRAMS["shape/tile"])])
    assert "1 of 2 hold no more than 1.1 x" in text and "1 hold more: shape/tile" in text


def test_a_shard_map_over_an_abstract_mesh_is_traced_without_its_devices():
    mesh = jax.sharding.AbstractMesh((64,), ("i",))
    f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
    assert "f32[2]{V:i}" in str(jax.make_jaxpr(f)(np.ones(128, np.float32)))
    assert jax.eval_shape(f, jax.ShapeDtypeStruct((128, 3), np.float32)).shape == (2, 3)
    with pytest.raises(RuntimeError, match="To run the program, start it on 64 ranks"):
        f(np.ones(128, np.float32))
