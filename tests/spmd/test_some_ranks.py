"""Arrays and programs over some of the ranks: the others call them too, as JAX's processes do, and have no part."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, draw

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.experimental import multihost_utils

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks, pytest.mark.skipif(SIZE == 1, reason="a mesh lacks no rank of one")]  # sub-communicators

RANK = jax.process_index()
DEVICES = jax.devices()
SOME = {"the first": DEVICES[:1], "all but the first": DEVICES[1:], "all but the last": DEVICES[:-1][::-1]}
# Each with what NumPy makes of the same numbers.
PROGRAMS = {
    "add": (lambda x, s: x + 1, lambda x: x + 1),
    "sum": (lambda x, s: x.sum(), np.sum),
    "cumsum": (lambda x, s: jax.jit(jnp.cumsum)(x), np.cumsum),
    "index": (lambda x, s: x[3], lambda x: x[3]),
    "grad": (jax.jit(jax.grad(lambda x, s: (x**2).sum()), static_argnums=1), lambda x: 2 * x),
    "gathered": (lambda x, s: jax.device_put(x, NamedSharding(s.mesh, P())), lambda x: x),
    "other order": (lambda x, s: jax.device_put(x, _over(s.mesh.devices[::-1])), lambda x: x),
    "loop": (lambda x, s: lax.fori_loop(0, 3, lambda i, x: x + x.sum(), x), lambda x: x + 1 * _grown(x)),
    "cond": (lambda x, s: lax.cond(x.sum() > 1e9, lambda x: x, lambda x: -x, x), np.negative),
    "while": (lambda x, s: lax.while_loop(lambda x: x.max() < 50, lambda x: x * 2, x), lambda x: _doubled(x, 50)),
    "shard_map": (
        lambda x, s: jax.shard_map(lambda x: lax.psum(x.sum(), "i") + x, mesh=s.mesh, in_specs=P("i"), out_specs=P("i"))(x),
        lambda x: x + x.sum(),
    ),
    "out_shardings": (lambda x, s: jax.jit(lambda: jnp.arange(12.0), out_shardings=s)(), lambda x: np.arange(12.0)),
    "constraint": (lambda x, s: jax.jit(lambda: lax.with_sharding_constraint(jnp.ones(12), s).sum())(), lambda x: 12.0),
    "with host's": (lambda x, s: x * np.arange(12, dtype=np.float32), lambda x: x * np.arange(12)),
    "compiled": (
        lambda x, s: jax.jit(lambda x: x - x.mean()).lower(jax.ShapeDtypeStruct((12,), "float32", sharding=s)).compile()(x),
        lambda x: x - x.mean(),
    ),
    "explicit": (
        lambda x, s: jax.jit(lambda x: x + 1)(jax.device_put(x, NamedSharding(_explicit(s.mesh), s.spec))),
        lambda x: x + 1,
    ),
    "explicit, whole": (
        lambda x, s: jax.jit(lambda x: x.sum() + x)(jax.device_put(x, NamedSharding(_explicit(s.mesh), P()))),
        lambda x: x.sum() + x,
    ),
    "callback": (lambda x, s: jax.make_array_from_callback((12,), s, lambda i: np.ones(12)[i], dtype="float32"), np.ones_like),
    "shards": (
        lambda x, s: jax.make_array_from_single_device_arrays((12,), s, [p.data for p in x.addressable_shards], dtype=x.dtype),
        lambda x: x,
    ),
    "a result on one device": (
        lambda x, s: jax.jit(lambda: jnp.cumsum(jnp.arange(12.0)), out_shardings=_on(s.mesh.devices[-1]))(),
        lambda x: np.cumsum(np.arange(12.0)),
    ),
    "one device": (lambda x, s: jax.device_put(np.arange(3.0), s.mesh.devices[-1]) + 1, lambda x: np.arange(3.0) + 1),
}  # fmt: skip


def _over(devices) -> NamedSharding:
    return NamedSharding(jax.sharding.Mesh(devices, "i"), P("i"))


def _on(device) -> jax.sharding.SingleDeviceSharding:
    return jax.sharding.SingleDeviceSharding(device)


def _explicit(mesh):
    return mesh.update(axis_types=(jax.sharding.AxisType.Explicit,))


def _grown(x: np.ndarray) -> np.ndarray:
    """What three iterations add: each adds the sum, which grows by a factor of the size and one."""
    n = x.size
    return x.sum() * (1 + (n + 1) + (n + 1) ** 2)


def _doubled(x: np.ndarray, least: float) -> np.ndarray:
    while x.max() < least:
        x = x * 2
    return x


@pytest.mark.parametrize("devices", SOME)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, devices):
    program, oracle = PROGRAMS[name]
    x, sharding = np.abs(draw((12,), "float32")) + 0.1, _over(SOME[devices])
    want = np.asarray(oracle(x.astype(np.float64)))
    for _ in range(2):  # a later call takes another way
        y = program(jax.device_put(x, sharding), sharding)
        assert y.shape == want.shape
        if RANK in y.sharding.processes:
            for shard in y.addressable_shards:
                np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=2e-5)
        else:
            assert y.addressable_shards == [] and not y.is_fully_addressable and not y.sharding.has_addressable_devices
            assert repr(y) == f"Array(shape={want.shape}, dtype=float32)"
            with pytest.raises(RuntimeError, match="Fetching value for `jax.Array` that spans non-addressable"):
                np.asarray(y)


@pytest.mark.skipif(SIZE < 4, reason="two meshes of two ranks")
def test_halves_do_different_things():
    """Neither takes part in what the other does, and makes no communicator with it."""
    half = SIZE // 2
    x = np.arange(12, dtype=np.float32)
    if half > RANK:
        for _ in range(3):
            total = float(jax.device_put(x, _over(DEVICES[:half])).sum())
    else:
        total = float(jax.jit(lambda x: (x * x).max())(jax.device_put(x, _over(DEVICES[half:]))))
    assert multihost_utils.process_allgather(total).tolist() == [66.0] * half + [121.0] * (SIZE - half)


# Raised on every rank, so that none waits.
REFUSED = {
    "another mesh": (lambda x, y: x + y, ValueError, "Received incompatible devices for jitted computation"),
    "a body on another mesh": (
        lambda x, y: jax.jit(jax.shard_map(lambda x: x, mesh=y.sharding.mesh, in_specs=P("i"), out_specs=P("i")))(x),
        ValueError, "Received incompatible devices for jitted computation",
    ),
    "to all": (lambda x, y: jax.device_put(x, y.sharding), ValueError, "should have the same set of devices"),
    "to some": (lambda x, y: jax.device_put(y, x.sharding), ValueError, "should have the same set of devices"),
    "to one device": (lambda x, y: jax.device_put(y, DEVICES[0]), ValueError, "must be a fully addressable array or"),
    "gathered by all": (
        lambda x, y: multihost_utils.process_allgather(jax.device_put(np.ones(2), DEVICES[0])),
        ValueError, r"processes \[1.*\] have no shard of an array that is whole on other processes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_everywhere(name):
    if SIZE == 2 and name == "to all":
        pytest.skip("what one rank has whole goes anywhere from there")
    act, kind, text = REFUSED[name]
    x = draw((12,), "float32")
    with pytest.raises(kind, match=text):
        act(jax.device_put(x, _over(DEVICES[1:])), jax.device_put(x, _over(DEVICES)))


def test_parts_of_other_ranks():
    """What a rank that has no part cannot know, or give."""
    sharding = _over(DEVICES[1:])
    part = jnp.ones(12 // (SIZE - 1))
    calls = [
        lambda: jax.make_array_from_callback((12,), sharding, lambda i: np.ones(12)[i]),
        lambda: multihost_utils.host_local_array_to_global_array(part, sharding.mesh, P("i")),
        lambda: multihost_utils.global_array_to_host_local_array(jax.device_put(np.ones(12), sharding), sharding.mesh, P("i")),
    ]  # fmt: skip
    for call in calls:
        if RANK:
            assert call().addressable_shards[0].data.shape == part.shape
        else:
            with pytest.raises(ValueError, match="no addressable shards|no device of"):
                call()


def test_keys_of_other_ranks():
    sharding = _over(DEVICES[1:])
    keys = jax.random.split(jax.random.key(0), 12)
    parts = [p.data for p in jax.device_put(keys, sharding).addressable_shards]
    made = jax.make_array_from_single_device_arrays((12,), sharding, parts, dtype=keys.dtype)
    assert made.shape == (12,) and made.dtype == keys.dtype and len(made.addressable_shards) == (RANK > 0)


def test_a_shard_of_its_own_is_no_copy_of_others():
    """What `global_array_to_host_local_array` returns differs on each process, so it is gathered, not taken for all."""
    sharding = _over(DEVICES)
    x = draw((2 * SIZE,), "float32")
    own = multihost_utils.global_array_to_host_local_array(jax.device_put(x, sharding), sharding.mesh, P("i"))
    assert own.is_fully_addressable
    np.testing.assert_array_equal(multihost_utils.process_allgather(own), x.reshape(SIZE, 2))
    assert multihost_utils.process_allgather(RANK).dtype == np.int32
