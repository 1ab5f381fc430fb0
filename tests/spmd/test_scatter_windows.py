"""Scatters over a mesh of two axes: windows that updates cover stay split, and only rows are exchanged."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import GRIDS, SIZE, P, assert_same, draw, mesh_2d

import mpijax as jax
from mpijax import NamedSharding
from mpijax import numpy as jnp

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks]  # needs two axes of a mesh

N, M = 4 * SIZE, 2 * SIZE
AT = np.random.default_rng(3).integers(0, N, N)
MOVED = np.random.default_rng(4).permutation(N)
X, NEW = draw((N, M), seed=1), draw((N, M), seed=2)
MOVE = {"unique_indices": True, "mode": "promise_in_bounds"}

# name: (the function, how its updates are split, the split of the result that it computes, or None)
CASES = {
    "add whole": (lambda x, new: x.at[AT].add(new), P(), P("i", "j")),
    "add columns": (lambda x, new: x.at[AT].add(new), P(None, "j"), P("i", "j")),
    "add columns over the axis of rows": (lambda x, new: x.at[AT].add(new), P(None, "i"), P("i", "j")),
    "max": (lambda x, new: x.at[AT].max(new), P("i", "j"), P("i", "j")),
    "set": (lambda x, new: x.at[MOVED].set(new), P("i", "j"), P("i", "j")),
    "clip": (lambda x, new: x.at[AT * 2].multiply(new, mode="clip"), P(None, "j"), P("i", "j")),
    "unique": (lambda x, new: x.at[MOVED].set(new, **MOVE), P("i", "j"), P("i", "j")),
    "unique, other columns": (lambda x, new: x.at[MOVED].add(new, **MOVE), P("j", "i"), None),
    "sum of segments": (lambda x, new: jax.ops.segment_sum(new, AT, N), P("i", "j"), P(None, "j")),
    "least of segments": (lambda x, new: jax.ops.segment_min(new, AT, N), P("i", "j"), P(None, "j")),
}


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("name", CASES)
def test_windows_stay_split(name, shape):
    f, split, expected = CASES[name]
    mesh = mesh_2d(shape)
    x, new = jax.device_put(X, NamedSharding(mesh, P("i", "j"))), jax.device_put(NEW, NamedSharding(mesh, split))
    got = jax.jit(f)(x, new)
    assert_same(got, np.asarray(f(jnp.asarray(X), jnp.asarray(NEW))))
    if expected is not None:
        assert got.sharding.is_equivalent_to(NamedSharding(mesh, expected), 2)


@pytest.mark.parametrize("name", ["add whole", "add columns", "sum of segments", "unique"])
def test_no_columns_are_gathered(name):
    f, split, _ = CASES[name]
    mesh = mesh_2d(GRIDS[0])
    x, new = jax.device_put(X, NamedSharding(mesh, P("i", "j"))), jax.device_put(NEW, NamedSharding(mesh, split))
    assert "all_gather" not in jax.jit(f).lower(x, new).compile().explain()
