"""`shard_map` over one axis of a mesh, on arrays that are split over its other axis, too: nothing is gathered for it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from spmd.partly_manual import PROGRAMS
from spmd.ranks import SIZE, P, mesh_2d, whole

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.runtime.program.traffic import sent

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks, pytest.mark.skipif(SIZE != 4, reason="a mesh of 2 x 2")]
S = SimpleNamespace(jax=jax, jnp=jnp, lax=lax, P=P)


def program(name):
    """The program, its operands split over both axes, and the specs of its results."""
    mesh = mesh_2d((2, 2))

    def over(body, in_specs, out_specs):
        return jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names={"j"}, check_vma=False)

    made, operands, specs = PROGRAMS[name]
    return jax.jit(made(S, over)), [jax.device_put(x, NamedSharding(mesh, P(*s))) for x, s in operands], specs


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_on_whole_operands(name):
    f, xs, specs = program(name)
    of_whole = f(*(x for x, _ in PROGRAMS[name][1]))
    for out, expected, spec in zip(jax.tree.leaves(f(*xs)), jax.tree.leaves(of_whole), specs, strict=True):
        assert tuple(out.sharding.spec) == spec
        np.testing.assert_allclose(whole(out), whole(expected), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["itself", "elementwise", "sum", "permutation", "pipeline"])
def test_messages_are_those_of_the_body(name):
    """Nothing is sent over the other axis."""
    f, xs, _ = program(name)
    kinds = {s.kind for s in sent(f.lower(*xs).compiler_ir())}
    expected = {"sum": {"allreduce_sum"}, "permutation": {"permute"}, "pipeline": {"permute"}}
    assert kinds == expected.get(name, set())
