"""Programs with communication, exported by one rank and loaded by all."""

import numpy as np
import pytest
from spmd.ranks import SIZE, draw, mesh_1d

import mpijax as jax
from mpijax import export, lax
from mpijax.experimental.multihost_utils import process_allgather
from mpijax.runtime.mpi import mpi_start
from mpijax.sharding import PartitionSpec as P

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # test_global_arrays.py has the programs


def mixed(x):
    right = [(i, (i + 1) % SIZE) for i in range(SIZE)]
    return lax.psum(x * (1 + lax.axis_index("i")), "i") + lax.ppermute(x, "i", right)


def test_one_rank_exports_and_all_load():
    x = draw((SIZE * 2, 3))
    program = jax.jit(jax.shard_map(mixed, mesh=mesh_1d(), in_specs=P("i"), out_specs=P("i")))
    blob = bytes(export.export(program)(x).serialize(vjp_order=1))
    found = export.deserialize(mpi_start.world().bcast(blob, root=0))
    assert found.nr_devices == SIZE
    np.testing.assert_array_equal(process_allgather(found.call(x), tiled=True), process_allgather(program(x), tiled=True))
    ours, theirs = (jax.grad(lambda x, f=f: (f(x) ** 2).sum())(x) for f in (found.call, program))
    np.testing.assert_allclose(process_allgather(ours, tiled=True), process_allgather(theirs, tiled=True), rtol=1e-6)


def test_a_communicator_of_this_process_is_no_data():
    mpi = jax.mpi
    world = mpi_start.world()
    from mpi4py import MPI  # started above

    fun = jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM, comm=world))
    with pytest.raises(NotImplementedError, match="default communicator"):
        export.export(fun)(np.ones(3, np.float32))
    found = export.deserialize(export.export(jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM)))(draw((3,))).serialize())
    np.testing.assert_array_equal(found.call(draw((3,))), draw((3,)) * SIZE)


def test_shardings_of_jit_are_kept():
    mesh, other = mesh_1d(), jax.sharding.Mesh(jax.devices()[:SIZE][::-1], "i")
    split, columns = (jax.sharding.NamedSharding(mesh, spec) for spec in (P("i", None), P(None, "i")))
    program = jax.jit(lambda x, y: (2 * x, y), in_shardings=(split, None), out_shardings=(columns, None))
    x = jax.numpy.asarray(draw((SIZE, SIZE)))
    made = export.export(program)(x, x)
    for found in (made, export.deserialize(made.serialize(vjp_order=1))):
        assert found.nr_devices == found.vjp().nr_devices == SIZE
        assert found.in_shardings_jax(mesh) == (split, None) and found.out_shardings_jax(mesh) == (columns, None)
        assert [s and (s.mesh, s.spec) for s in found.in_shardings_jax(other)] == [(other, P("i", None)), None]
        assert [s and s.spec for s in found.vjp().in_shardings_jax(mesh)] == [split.spec, None, columns.spec, None]
        assert found.call(x, x)[0].sharding.is_equivalent_to(columns, 2)
    with pytest.raises(ValueError, match="does not match the mesh used for export"):
        made.in_shardings_jax(jax.sharding.Mesh(jax.devices()[:SIZE], "j"))


def test_a_program_exported_without_devices_runs_on_those_of_the_job():
    rows = jax.sharding.NamedSharding(jax.sharding.AbstractMesh((SIZE,), ("i",)), P("i"))
    x = draw((SIZE * 2, 3))
    struct = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows)
    made = export.export(jax.jit(lambda x: lax.with_sharding_constraint(x * 2, rows), out_shardings=rows))(struct)
    found = export.deserialize(mpi_start.world().bcast(bytes(made.serialize(vjp_order=1)), root=0))
    assert found.nr_devices == SIZE
    whole = process_allgather(jax.device_put(x, found.in_shardings_jax(mesh_1d())[0]), tiled=True)
    placed = jax.device_put(whole, found.in_shardings_jax(mesh_1d())[0])
    np.testing.assert_array_equal(process_allgather(found.call(placed), tiled=True), 2 * np.asarray(whole))
    gradient = jax.grad(lambda x: (found.call(x) ** 2).sum())(placed)
    np.testing.assert_allclose(process_allgather(gradient, tiled=True), 8 * np.asarray(whole), rtol=1e-6)
