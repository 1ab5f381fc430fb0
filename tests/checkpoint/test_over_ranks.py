"""Arrays sharded over ranks: each rank writes its parts, and reads its parts in any other sharding."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import GRIDS, SIZE, P, assert_same, draw, mesh_1d, mesh_2d

import mpijax as jax
from mpijax import NamedSharding
from mpijax import numpy as jnp
from mpijax.checkpoint import Checkpointer, CheckpointError, CheckpointWarning, restore, save
from mpijax.checkpointing import chunks, saving, store

pytestmark = pytest.mark.mpi

RANK = jax.process_index()
many = pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")
SPECS = [P("i", "j"), P("j", "i"), P(("i", "j")), P(None, ("j", "i")), P(None, "j"), P("i"), P()]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """So that small arrays have several."""
    monkeypatch.setattr(chunks.chunk_shape, "__defaults__", (64,))


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64"])
@pytest.mark.parametrize("grid", GRIDS)
def test_every_sharding_is_read_in_every_sharding(folder, grid, dtype):
    mesh = mesh_2d(grid)
    x = draw((2 * SIZE, 3 * SIZE), dtype)
    tree = {str(i): jax.device_put(x, NamedSharding(mesh, spec)) for i, spec in enumerate(SPECS)}
    save(folder, tree)
    for whole in restore(folder).values():
        assert_same(whole, x)
    for spec in SPECS:
        sharding = NamedSharding(mesh, spec)
        found = restore(folder, {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for name in tree})
        for y in found.values():
            assert y.sharding == sharding
            assert_same(y, x)


def test_arrays_as_like(folder):
    mesh = mesh_1d()
    x = draw((2 * SIZE, 3))
    tree = {"x": jax.device_put(x, NamedSharding(mesh, P("i"))), "key": jax.random.split(jax.random.key(1), SIZE)}
    tree["keys"] = jax.device_put(tree["key"], NamedSharding(mesh, P("i")))
    save(folder, tree)
    found = restore(folder, tree)
    assert found["x"].sharding == tree["x"].sharding and found["keys"].sharding == tree["keys"].sharding
    assert_same(found["x"], x)
    assert_same(found["x"] + 1, x + 1)
    np.testing.assert_array_equal(jax.random.key_data(found["key"]), jax.random.key_data(tree["key"]))
    np.testing.assert_array_equal(found["keys"]._physical, tree["keys"]._physical)


def test_rows_that_ranks_do_not_divide(folder):
    x = draw((4 * SIZE, 3))
    u = jax.device_put(x, NamedSharding(mesh_1d(), P("i")))
    d = jax.jit(lambda u: u[1:])(u)
    save(folder, {"d": d})
    assert_same(restore(folder)["d"], x[1:])
    found = restore(folder, {"d": d})["d"]
    assert found.sharding == d.sharding
    assert_same(found + 1, x[1:] + 1)


@many
def test_arrays_over_some_ranks(folder):
    """Ranks without a part write and read nothing. Saving an array that one rank alone has raises on every rank."""
    mesh, x = jax.sharding.Mesh(jax.devices()[1:], "i"), draw((3 * SIZE * (SIZE - 1),))
    specs = [P("i"), P()] if SIZE > 2 else []
    tree = {"all": jax.device_put(x, NamedSharding(mesh_1d(), P("i")))}
    tree |= {str(spec): jax.device_put(x, NamedSharding(mesh, spec)) for spec in specs}
    save(folder, tree)
    for name, y in restore(folder, tree).items():
        assert y.sharding == tree[name].sharding
        for shard in y.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), x[shard.index])
    assert_same(restore(folder)["all"], x)
    with pytest.raises(CheckpointError, match="An array on process 0 only cannot be saved"):
        save(folder.with_name("another"), {"x": jax.device_put(x, jax.devices()[0])})


def test_copies_share_the_writing(monkeypatch):
    """Each chunk of an array that all ranks have is written once, and by different ranks."""
    from mpijax.runtime.mpi import objects

    x = draw((4 * SIZE, 16))
    tree = [jax.device_put(x, NamedSharding(mesh_1d(), P())), jnp.asarray(x), x]
    job = saving.plan(tree, RANK, SIZE)
    mine = [(array, at) for array, pieces in job.pieces for at, _, _ in pieces]
    everybody = objects.allgather(mine, "test")
    written = [chunk for each in everybody for chunk in each]
    assert len(written) == len(set(written)) == 3 * 4 * SIZE
    assert max(map(len, everybody)) - min(map(len, everybody)) <= 4 * SIZE
    if SIZE > 1:
        assert {len([a for a, _ in each if a == job.pieces[0][0]]) for each in everybody} == {4}


def test_each_rank_reads_its_own_part_alone(folder, monkeypatch):
    x = draw((4 * SIZE, 16))
    rows = NamedSharding(mesh_1d(), P("i"))
    save(folder, [jax.device_put(x, rows)])
    seen = []
    real = store.read
    monkeypatch.setattr(store, "read", lambda f, a, z, start, out: (seen.append((start, out.shape)), real(f, a, z, start, out)))
    [y] = restore(folder, [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows)])
    assert seen == [((4 * RANK, 0), (4, 16))]
    assert_same(y, x)


@pytest.mark.parametrize("shape", [(0, 3), (SIZE, 0), (SIZE,)], ids=str)
def test_empty_and_small(folder, shape):
    rows = NamedSharding(mesh_1d(), P("i"))
    x = draw(shape)
    save(folder, [jax.device_put(x, rows), jax.device_put(np.float32(3), NamedSharding(mesh_1d(), P()))])
    y, z = restore(folder, [jax.ShapeDtypeStruct(shape, x.dtype, sharding=rows), jax.ShapeDtypeStruct((), x.dtype)])
    assert_same(y, x)
    assert float(z) == 3


@many
def test_different_trees_are_an_error_on_every_rank(folder):
    with pytest.raises(CheckpointError, match="The ranks save different trees: rank [0-9]+ has other"):
        save(folder, {"step": RANK})
    assert not folder.exists()


@many
def test_the_error_of_one_rank_is_that_of_all(folder, monkeypatch):
    save(folder, [jnp.ones(3)])
    with pytest.raises(CheckpointError, match="rank 1: TypeError: .*but 0 is a builtins.object"):
        save(folder, [object() if RANK == 1 else jnp.ones(3)])
    x = jax.device_put(draw((SIZE, 3)), NamedSharding(mesh_1d(), P("i")))
    if RANK == 1:
        monkeypatch.setattr(store, "write", failing)
    with pytest.raises(CheckpointError, match="rank 1: OSError: .*No space left"):
        save(folder, [x])
    assert_same(restore(folder)[0], np.ones(3, np.float32))


def failing(*_):
    raise OSError(28, "No space left on device")


def test_checkpointer_goes_on_after_an_error(folder, monkeypatch):
    x = jax.device_put(draw((SIZE, 3)), NamedSharding(mesh_1d(), P("i")))
    real = store.write
    with Checkpointer(folder, keep=2) as checkpoints:
        for step in (1, 2, 3):
            assert checkpoints.save(step, [x + step])
        checkpoints.wait()
        if RANK == SIZE - 1:
            monkeypatch.setattr(store, "write", failing)
        assert checkpoints.save(4, [x])
        said = r"step 4 was not written; the latest is of step 3: (rank \d+: )?OSError: .*No space"
        with pytest.warns(CheckpointWarning, match=said):
            checkpoints.wait()
        monkeypatch.setattr(store, "write", real)
        assert checkpoints.steps() == [2, 3]
        assert_same(checkpoints.restore(like=[x])[0], np.asarray(draw((SIZE, 3))) + 3)
        assert checkpoints.save(4, [x])
    assert checkpoints.steps() == [3, 4] and checkpoints.latest() == 4
    assert sorted(p.name for p in folder.iterdir()) == ["step-00000003", "step-00000004"]


def test_a_damaged_part_is_an_error_on_every_rank(folder):
    rows = NamedSharding(mesh_1d(), P("i"))
    x = jax.device_put(draw((SIZE, 16)), rows)
    save(folder, {"w": x})
    file = folder / "w" / chunks.file_name((SIZE - 1, 0))
    if RANK == 0:
        data = bytearray(file.read_bytes())
        data[5] ^= 1
        file.write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"cannot read array w, file {file}"):
        restore(folder, {"w": x})
