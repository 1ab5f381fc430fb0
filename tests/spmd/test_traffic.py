"""What a rank sends in one run of a program, by the program's own account."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, mesh_1d

import mpijax as jax
from mpijax import NamedSharding, lax, mpi
from mpijax import numpy as jnp
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi

N = 8
BYTES = 4 * N  # of the shard that each rank has
RING = [(r, (r + 1) % SIZE) for r in range(SIZE)]


def _turns(body):
    return lambda x: lax.fori_loop(0, 5, lambda _, x: body(x) / SIZE, x)


def _until(body):
    return lambda x: lax.while_loop(lambda x: jnp.all(x > 1e9), lambda x: body(x) + 0, x)


def _sum(x):
    return lax.pcast(lax.psum(x, "i"), "i", to="varying")


REDUCED = 2 * BYTES * (SIZE - 1) / SIZE
# name: (function of a shard, bytes that it sends, whether all loops have known iterations)
BODIES = {
    "psum": (_sum, REDUCED, True),
    "all_gather": (lambda x: lax.all_gather(x, "i").sum(0), BYTES * (SIZE - 1), True),
    "all_to_all": (
        lambda x: lax.all_to_all(jnp.tile(x, SIZE), "i", 0, 0, tiled=True)[:N], BYTES * (SIZE - 1), True),
    "psum_scatter": (
        lambda x: lax.psum_scatter(jnp.tile(x, SIZE), "i", tiled=True), BYTES * (SIZE - 1), True),
    "ppermute": (lambda x: lax.ppermute(x, "i", RING), BYTES if SIZE > 1 else 0, True),
    "loop": (_turns(_sum), 5 * REDUCED, True),
    "while": (_until(_sum), REDUCED, False),
    "cond": (lambda x: lax.cond(jnp.int32(SIZE) > 0, _sum, lambda x: x, x), REDUCED, True),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_bodies(name):
    body, expected, known = BODIES[name]
    mesh = mesh_1d()
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))
    x = jax.device_put(np.arange(N * SIZE, dtype=np.float32), NamedSharding(mesh, P("i")))
    lowered = f.lower(x)
    steps = sent(lowered.compiler_ir())
    assert lowered.cost_analysis()["bytes sent"] == pytest.approx(expected)
    assert sum(s.total for s in steps) == pytest.approx(expected)
    if SIZE > 1:
        assert steps and all(s.known == known and s.source.line for s in steps)


def test_messages_of_mpijax_mpi():
    from mpi4py import MPI  # mpijax has started it

    rank, x = jax.process_index(), jnp.zeros(N * SIZE)
    total = 4 * N * SIZE

    def bytes_of(f):
        return jax.jit(f).lower(x).cost_analysis()["bytes sent"]

    assert bytes_of(lambda x: mpi.allreduce(x, op=MPI.SUM)) == pytest.approx(2 * total * (SIZE - 1) / SIZE)
    assert bytes_of(lambda x: mpi.bcast(x, root=0)) == (total if SIZE > 1 else 0)
    assert bytes_of(lambda x: mpi.gather(x, root=0)) == (0 if rank == 0 else total)
    assert bytes_of(lambda x: mpi.alltoall(x.reshape(SIZE, N))) == pytest.approx(4 * N * (SIZE - 1))
    right, left = (rank + 1) % SIZE, (rank - 1) % SIZE
    assert bytes_of(lambda x: mpi.sendrecv(x, x, source=left, dest=right)) == (total if SIZE > 1 else 0)
    assert bytes_of(lambda x: jnp.sin(x)) == 0


def _layers(*wrappers):
    """Layers that share their weights, each of them a call of its own."""

    def loss(w, x):
        for _ in range(3):
            layer = lambda x, w: jnp.tanh(x @ w)
            for wrapper in wrappers:
                layer = wrapper(layer)
            x = layer(x, w)
        return (x**2).sum()

    return loss


@pytest.mark.parametrize("wrappers", [(), (jax.checkpoint,), (jax.jit,), (jax.checkpoint, jax.jit)])
@pytest.mark.one_in(2)
def test_gradients_of_shared_weights_are_one_message(wrappers):
    """Ranks add what they have of the gradient, layer by layer; its parts lie in another order, in calls."""
    mesh, rng = mesh_1d(), np.random.default_rng(0)
    w, x = (rng.normal(size=shape).astype(np.float32) / 3 for shape in ((N, N), (2 * SIZE, N)))
    weights = jax.device_put(w, NamedSharding(mesh, P()))
    rows = jax.device_put(x, NamedSharding(mesh, P("i")))
    loss = _layers(*wrappers)
    f = jax.jit(jax.grad(loss))
    assert f.lower(weights, rows).cost_analysis()["bytes sent"] == pytest.approx(2 * 4 * N * N * (SIZE - 1) / SIZE)
    np.testing.assert_allclose(f(weights, rows), jax.grad(loss)(w, x), rtol=1e-4, atol=1e-6)
