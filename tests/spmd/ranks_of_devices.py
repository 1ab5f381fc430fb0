"""A program of several ranks with several devices each, over which values are those of NumPy on whole arrays.

It prints `right` where all checks hold, else what does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.experimental.multihost_utils import (
    global_array_to_host_local_array,
    host_local_array_to_global_array,
    process_allgather,
)
from mpijax.sharding import AxisType, NamedSharding
from mpijax.sharding import PartitionSpec as P

RANK, RANKS = jax.process_index(), jax.process_count()
COUNT, HERE = jax.device_count(), jax.local_device_count()
RANDOM = np.random.default_rng(3)
LINE = jax.make_mesh((COUNT,), ("x",), axis_types=(AxisType.Auto,))
GRID = jax.make_mesh((RANKS, HERE), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
ROWS = RANDOM.standard_normal((COUNT * COUNT, 5)).astype(np.float32)
BLOCKS = ROWS.reshape(COUNT, COUNT, 5)
TABLE = RANDOM.standard_normal((2 * COUNT, 3 * COUNT)).astype(np.float32)
SPECS = (P("x", "y"), P("y", "x"), P("x"), P(None, "y"), P(("x", "y")), P(None, ("x", "y")), P(("y", "x")), P())


def same(found, expected) -> bool:
    return np.allclose(process_allgather(found, tiled=True), expected, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- the body of shard_map


def over_line(f, expected, out_specs=None, **options):
    rows = P("x")
    program = jax.shard_map(f, mesh=LINE, in_specs=rows, out_specs=rows if out_specs is None else out_specs, **options)
    split = jax.device_put(ROWS, NamedSharding(LINE, rows))
    return same(jax.jit(program)(split), expected) and same(program(ROWS), expected)


def stacked(blocks) -> np.ndarray:
    return np.concatenate(list(blocks))


def turned(by: int):
    pairs = [(i, (i + by) % COUNT) for i in range(COUNT)]
    return over_line(lambda v: lax.ppermute(v, "x", pairs), np.roll(ROWS, by * COUNT, 0))


def some_sent():
    expected = np.zeros_like(BLOCKS)
    expected[-1], expected[0] = BLOCKS[0], BLOCKS[1]
    return over_line(lambda v: lax.ppermute(v, "x", [(0, COUNT - 1), (1, 0)]), stacked(expected))


def in_groups():
    groups = [list(range(0, COUNT, 2)), list(range(1, COUNT, 2))]
    return COUNT % 2 or over_line(
        lambda v: lax.psum(v, "x", axis_index_groups=groups), stacked(BLOCKS[i % 2 :: 2].sum(0) for i in range(COUNT))
    )


def ring(v):
    pairs = [(i, (i + 1) % COUNT) for i in range(COUNT)]
    return lax.fori_loop(
        0, COUNT, lambda _, c: (c[0] + c[1], lax.ppermute(c[1], "x", pairs)), (jnp.zeros_like(v), v)
    )[0]


def gradient():
    loss = jax.shard_map(lambda v: lax.psum(jnp.sum(v**3), ("x", "y")), mesh=GRID, in_specs=P("x", "y"), out_specs=P())
    return same(jax.grad(loss)(TABLE), 3 * TABLE**2)


def partly_manual(axis: str, spec: P):
    f = jax.shard_map(
        lambda v: v + lax.psum(v.sum(), axis), mesh=GRID, in_specs=spec, out_specs=spec, axis_names={axis}
    )
    return same(jax.jit(f)(jax.device_put(TABLE, NamedSharding(GRID, P("x", "y")))), TABLE + TABLE.sum())


BODIES: dict[str, Callable[[], object]] = {
    "psum": lambda: over_line(lambda v: lax.psum(v, "x"), BLOCKS.sum(0), P()),
    "pmax": lambda: over_line(lambda v: lax.pmax(v, "x"), BLOCKS.max(0), P()),
    "axis_index": lambda: over_line(
        lambda v: v + lax.axis_index("x"), ROWS + np.repeat(np.arange(COUNT), COUNT)[:, None]
    ),
    "all_gather": lambda: over_line(lambda v: lax.all_gather(v, "x"), BLOCKS, P(), check_vma=False),
    "all_to_all": lambda: over_line(
        lambda v: lax.all_to_all(v, "x", 0, 0, tiled=True), stacked(BLOCKS.swapaxes(0, 1))
    ),
    "psum_scatter": lambda: over_line(lambda v: lax.psum_scatter(v, "x", tiled=True), BLOCKS.sum(0)),
    "pbroadcast": lambda: over_line(lambda v: lax.pbroadcast(v, "x", 1), stacked([BLOCKS[1]] * COUNT)),
    "ppermute by 1": lambda: turned(1),
    "ppermute by -1": lambda: turned(COUNT - 1),
    "ppermute by the devices of a rank": lambda: turned(HERE),
    "ppermute of some": some_sent,
    "psum in groups": in_groups,
    "a ring in a loop": lambda: over_line(ring, stacked([BLOCKS.sum(0)] * COUNT)),
    "a branch": lambda: over_line(
        lambda v: lax.cond(lax.psum(v.sum(), "x") > 0, lambda v: lax.all_gather(v, "x")[0], lambda v: -v, v),
        stacked([BLOCKS[0]] * COUNT) if ROWS.sum() > 0 else -ROWS,
        check_vma=False,
    ),
    "a gradient": gradient,
    "one axis, of ranks": lambda: partly_manual("x", P("x")),
    "one axis, of devices": lambda: partly_manual("y", P(None, "y")),
}

# ---------------------------------------------------------------- arrays


def placed(spec: P):
    x = jax.device_put(TABLE, NamedSharding(GRID, spec))
    shards = all(np.array_equal(s.data, TABLE[s.index]) and s.data.devices() == {s.device} for s in x.addressable_shards)
    copies = [s.replica_id for s in x.global_shards]
    distinct = len({str(s.index) for s in x.global_shards})
    return shards and same(x, TABLE) and len(x.addressable_shards) == HERE and copies.count(0) == distinct


def fetched():
    """A process reads an array of whose parts its devices have all."""
    x = jax.device_put(TABLE, NamedSharding(GRID, P(None, "y")))
    local = NamedSharding(GRID.local_mesh, P("y"))
    mine = jax.device_put(TABLE[RANK * HERE : (RANK + 1) * HERE], local)
    everything = host_local_array_to_global_array(mine, GRID, P(("x", "y")))
    back = global_array_to_host_local_array(everything, GRID, P(("x", "y")))
    return (
        np.array_equal(np.asarray(x), TABLE)
        and same(everything, TABLE[:COUNT]) and host_local_array_to_global_array(everything, GRID, P("x")) is everything
        and np.array_equal(back, mine) and back.sharding.is_equivalent_to(local, 2)
    )  # fmt: skip


def computed(spec: P):
    x = jax.device_put(TABLE, NamedSharding(GRID, spec))
    results = jax.jit(lambda x: (x + 1, x @ x.T, x.sum(0), jnp.roll(x, 1, 0), x.reshape(-1), jnp.sort(x, 1)[:, ::-1]))(x)
    expected = (TABLE + 1, TABLE @ TABLE.T, TABLE.sum(0), np.roll(TABLE, 1, 0), TABLE.reshape(-1),
                np.sort(TABLE, 1)[:, ::-1])  # fmt: skip
    return results[0].sharding == x.sharding and all(map(same, results, expected))


def asked_for(spec: P):
    wanted = NamedSharding(GRID, spec)
    out = jax.jit(lambda x: lax.with_sharding_constraint(x.T, NamedSharding(GRID, P("y", "x"))).T * 2, out_shardings=wanted)(
        TABLE
    )
    return out.sharding == wanted and same(out, 2 * TABLE) and same(jax.device_put(out, NamedSharding(GRID, P("x"))), 2 * TABLE)


def put_together():
    split = NamedSharding(GRID, P("x", "y"))
    parts = [jax.device_put(TABLE[i], d) for d, i in split.addressable_devices_indices_map(TABLE.shape).items()]
    return all(
        same(x, TABLE)
        for x in (
            jax.make_array_from_callback(TABLE.shape, split, lambda i: TABLE[i]),
            jax.make_array_from_single_device_arrays(TABLE.shape, split, parts),
            jax.make_array_from_process_local_data(split, TABLE[2 * HERE * RANK : 2 * HERE * (RANK + 1)]),
        )
    )


def mapped():
    mine = ROWS[: COUNT * HERE].reshape(COUNT, -1)[RANK * HERE : (RANK + 1) * HERE]
    pairs = [(i, (i + 1) % COUNT) for i in range(COUNT)]
    total, before = jax.pmap(lambda v: (lax.psum(v, "i"), lax.ppermute(v, "i", pairs)), axis_name="i")(mine)
    everything = ROWS[: COUNT * HERE].reshape(COUNT, -1)
    shifted = np.roll(everything, 1, 0)[RANK * HERE : (RANK + 1) * HERE]
    return np.allclose(total, everything.sum(0), atol=1e-4) and np.array_equal(before, shifted)


def typed():
    with jax.set_mesh(jax.make_mesh((RANKS, HERE), ("x", "y"))) as mesh:
        x = jax.device_put(TABLE, NamedSharding(mesh, P("x", "y")))
        types = str(jax.typeof(jnp.sin(x))), str(jax.typeof(x.sum(0)))
        expected = f"float32[{2 * COUNT}@x,{3 * COUNT}@y]", f"float32[{3 * COUNT}@y]"
        return types == expected and same(jax.sharding.reshard(x, P("y", "x")), TABLE)


def refused():
    """Arrays that were put on devices of this process do not go to those of others, as in JAX."""
    over_all = NamedSharding(LINE, P("x"))
    here = jax.make_mesh((HERE,), ("x",), devices=jax.local_devices(), axis_types=(AxisType.Auto,))
    for place in (jax.local_devices()[-1], NamedSharding(here, P()), NamedSharding(here, P("x"))):
        try:
            jax.device_put(jax.device_put(ROWS, place), over_all)
        except ValueError as error:
            if "second argument must be a Device or a Sharding which represents addressable devices" in str(error):
                continue
        return False
    return same(jax.device_put(jnp.asarray(ROWS), over_all), ROWS)


def lying_apart():
    """The devices of a process are no block of these meshes, or their parts no block of an array."""
    grid = np.array(jax.devices()).reshape(RANKS, HERE)
    cyclic = NamedSharding(jax.sharding.Mesh(grid.T.ravel(), ("x",)), P("x"))
    inner_first = NamedSharding(GRID, P(("y", "x")))
    return all(values_lie_apart(s) for s in (cyclic, inner_first))


def values_lie_apart(split: NamedSharding) -> bool:
    rows = TABLE.reshape(COUNT, -1)
    numbers = {d: i[0].indices(COUNT)[0] for d, i in split.addressable_devices_indices_map(rows.shape).items()}
    mine = rows[sorted(numbers.values())]
    made = [
        jax.device_put(rows, split),
        jax.make_array_from_callback(rows.shape, split, lambda i: rows[i]),
        jax.make_array_from_process_local_data(split, mine),
        jax.make_array_from_process_local_data(split, rows, rows.shape),
    ]
    body = jax.shard_map(
        lambda v: v + lax.psum(v, split.mesh.axis_names), mesh=split.mesh, in_specs=split.spec, out_specs=split.spec
    )
    out = jax.jit(body)(made[0])
    return (
        all(same(x, rows) and x.sharding == split for x in made)
        and all(np.array_equal(s.data, rows[[numbers[s.device]]]) for x in made for s in x.addressable_shards)
        and same(out, rows + rows.sum(0)) and out.sharding == split
        and same(jax.jit(lambda x: jnp.cumsum(x, 0) @ x.T)(made[1]), np.cumsum(rows, 0) @ rows.T)
    )  # fmt: skip


ARRAYS: dict[str, Callable[[], object]] = {
    **{f"device_put {spec}": lambda spec=spec: placed(spec) for spec in SPECS},
    **{f"jit {spec}": lambda spec=spec: computed(spec) for spec in SPECS},
    **{f"out_shardings {spec}": lambda spec=spec: asked_for(spec) for spec in SPECS[:5]},
    "arrays of parts": put_together,
    "arrays that a process has whole": fetched,
    "pmap": mapped,
    "refused": refused,
    "Explicit axes": typed,
    "devices that lie apart": lying_apart,
    "numbers": lambda: [d.id for d in jax.local_devices()] == [RANK * HERE + i for i in range(HERE)],
}


def main() -> None:
    wrong = [name for name, check in (BODIES | ARRAYS).items() if not check()]
    if len(sys.argv) > 1:
        from spmd.random_global import failures

        wrong += failures(range(int(sys.argv[1])))
    if RANK == 0:
        print(*(wrong or ["right"]), sep="\n")


if __name__ == "__main__":
    main()
