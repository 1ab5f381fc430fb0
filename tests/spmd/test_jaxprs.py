"""Jaxprs of collectives, their batches and their transposes read as JAX's, on a mesh of one device."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import OURS, THEIRS, jaxpr_text
from spmd.ranks import SIZE

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE > 1, reason="JAX runs on one device here")]

GROUPS = [[0]]
TABLE = {
    "psum": lambda J: lambda x: J.lax.psum(x, "i"),
    "psum of both": lambda J: lambda x: J.lax.psum(x, ("i", "j")),
    "psum of truth values": lambda J: lambda x: J.lax.psum(x > 0, "i"),
    "psum of a constant": lambda J: lambda x: x + J.lax.psum(J.numpy.ones(3), "i"),
    "pmean": lambda J: lambda x: J.lax.pmean(x, "i"),
    "pmax": lambda J: lambda x: J.lax.pmax(x, "i"),
    "all_gather": lambda J: lambda x: J.lax.all_gather(x, "i", axis=-1, axis_index_groups=GROUPS),
    "all_gather tiled": lambda J: lambda x: J.lax.all_gather(x, ("i", "j"), axis=1, tiled=True),
    "all_gather invarying": lambda J: lambda x: J.lax.all_gather(x, "i", to="invarying"),
    "psum_scatter": lambda J: lambda x: J.lax.psum_scatter(x, "i"),
    "psum_scatter tiled": lambda J: lambda x: J.lax.psum_scatter(
        x, ("j", "i"), scatter_dimension=1, tiled=True, axis_index_groups=GROUPS),
    "all_to_all": lambda J: lambda x: J.lax.all_to_all(x, "i", 0, 1),
    "all_to_all backwards": lambda J: lambda x: J.lax.all_to_all(x.T, "i", 1, 0),
    "all_to_all tiled": lambda J: lambda x: J.lax.all_to_all(x, "i", 1, 0, tiled=True, axis_index_groups=GROUPS),
    "pswapaxes": lambda J: lambda x: J.lax.pswapaxes(x, "i", 0),
    "pshuffle": lambda J: lambda x: J.lax.pshuffle(x, "i", [0]),
    "ppermute": lambda J: lambda x: J.lax.ppermute(x, ("i", "j"), [(0, 0)]),
    "pbroadcast": lambda J: lambda x: J.lax.pbroadcast(x, "i", 0),
    "axis_index": lambda J: lambda x: x + J.lax.axis_index(("i", "j")),
    "axis_size": lambda J: lambda x: x + J.lax.axis_size("i"),
    "pcast": lambda J: lambda x: J.lax.pcast(J.numpy.ones(3), "i", to="varying"),
}  # fmt: skip


def pull(J, f):
    return lambda x: J.vjp(f, x)[1](f(x))[0]


FORMS = {
    "itself": lambda J, f: f,
    "vmap": lambda J, f: J.vmap(f, in_axes=1),
    "transpose": pull,
}
# JAX fails on the transposes of all_to_all that is not tiled, and has none of pbroadcast, whose result it cannot type.
# The transposes of all_gather to an invariant value clamps an index that cannot be out of bounds; of pmax there is none.
NOT_IN_JAX = {
    ("transpose", n)
    for n in ("all_to_all", "all_to_all backwards", "pbroadcast", "all_gather invarying", "pmax", "psum of truth values")
} | {("vmap", "psum_scatter"), ("vmap", "all_gather invarying"), ("vmap", "pcast"), ("vmap", "all_to_all tiled")}


@pytest.mark.sweep
@pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no vma"])
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.one_in(3)
def test_text(form, name, check_vma):
    if (form, name) in NOT_IN_JAX:
        pytest.skip("not in JAX")
    if name == "all_gather invarying" and not check_vma:
        pytest.skip("without types JAX gathers by another primitive")

    def make(J):
        P = J.sharding.PartitionSpec
        mesh = J.sharding.Mesh(np.array(J.devices()[:1], dtype=object).reshape(1, 1), ("i", "j"))
        f = FORMS[form](J, TABLE[name](J))
        return J.shard_map(f, mesh=mesh, in_specs=P(("i", "j")), out_specs=P(("i", "j")), check_vma=check_vma)

    shape = (1, 5, 3) if form == "vmap" else (1, 3)
    if name == "psum_scatter tiled" or form == "vmap" and "backwards" in name:
        shape = shape[:-1] + (1 if "backwards" in name else 3,)
    x = np.ones(shape, np.float32)
    theirs, ours = jaxpr_text(THEIRS, make, (x,)), jaxpr_text(OURS, make, (x,))
    assert theirs[0] == "value", theirs
    assert ours == theirs
