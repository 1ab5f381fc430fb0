"""Collectives under shard_map against the NumPy model, by table: operation x mesh x dtype x shape."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import DTYPES, GRIDS, SIZE, Grid, P, assert_same, draw, mesh_1d, mesh_2d, summed

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks]  # meshes of two axes

AXES = ["i", "j", ("i", "j"), ("j", "i")]


def names(axes) -> tuple:
    return axes if isinstance(axes, tuple) else (axes,)


def rotation(n: int, by: int = 1):
    return [(k, (k + by) % n) for k in range(n)]


# name: (function of a shard, the model's function of all shards, result is the same along the axes)
REDUCTIONS = {
    "psum": (lax.psum, lambda g, parts, ax: g.over(parts, ax, summed)),
    "pmax": (lax.pmax, lambda g, parts, ax: g.over(parts, ax, lambda a: np.max(a, axis=0))),
    "pmin": (lax.pmin, lambda g, parts, ax: g.over(parts, ax, lambda a: np.min(a, axis=0))),
}


def remaining(spec: P, axes) -> P:
    """The specification of a result that no longer varies over `axes`."""
    keep = [tuple(a for a in spec.axes_of(d) if a not in axes) for d in range(len(spec))]
    return P(*(k or None for k in keep))


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.one_in(4)
def test_reductions_over_meshes(grid, name, axes, check_vma):
    mesh = mesh_2d(grid)
    model, spec = Grid(mesh), P("i", "j")
    ours, reference = REDUCTIONS[name]
    x = draw((2 * grid[0], 3 * grid[1]))
    out = remaining(spec, names(axes))
    f = jax.shard_map(lambda x: ours(x, axes), mesh=mesh, in_specs=spec, out_specs=out, check_vma=check_vma)
    want = model.join(reference(model, model.split(x, spec), names(axes)), out)
    assert_same(f(x), want)
    assert_same(jax.jit(f)(x), want)


@pytest.mark.parametrize("shape", [(4,), (0,), (2, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.one_in(4)
def test_reductions_of_dtypes(name, dtype, shape):
    if dtype == "complex64" and name != "psum":
        pytest.skip("complex numbers have no order")
    mesh = mesh_1d()
    model = Grid(mesh)
    ours, reference = REDUCTIONS[name]
    x = draw((shape[0] * SIZE, *shape[1:]), dtype)
    f = jax.shard_map(lambda x: ours(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    assert_same(f(x), reference(model, model.split(x, P("i")), ("i",))[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_scalars(dtype):
    mesh = mesh_1d()
    x = draw((SIZE,), dtype)
    f = jax.shard_map(lambda x: (lax.psum(x[0], "i"), lax.all_gather(x[0], "i")), mesh=mesh, in_specs=P("i"),
                      out_specs=(P(), P("i")))  # fmt: skip
    total, gathered = f(x)
    assert_same(total, summed(list(x)) if SIZE > 1 or dtype != "bool" else np.int32(x[0]))
    assert_same(gathered, np.tile(x, SIZE))


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("grid", GRIDS)
def test_pmean(grid, axes):
    mesh = mesh_2d(grid)
    model, spec = Grid(mesh), P("i", "j")
    x = draw((2 * grid[0], 3 * grid[1]))
    out = remaining(spec, names(axes))
    f = jax.shard_map(lambda x: lax.pmean(x, axes), mesh=mesh, in_specs=spec, out_specs=out)
    parts = model.over(model.split(x, spec), names(axes), lambda a: np.mean(a, axis=0, dtype=np.float32))
    assert_same(f(x), model.join(parts, out), rtol=1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("grid", GRIDS)
def test_all_gather(grid, axes, axis, tiled):
    mesh = mesh_2d(grid)
    model, spec = Grid(mesh), P("i", "j")
    x = draw((2 * grid[0], 3 * grid[1]))
    join = np.concatenate if tiled else np.stack
    out = P("i", "j") if tiled else P("i", "j", None)
    f = jax.shard_map(
        lambda x: lax.all_gather(x, axes, axis=axis, tiled=tiled), mesh=mesh, in_specs=spec, out_specs=out
    )
    parts = model.over(model.split(x, spec), names(axes), lambda a: join(a, axis=axis))
    assert_same(f(x), model.join(parts, out))
    assert_same(jax.jit(f)(x), model.join(parts, out))


@pytest.mark.parametrize("shape", [(2,), (0, 3), (1, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_of_dtypes(dtype, shape):
    mesh = mesh_1d()
    model = Grid(mesh)
    x = draw((shape[0] * SIZE, *shape[1:]), dtype)
    parts = model.split(x, P("i"))

    def f(x):
        return lax.all_gather(x, "i", tiled=True), lax.ppermute(x, "i", rotation(SIZE))

    gathered, moved = jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=(P("i"), P("i")))(x)
    assert_same(gathered, np.concatenate([x] * SIZE))
    assert_same(moved, model.join(model.permute(parts, "i", rotation(SIZE)), P("i")))


PERMUTATIONS = {
    "rotate": rotation,
    "back": lambda n: rotation(n, n - 1),
    "one edge": lambda n: [(0, n - 1)],
    "none": lambda n: [],
    "chain": lambda n: [(k, k + 1) for k in range(n - 1)],
    "stay": lambda n: [(k, k) for k in range(n)],
}


@pytest.mark.parametrize("name", PERMUTATIONS)
@pytest.mark.parametrize("axis", ["i", "j"])
@pytest.mark.parametrize("grid", GRIDS)
def test_ppermute(grid, axis, name):
    mesh = mesh_2d(grid)
    model, spec = Grid(mesh), P("i", "j")
    perm = PERMUTATIONS[name](mesh.shape[axis])
    x = draw((2 * grid[0], 3 * grid[1]))
    f = jax.shard_map(lambda x: lax.ppermute(x, axis, perm), mesh=mesh, in_specs=spec, out_specs=spec)
    assert_same(f(x), model.join(model.permute(model.split(x, spec), axis, perm), spec))


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("grid", GRIDS)
def test_axis_index_and_size(grid, axes):
    mesh = mesh_2d(grid)
    model = Grid(mesh)
    f = jax.shard_map(
        lambda x: (x * 0 + lax.axis_index(axes), x * 0 + lax.axis_size(axes)), mesh=mesh,
        in_specs=P("i", "j"), out_specs=P("i", "j"),
    )  # fmt: skip
    index, size = f(np.zeros(grid, np.int32))
    assert_same(index, model.join([np.full((1, 1), k, np.int32) for k in model.index(names(axes))], P("i", "j")))
    assert_same(size, np.full(grid, np.prod([mesh.shape[a] for a in names(axes)]), np.int32))


@pytest.mark.parametrize("spec", [P("i", "j"), P("j", "i"), P(("i", "j")), P(("j", "i")), P(None, "j"), P("i"), P()])
@pytest.mark.parametrize("grid", GRIDS)
def test_specs_in_and_out(grid, spec):
    """Cutting and laying out again is the identity; between the two, shards are the model's."""
    mesh = mesh_2d(grid)
    model = Grid(mesh)
    x = draw((2 * SIZE, SIZE))
    f = jax.shard_map(lambda x: x + 1, mesh=mesh, in_specs=spec, out_specs=spec)
    assert_same(f(x), x + 1)
    local = jax.shard_map(
        lambda x: jnp.sum(x)[None, None], mesh=mesh, in_specs=spec, out_specs=P("i", "j"), check_vma=False
    )
    assert_same(local(x), model.join([p.sum()[None, None] for p in model.split(x, spec)], P("i", "j")))


def test_python_numbers_and_pytrees():
    mesh = mesh_1d()
    x = {"a": draw((SIZE, 2)), "b": [draw((2 * SIZE,), "int32")]}
    f = jax.shard_map(
        lambda x: (lax.psum(x, "i"), lax.psum(3, "i") + jnp.zeros(())), mesh=mesh, in_specs=({"a": P("i"), "b": P("i")},),
        out_specs=P(),
    )  # fmt: skip
    total, count = f(x)
    assert_same(total["a"], x["a"].sum(0, keepdims=True))
    assert_same(total["b"][0], x["b"][0].reshape(SIZE, 2).sum(0, dtype=np.int32))
    assert float(count) == 3 * SIZE


@pytest.mark.parametrize("cast", [lax.pvary, lambda x, n: lax.pcast(x, n, to="varying")], ids=["pvary", "pcast"])
def test_a_replicated_value_made_varying(cast):
    mesh = mesh_1d()
    x = draw((2, 3))
    f = jax.shard_map(lambda x: cast(x, "i"), mesh=mesh, in_specs=P(), out_specs=P("i"))
    y = jax.jit(lambda x: (f(x * 2), x * 2))(x)
    assert_same(y[0], np.tile(x * 2, (SIZE, 1)))
    assert_same(y[1], x * 2)


def test_sum_of_a_replicated_value_counts_every_rank():
    x = draw((2,))
    f = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh_1d(), in_specs=P(), out_specs=P())
    assert_same(f(x), x * SIZE)


def test_one_value_inside_and_outside():
    """The same operation on equal operands within a body and without gives a shard here and a whole there."""
    mesh = mesh_1d()
    x = draw((2, 2))

    @jax.jit
    def f(x):
        before = jnp.sin(x)
        parts = jax.shard_map(lambda x: lax.pvary(jnp.sin(x), "i"), mesh=mesh, in_specs=P(), out_specs=P("i"))(x)
        return before.sum(), parts.sum(), jnp.sin(x).sum(), parts

    one, many, again, parts = f(x)
    s = np.sin(x)
    np.testing.assert_allclose([one, many, again], [s.sum(), SIZE * s.sum(), s.sum()], rtol=1e-5)
    assert_same(parts, np.tile(s, (SIZE, 1)), rtol=1e-6)


def test_a_shard_returned_as_replicated():
    """Without the check a shard may be returned as if it were the same everywhere: each rank has its own."""
    mesh = mesh_1d()
    x = draw((2 * SIZE,))
    y = jax.device_put(x, jax.NamedSharding(mesh, P("i")))
    f = jax.shard_map(lambda x: x, mesh=mesh, in_specs=P("i"), out_specs=P(), check_vma=False)
    r = jax.process_index()
    for arg in (x, y):
        np.testing.assert_array_equal(np.asarray(f(arg)), x[2 * r : 2 * r + 2])
        np.testing.assert_array_equal(np.asarray(jax.jit(f)(arg)), x[2 * r : 2 * r + 2])


def test_many_small_sums_keep_order_and_values():
    """Small reductions travel together, across other communication and reads in between."""
    mesh = mesh_1d()
    x = draw((SIZE, 12))

    def body(x):
        parts = [lax.psum(x[:, k] * (k + 1), "i") for k in range(5)]
        top = lax.pmax(x[:, 5], "i")
        parts += [lax.psum(x[:, k], "i") for k in (6, 7)]
        late = lax.psum(parts[0] * x[:, 8], "i")
        ints = lax.psum(x[:, 9].astype(jnp.int32), "i")
        moved = lax.ppermute(x[:, 10], "i", rotation(SIZE))
        return [*parts, top, late, ints, lax.psum(moved, "i"), lax.psum(x, "i")]

    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P()))
    s = x.sum(0)
    want = [s[k : k + 1] * (k + 1) for k in range(5)] + [s[6:7], s[7:8]]
    want += [x[:, 5].max(keepdims=True), s[:1] * s[8:9], x[:, 9].astype(np.int32).sum(keepdims=True, dtype=np.int32)]
    want += [s[10:11], s[None]]
    for _ in range(2):
        for got, w in zip(f(x), want, strict=True):
            assert_same(got, w)


def test_ranks_may_take_different_times():
    import time

    x = draw((SIZE, 3))
    f = jax.jit(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh_1d(), in_specs=P("i"), out_specs=P()))
    for k in range(3):
        if jax.process_index() == k:
            time.sleep(0.1)
        assert_same(f(x + k), (x + k).sum(0, keepdims=True))
