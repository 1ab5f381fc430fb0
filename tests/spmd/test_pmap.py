"""pmap over all ranks' devices, arrays made of what each process has, and the helpers for several processes."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import OURS, THEIRS, jaxpr_text
from spmd.ranks import GRIDS, SIZE, Grid, P, assert_same, draw, mesh_1d, mesh_2d, real, whole

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.experimental import multihost_utils as hosts

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # it is a shard_map

RANK = jax.process_index()
many = pytest.mark.skipif(SIZE == 1, reason="one rank has all devices")
alone = pytest.mark.skipif(SIZE > 1, reason="JAX runs on one device here")


def mine(x, axis=0):
    """This rank's element of the mapped axis, which stays."""
    return np.take(x, [RANK], axis)


# name: (the function, axes of the arguments, axes of the result, the same on all elements in NumPy)
MAPPED = {
    "map": (lambda x, w: jnp.sin(x) @ w, (0, None), 0, lambda x, w: np.sin(x) @ w),
    "psum": (lambda x, w: x / lax.psum(x, "i"), (0, None), 0, lambda x, w: x / x.sum(0)),
    "mean out": (lambda x, w: lax.pmean(x @ w, "i"), (0, None), None, lambda x, w: (x @ w).mean(0)),
    "other axes": (lambda x, w: x[:, None] * w, (1, None), 2, lambda x, w: np.stack([c[:, None] * w for c in x.T], 2)),
    "axes from the end": (
        lambda x, w: x[:, None] * w, (-1, None), -2, lambda x, w: np.stack([c[:, None] * w for c in x.T], 1)),
    "last axis": (lambda x, w: x + lax.axis_index("i"), (-1, None), 0, lambda x, w: x.T + np.arange(SIZE)[:, None]),
    "gather": (lambda x, w: lax.all_gather(x, "i"), (0, None), 0, lambda x, w: np.stack([x] * SIZE)),
    "shift": (lambda x, w: lax.ppermute(x, "i", [(k, (k + 1) % SIZE) for k in range(SIZE)]), (0, None), 0,
              lambda x, w: np.roll(x, 1, 0)),
}  # fmt: skip


def arguments(axes):
    """The elements of all ranks, and what this rank passes."""
    size = 3
    x = real((SIZE, size) if axes[0] == 0 else (size, SIZE), 1)
    return x, mine(x, axes[0]), real((size, 2) if axes[0] == 0 else (1, 2), 2)


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.one_in(3)
def test_programs(name):
    f, axes, out, model = MAPPED[name]
    x, local, w = arguments(axes)
    g = jax.pmap(f, axis_name="i", in_axes=axes, out_axes=out)
    want = model(x, w).astype(np.float32)
    want = want if out is None else mine(want, out)
    for h in (g, jax.jit(g)):
        np.testing.assert_allclose(np.asarray(h(local, w)), want, rtol=1e-5)
    batch = jax.vmap(g, (0, None))(np.stack([local, local * 2]), w)
    np.testing.assert_allclose(np.asarray(batch[0]), want, rtol=1e-5)


def test_gradients_are_those_of_all_elements():
    """Every rank adds up its own results; the derivative is that of the sum over all ranks."""
    x = real((SIZE, 3), 1)

    def loss(x):
        return jax.pmap(lambda x: jnp.sin(lax.psum(x**2, "i")) * x, axis_name="i")(x).sum()

    plain = jax.grad(lambda x: (jnp.sin((x**2).sum(0)) * x).sum())
    for g in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_allclose(np.asarray(g(mine(x))), mine(np.asarray(plain(x))), rtol=1e-4, atol=1e-5)


def test_training_step():
    """The classical data-parallel step: the gradients' mean over devices, the weights carried on every one."""
    x, y, w = real((SIZE, 4, 3)), real((SIZE, 4), 1), real((3,), 2)

    @jax.pmap
    def untouched(w):
        return w

    def step(w, x, y):
        g = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return w - 0.1 * lax.pmean(g, "batch")

    train = jax.pmap(step, "batch", donate_argnums=0)
    weights, plain = untouched(w[None]), w
    for _ in range(3):
        weights = train(weights, mine(x), mine(y))
        error = np.einsum("rbk,k->rb", x, plain) - y
        plain = plain - 0.1 * np.mean(2 * np.einsum("rb,rbk->rk", error, x) / 4, 0)
    np.testing.assert_allclose(np.asarray(weights[0]), plain, rtol=1e-4, atol=1e-5)


def test_static_keyword_and_pytree_arguments():
    traces = []

    def f(x, n, *, y):
        traces.append(n)
        return {"a": x["a"] * n + y, "b": (y,)}

    g = jax.pmap(f, in_axes=({"a": 0}, None), static_broadcasted_argnums=1, axis_size=SIZE)
    for n in (2, 2, 3):
        out = g({"a": np.full((1, 2), 5.0)}, n, y=np.ones((1, 2)))
        np.testing.assert_array_equal(np.asarray(out["a"]), np.full((1, 2), 5 * n + 1))
    assert traces == [2, 3] and out["b"][0].shape == (1, 2)


def test_devices():
    order = jax.devices()[::-1]
    f = jax.pmap(lambda x: lax.axis_index("i") + x, "i", devices=order)
    assert np.asarray(f(np.zeros(1, np.int32))).tolist() == [SIZE - 1 - RANK]


REFUSED = {
    "size": (lambda: jax.pmap(lambda x: x)(np.ones(SIZE + 1)), ValueError, "Pass the elements of its own devices on every process"),
    "no axis": (lambda: jax.pmap(lambda x: x, in_axes=None)(np.ones(1)), ValueError, "at least one argument"),
    "rank": (lambda: jax.pmap(lambda x: x)(np.ones(())), ValueError, "axis 0 is out of bounds"),
    "axis_size": (lambda: jax.pmap(lambda x: x, axis_size=SIZE + 1)(np.ones(1)), ValueError, "axis_size"),
    "unhashable": (
        lambda: jax.pmap(lambda x, y: x, static_broadcasted_argnums=1)(np.ones(1), []), ValueError, "Non-hashable"),
    "static by name": (
        lambda: jax.pmap(lambda x, y: x, static_broadcasted_argnums=1)(np.ones(1)), ValueError, "called with only 1"),
    "in_axes": (lambda: jax.pmap(lambda x: x, in_axes="a"), TypeError, "pmap in_axes must be an int"),
    "out_axes": (lambda: jax.pmap(lambda x: x, out_axes=1.0), TypeError, "pmap out_axes must be an int"),
    "out of bounds": (lambda: jax.pmap(lambda x: x, out_axes=-3)(np.ones((1, 2))), ValueError, "axis -3 is out of bounds"),
    "no devices": (lambda: jax.pmap(lambda x: x, devices=[]), ValueError, "must be non-empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        call()


@alone
@pytest.mark.parametrize(
    "make",
    [
        lambda J: J.pmap(lambda x: x / J.lax.psum(x, "i"), axis_name="i"),
        lambda J: J.pmap(lambda x: (x, {"a": x * 2}), axis_name="i", in_axes=1, out_axes=(0, 1)),
    ],
)
def test_jaxprs_are_jaxs(make):
    x = np.ones((1, 1, 2), np.float32)
    assert jaxpr_text(OURS, make, (x,)) == jaxpr_text(THEIRS, make, (x,))


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
@pytest.mark.parametrize("spec", [P("i", "j"), P(("j", "i")), P(None, "j"), P()], ids=str)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_arrays_of_parts(grid, spec, dtype):
    mesh = mesh_2d(grid)
    sharding = NamedSharding(mesh, spec)
    x = draw((2 * SIZE, SIZE), dtype)
    part = Grid(mesh).split(x, spec)[RANK]
    made = [
        jax.make_array_from_callback(x.shape, sharding, lambda index: x[index]),
        jax.make_array_from_process_local_data(sharding, part),
        jax.make_array_from_process_local_data(sharding, part, x.shape),
        jax.make_array_from_process_local_data(sharding, x, x.shape),
        jax.make_array_from_single_device_arrays(x.shape, sharding, [jnp.asarray(part)]),
    ]
    for y in made:
        assert y.sharding == sharding
        assert_same(y, x)
        assert_same(y + y, (x + x).astype(x.dtype))


def test_shards():
    mesh = mesh_1d()
    x = draw((2 * SIZE, 3))
    y = jax.device_put(x, NamedSharding(mesh, P("i")))
    shards = y.global_shards
    assert [s.device for s in shards] == list(mesh.devices.flat) and [s.replica_id for s in shards] == [0] * SIZE
    assert [s.data is not None for s in shards] == [k == RANK for k in range(SIZE)]
    for s in shards:
        np.testing.assert_array_equal(x[s.index], x[2 * s.device.id : 2 * s.device.id + 2])
    copies = jax.device_put(x, NamedSharding(mesh, P())).global_shards
    assert [s.replica_id for s in copies] == list(range(SIZE))
    np.testing.assert_array_equal(np.asarray(y.addressable_data(0)), x[2 * RANK : 2 * RANK + 2])


@many
def test_parts_that_do_not_fit():
    sharding = NamedSharding(mesh_1d(), P("i"))
    with pytest.raises(ValueError, match="doesn't match the single device array shape"):
        jax.make_array_from_callback((2 * SIZE,), sharding, lambda index: np.ones(3))
    with pytest.raises(ValueError, match="Expected 1 per-device arrays"):
        jax.make_array_from_single_device_arrays((SIZE,), sharding, [], dtype=np.float32)
    with pytest.raises(ValueError, match="the same number of axes"):
        jax.make_array_from_process_local_data(sharding, np.ones(2), (2, 2))


def test_hosts_arrays_and_global_ones():
    mesh = mesh_1d()
    x = draw((2 * SIZE, 3))
    local = {"a": x[2 * RANK : 2 * RANK + 2], "b": [draw((3,))]}
    specs = {"a": P("i"), "b": P()}
    together = hosts.host_local_array_to_global_array(local, mesh, specs)
    assert_same(together["a"], x)
    assert_same(together["b"][0], draw((3,)))
    total = jax.jit(lambda t: t["a"].sum())(together)
    np.testing.assert_allclose(float(total), x.sum(), rtol=1e-6)
    back = hosts.global_array_to_host_local_array(together, mesh, specs)
    np.testing.assert_array_equal(np.asarray(back["a"]), local["a"])
    columns = draw((2, 2 * SIZE))
    moved = jax.device_put(columns, NamedSharding(mesh, P(None, "i")))
    if SIZE == 2:
        out = hosts.global_array_to_host_local_array(moved, mesh, P("i"))
        np.testing.assert_array_equal(np.asarray(out), columns[RANK : RANK + 1])


def test_values_that_must_agree():
    hosts.assert_equal({"a": np.arange(3)}, "unequal")
    hosts.sync_global_devices("here")
    if SIZE > 1:
        with pytest.raises(AssertionError, match=rf"ranks differ\. Expected: 0 .*got: {RANK}\. Processes \[1"):
            hosts.assert_equal(np.array(RANK), "ranks differ")


def test_smap():
    x = draw((2 * SIZE, 3))
    with jax.set_mesh(mesh_2d(GRIDS[0])):
        size = GRIDS[0][0]
        f = jax.smap(lambda x: (x.sum(0, keepdims=True), lax.psum(x, "i")), in_axes=0, out_axes=(0, None), axis_name="i")
        parts, total = f(x)
        assert_same(parts, x.reshape(size, -1, 3).sum(1))
        assert_same(total, x.reshape(size, -1, 3).sum(0))
        with pytest.raises(ValueError, match="must refer to an axis marked as manual"):
            jax.shard_map(lambda x: x, in_specs=P("j"), out_specs=P("j"), axis_names={"i"})(x)
        with pytest.raises(ValueError, match="to be a subset of mesh.axis_names"):
            jax.smap(lambda x: x, out_axes=0, axis_name="k")(x)
    assert whole(parts).shape == (size, 3)
