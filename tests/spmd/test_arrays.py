"""Arrays sharded over ranks: placing, reading, shards, and feeding them to other programs."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from spmd.ranks import GRIDS, SIZE, Grid, P, assert_same, draw, mesh_1d, mesh_2d, real, whole

import mpijax as jax
from mpijax import NamedSharding
from mpijax import numpy as jnp

pytestmark = pytest.mark.mpi

RANK = jax.process_index()
many = pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")
SPECS = [P("i", "j"), P("j", "i"), P(("i", "j")), P(None, ("j", "i")), P(None, "j"), P("i"), P()]


def split_array(shape=(2 * SIZE, 3), dtype="float32"):
    x = draw(shape, dtype)
    return x, jax.device_put(x, NamedSharding(mesh_1d(), P("i")))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64"])
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.one_in(4)
def test_device_put(grid, spec, dtype):
    mesh = mesh_2d(grid)
    x = draw((2 * SIZE, SIZE), dtype)
    sharding = NamedSharding(mesh, spec)
    for source in (x, jnp.asarray(x), jax.device_put(x, NamedSharding(mesh, P("j", "i")))):
        y = jax.device_put(source, sharding)
        assert y.sharding == sharding and y.shape == x.shape
        assert_same(y, x)
        [shard] = y.addressable_shards
        np.testing.assert_array_equal(np.asarray(shard.data), Grid(mesh).split(x, spec)[RANK])
        assert shard.device in jax.local_devices() and shard.device in y.devices()
        assert sharding.devices_indices_map(x.shape)[shard.device] == shard.index


def test_replicas_are_numbered():
    for grid in GRIDS:
        mesh = mesh_2d(grid)
        y = jax.device_put(draw((SIZE,)), NamedSharding(mesh, P("i")))
        assert y.addressable_shards[0].replica_id == mesh.coordinates()[1]


def test_one_device():
    x = jnp.arange(3.0)
    assert isinstance(x.sharding, jax.sharding.SingleDeviceSharding)
    [shard] = x.addressable_shards
    assert shard.replica_id == 0 and shard.index == (slice(None),) and shard.data is x
    assert x.is_fully_addressable and x.is_fully_replicated and x.addressable_data(0) is x


def test_results_of_shard_map_are_laid_out_as_said():
    mesh = mesh_1d()
    x = draw((2 * SIZE, 3))
    y = jax.jit(jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(x)
    if SIZE > 1:
        assert y.sharding == NamedSharding(mesh, P("i"))
    assert y.is_fully_addressable == y.is_fully_replicated == (SIZE == 1)
    np.testing.assert_array_equal(np.asarray(y.addressable_data(0)), 2 * x[2 * RANK : 2 * RANK + 2])


READERS = {
    "asarray": np.asarray, "array": np.array, "item": lambda y: y.item(), "tolist": lambda y: y.tolist(),
    "memoryview": memoryview, "pickle": pickle.dumps, "device_get": jax.device_get,
    "format": lambda y: float(y[:1, :1].reshape(())) and y._value,
}  # fmt: skip


@many
@pytest.mark.parametrize("name", READERS)
def test_the_whole_cannot_be_read(name):
    _, y = split_array()
    with pytest.raises(RuntimeError, match="Fetching value for `jax.Array` that spans non-addressable"):
        READERS[name](y)


@many
def test_printing_tells_the_shape():
    _, y = split_array()
    assert repr(y) == str(y) == f"{y}" == f"Array(shape=({2 * SIZE}, 3), dtype=float32)"


@many
def test_copies_keep_the_sharding():
    x, y = split_array()
    for z in (copy.copy(y), copy.deepcopy(y), jnp.copy(y)):
        assert z.sharding == y.sharding
        assert_same(z, x)


def test_a_mesh_of_one_rank_just_works():
    """Whatever the specification says: everything is here."""
    mesh = jax.sharding.Mesh(jax.local_devices(), "i")
    x = draw((4, 3))
    y = jax.device_put(x, NamedSharding(mesh, P("i")))
    z = jax.shard_map(lambda x: jax.lax.psum(x, "i") + 1, mesh=mesh, in_specs=P("i"), out_specs=P())(y)
    np.testing.assert_array_equal(np.asarray(y), x)
    np.testing.assert_array_equal(np.asarray(z), x + 1)
    assert repr(y) == repr(jnp.asarray(x)) and y.tolist() == x.tolist()


@many
def test_meshes_of_some_ranks():
    rows = NamedSharding(mesh_1d(), P("i"))
    assert rows.mesh.local_mesh == jax.sharding.Mesh(jax.local_devices(), "i") and rows.has_addressable_devices
    half = jax.sharding.Mesh(jax.devices()[: SIZE // 2], "i")
    sharding = NamedSharding(half, P("i"))
    assert sharding.has_addressable_devices == (jax.process_index() < SIZE // 2)
    if not sharding.has_addressable_devices:
        with pytest.raises(ValueError, match="no device of process"):
            half.local_mesh  # noqa: B018
    elif half.is_multi_process:
        part = jax.device_put(jnp.arange(2 * SIZE), sharding)
        with pytest.raises(ValueError, match="input and target sharding should have the same set of devices"):
            jax.device_put(part, rows)


CONSUMERS = {
    "sum": lambda y: y.sum(), "rows": lambda y: y.sum(1), "product": lambda y: y @ y.T, "pointwise": lambda y: y * 2 + y,
    "index": lambda y: y[1], "reverse": lambda y: y[::-1], "reshape": lambda y: y.reshape(-1),
    "transpose": lambda y: y.T, "cumsum": lambda y: jnp.cumsum(y, axis=0), "sort": lambda y: jnp.sort(y, axis=0),
    "broadcast": lambda y: y + y[:1], "concatenate": lambda y: jnp.concatenate([y, y]), "set": lambda y: y.at[0].set(7),
    "where": lambda y: jnp.where(y > 0, y, -y), "argmax": lambda y: jnp.argmax(y, axis=0), "itself": lambda y: y,
    "scan": lambda y: jax.lax.scan(lambda c, r: (c + r, c), jnp.zeros(3), y)[1],
    "cond": lambda y: jax.lax.cond(y.sum() > 0, lambda y: y + 1, lambda y: y - 1, y),
    "grad": lambda y: jax.grad(lambda y: (y**3).sum())(y),
}  # fmt: skip


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", CONSUMERS)
@pytest.mark.one_in(4)
def test_shards_as_operands(name, jitted):
    """Operations outside of bodies see the whole array: what they need of it is gathered."""
    x, y = split_array()
    f = CONSUMERS[name]
    if name in ("scan", "cond"):
        pytest.importorskip("mpijax.ops.loops", reason="control flow is not there")
    assert_same((jax.jit(f) if jitted else f)(y), whole(f(jnp.asarray(x))), rtol=1e-6)


def test_operands_of_different_shardings():
    for grid in GRIDS:
        mesh = mesh_2d(grid)
        x, w = draw((2 * SIZE, SIZE)), draw((2 * SIZE, SIZE), seed=1)
        for a in SPECS:
            y = jax.device_put(x, NamedSharding(mesh, a))
            for b in (P("j", "i"), P()):
                z = jax.device_put(w, NamedSharding(mesh, b))
                assert_same(jax.jit(lambda y, z: y * z)(y, z), x * w)


def test_programs_fed_by_programs():
    """Shardings that fit are used as they are, others are gathered and cut again."""
    mesh = mesh_1d()
    x, y = split_array((2 * SIZE, 2 * SIZE))
    row = jax.shard_map(lambda x: x + 1, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    column = jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P(None, "i"), out_specs=P(None, "i"))
    total = jax.shard_map(lambda x: jax.lax.psum(x.sum(), "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    for f in (lambda y: column(row(y)), jax.jit(lambda y: column(row(y))), lambda y: jax.jit(column)(jax.jit(row)(y))):
        assert_same(f(y), (x + 1) * 2)
        assert_same(f(x), (x + 1) * 2)
    assert_same(total(column(row(y))), ((x + 1) * 2).sum(dtype=np.float32), rtol=1e-6)


def test_closed_over():
    mesh = mesh_1d()
    x, y = split_array()
    f = jax.shard_map(lambda z: jax.lax.psum(z.sum(), "i") + y.sum(), mesh=mesh, in_specs=P("i"), out_specs=P())
    assert_same(f(x), 2 * x.sum(dtype=np.float32), rtol=1e-6)
    total, _ = jax.lax.scan(lambda c, k: (c + (k * y).sum(), None), 0.0, jnp.arange(3.0))
    assert_same(total, 3 * x.sum(dtype=np.float32), rtol=1e-6)
    whole_everywhere = jax.device_put(x, NamedSharding(mesh, P()))
    assert_same(jax.jit(lambda z: z + whole_everywhere)(y), 2 * x)
    assert_same(jax.jit(lambda z: (z * 2, z + y)[0])(x), 2 * x)


CLOSED_OVER = {
    "call": lambda y: jax.jit(lambda z: z + y)(1.0),
    "call of a call": lambda y: jax.jit(lambda z: jax.jit(lambda v: v + y)(z))(1.0),
    "loop": lambda y: jax.jit(lambda z: jax.lax.fori_loop(0, 2, lambda k, c: c + y.sum(), z))(1.0),
    "result": lambda y: jax.jit(lambda z: (z, y))(1.0),
    "lower": lambda y: jax.jit(lambda z: z + y).lower(1.0),
    "static": lambda y: jax.jit(lambda z, n: z + n * y, static_argnums=1)(1.0, 2),
}


@many
@pytest.mark.parametrize("name", CLOSED_OVER)
def test_a_jitted_function_takes_arrays_over_ranks_as_arguments_only(name):
    _, y = split_array()
    with pytest.raises(RuntimeError, match=r"Closing over jax.Array that spans non-addressable .*float32\[\d+,3\] sharded"):
        CLOSED_OVER[name](y)


@pytest.mark.parametrize("shape", [(0, 3), (SIZE, 0), (SIZE,)], ids=str)
def test_empty_and_small(shape):
    x, y = split_array(shape)
    assert_same(y, x)
    assert_same(y + 1, x + 1)
    assert_same(jnp.sum(y), x.sum(dtype=np.float32))


def test_donated_shards():
    x, y = split_array()
    f = jax.jit(jax.shard_map(lambda x: x + 1, mesh=mesh_1d(), in_specs=P("i"), out_specs=P("i")), donate_argnums=0)
    assert_same(f(y), x + 1)
    assert y.is_deleted()


def test_keys_laid_out_over_ranks():
    keys = jax.random.split(jax.random.key(3), SIZE)
    f = jax.shard_map(lambda k: jax.random.uniform(k[0], (2,)), mesh=mesh_1d(), in_specs=P("i"), out_specs=P("i"))
    want = np.concatenate([np.asarray(jax.random.uniform(k, (2,))) for k in keys])
    assert_same(f(keys), want)
    assert_same(f(jax.device_put(keys, NamedSharding(mesh_1d(), P("i")))), want)


def test_grad_of_split_arguments():
    x = real((2 * SIZE, 3))
    y = jax.device_put(x, NamedSharding(mesh_1d(), P("i")))
    assert_same(jax.jit(jax.grad(lambda y: jnp.sum(jnp.sin(y) ** 2)))(y), np.sin(2 * x), rtol=1e-4, atol=1e-5)
