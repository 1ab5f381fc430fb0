"""Results of operations on arrays that each process has whole lie over the mesh of these arrays."""

import numpy as np
import pytest
from oracle import OURS, THEIRS
from spmd.ranks import SIZE, mesh_1d

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.runtime.mpi import mpi_start
from mpijax.sharding import NamedSharding, SingleDeviceSharding
from mpijax.sharding import PartitionSpec as P

X = np.arange(16, dtype=np.float32).reshape(4, 4)

OPERATIONS = {
    "an operator": lambda J: lambda x: x + 1,
    "two arrays": lambda J: lambda x: x + np.ones(4, np.float32),
    "a sum": lambda J: lambda x: x.sum(),
    "a row": lambda J: lambda x: x[0],
    "an update": lambda J: lambda x: x.at[0].set(1),
    "jit": lambda J: J.jit(lambda x: {"a": x * 2, "b": x}),
    "constants": lambda J: J.jit(lambda x: (x * 2, J.numpy.zeros(3))),
    "gradients": lambda J: J.grad(lambda x: (x * x).sum()),
    "batches": lambda J: J.vmap(lambda x: x * 2),
    "a loop": lambda J: lambda x: J.lax.scan(lambda c, x: (c + x, c), x[0], x)[0],
    "donation": lambda J: lambda x: J.jit(lambda y: y * 2, donate_argnums=0)(x + 0),
    "compiled ahead": lambda J: lambda x: J.jit(lambda y: y * 2).lower(x).compile()(x),
    "a copy": lambda J: J.numpy.array,
}


@pytest.mark.parametrize("spec", [(), ("i",), (None, "i")])
@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.one_in(4)
def test_over_a_mesh_of_one_device_as_in_jax(label, spec):
    def seen(J):
        mesh = J.make_mesh((1,), ("i",), axis_types=(J.sharding.AxisType.Auto,))
        x = J.device_put(X, J.NamedSharding(mesh, J.P(*spec)))
        return [(str(out.sharding), out.committed) for out in J.tree.leaves(OPERATIONS[label](J)(x))]

    assert seen(OURS) == seen(THEIRS)


def over_all():
    return NamedSharding(mesh_1d(), P())


@pytest.mark.mpi
@pytest.mark.parametrize("label", OPERATIONS)
def test_over_the_ranks(label):
    x = jax.device_put(X, over_all())
    for out in jax.tree.leaves(OPERATIONS[label](jax)(x)):
        assert out.sharding == over_all() and out.is_fully_replicated and out.committed


@pytest.mark.mpi
def test_other_arguments_and_constants_keep_their_own():
    x, y = jax.device_put(X, over_all()), jnp.ones(3)
    f = jax.jit(lambda x, y: (x, y, jnp.arange(3)))
    for given, expected in ((jnp.asarray(X), SingleDeviceSharding), (x, NamedSharding), (jnp.asarray(X), SingleDeviceSharding)):
        outs = f(given, y)
        assert [type(out.sharding) for out in outs] == [expected] * 3
        np.testing.assert_array_equal(outs[1], np.ones(3))
        np.testing.assert_array_equal(outs[2], np.arange(3))
    assert type(y.sharding) is SingleDeviceSharding and not y.committed


@pytest.mark.mpi
def test_what_ranks_tell_each_other_belongs_to_each():
    x = jax.device_put(X, over_all())
    mpi_start.world()
    from mpi4py import MPI  # started above

    assert SIZE == 1 or type(jax.mpi.scan(x, op=MPI.SUM).sharding) is SingleDeviceSharding
    step = jax.jit(lambda w, b: w - jax.grad(lambda w: ((b @ w) ** 2).mean())(w))
    batch = jax.device_put(np.ones((SIZE * 2, 4), np.float32), NamedSharding(mesh_1d(), P("i")))
    assert step(x, batch).sharding.is_equivalent_to(over_all(), 2)
    assert lax.stop_gradient(x).sharding == over_all()
