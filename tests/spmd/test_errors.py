"""Wrong programs: class and key phrase of JAX's errors."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, mesh_1d

import mpijax as jax
from mpijax import lax

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # found before ranks communicate
X = np.ones((2 * SIZE, 3), np.float32)


def call(f, in_specs, out_specs, *args, **options):
    return jax.shard_map(f, mesh=mesh_1d(), in_specs=in_specs, out_specs=out_specs, **options)(*args)


CASES = {
    "axis of psum": (lambda: call(lambda x: lax.psum(x, "k"), P("i"), P("i"), X), NameError, "unbound axis name: k"),
    "psum outside": (lambda: lax.psum(X, "i"), NameError, "unbound axis name: i"),
    "axis of in_specs": (lambda: call(lambda x: x, P("k"), P(), X), ValueError, "in_specs refers to 'k'"),
    "axis of out_specs": (lambda: call(lambda x: x, P("i"), P("k"), X), ValueError, "out_specs refers to 'k'"),
    "axis of a sharding": (lambda: jax.NamedSharding(mesh_1d(), P("k")), ValueError, "is not found in mesh"),
    "long in_specs": (lambda: call(lambda x: x, P(None, None, "i"), P(), X), ValueError, "in_specs entry which is too long"),
    "long out_specs": (lambda: call(lambda x: lax.psum(x.sum(), "i"), P("i"), P("i"), X), ValueError,
                       "out_specs entry which is too long"),
    "number of in_specs": (lambda: call(lambda x: x, (P("i"), P()), P("i"), X), ValueError, "pytree structure error"),
    "number of out_specs": (lambda: call(lambda x: (x, x), P("i"), (P("i"),) * 3, X), ValueError, "pytree structure error"),
    "not a spec": (lambda: call(lambda x: x, "i", P("i"), X), TypeError, "pytree of `PartitionSpec` instances"),
    "not replicated": (lambda: call(lambda x: x, P("i"), P(), X), ValueError, "require replication which can't be statically"),
    "mesh too large": (lambda: jax.make_mesh((SIZE + 1,), ("i",)), ValueError, "must be >= the product of mesh_shape"),
    "names of a mesh": (lambda: jax.sharding.Mesh(jax.devices(), ("i", "j")), ValueError, "Mesh requires the ndim"),
    "equal names": (lambda: jax.make_mesh((1, 1), ("i", "i")), ValueError, "must be unique"),
    "ppermute twice": (lambda: call(lambda x: lax.ppermute(x, "i", [(0, 0), (0, 0)]), P("i"), P("i"), X), ValueError,
                       "sources and destinations must be unique"),
    "pcast of varying": (lambda: call(lambda x: lax.pcast(x, "i", to="varying"), P("i"), P("i"), X), ValueError, "from=varying"),
    "not callable": (lambda: jax.shard_map(3, mesh=mesh_1d(), in_specs=P(), out_specs=P()), TypeError, "requires a callable"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_wrong_programs(name):
    make, error, text = CASES[name]
    with pytest.raises(error, match=text):
        make()


@pytest.mark.skipif(SIZE == 1, reason="everything is divisible by one")
def test_not_divisible():
    x = np.ones((2 * SIZE + 1, 3), np.float32)
    with pytest.raises(ValueError, match="not evenly divisible by the corresponding mesh axis sizes"):
        call(lambda x: x, P("i"), P("i"), x)
    with pytest.raises(ValueError, match="implies that array axis"):
        jax.device_put(x, jax.NamedSharding(mesh_1d(), P("i")))


def test_the_message_names_the_parameter():
    with pytest.raises(
        ValueError, match=r"(?s)function 'step'.*args\[1\], where args\[1\] is bound to step's parameter 'w'"
    ):

        def step(x, w):
            return x

        call(step, (P("i"), P(None, "i")), P("i"), X, np.ones(3, np.float32))
