"""`experimental.array_serialization.serialization`: files as JAX writes and reads them, over any number of ranks."""

import asyncio

import numpy as np
import pytest
from oracle import THEIRS as theirs
from spmd.ranks import DTYPES, SIZE, P, assert_same, draw, mesh_1d

import mpijax as jax
from mpijax.experimental.array_serialization import serialization, tensorstore_impl
from mpijax.runtime.mpi import objects

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # test_over_ranks.py changes the number

ROWS, WHOLE = (jax.NamedSharding(mesh_1d(), spec) for spec in (P("i"), P()))
alone = pytest.mark.skipif(SIZE > 1, reason="JAX is on one rank")


@pytest.fixture(scope="module")
def oracle():
    from jax.experimental.array_serialization import serialization, tensorstore_impl

    return serialization, tensorstore_impl


def test_public_names_are_jaxs(oracle):
    for ours, real in zip((serialization, tensorstore_impl), oracle, strict=True):
        assert set(ours.__all__) <= set(dir(real))


@pytest.mark.parametrize("path", ["/tmp/a/w", "/tmp/a/w/", "gs://bucket/run/w", "s3://bucket/run/w"])
@pytest.mark.parametrize("more", [{}, {"ocdbt": True}, {"process_idx": 3}, {"driver": "zarr3", "ocdbt": True}])
def test_specs_are_jaxs(oracle, path, more):
    x = np.zeros((4, 6), np.float32)
    spec = serialization.get_tensorstore_spec(path, **more)
    assert spec == oracle[0].get_tensorstore_spec(path, **more)
    assert serialization.is_remote_storage(spec) == oracle[0].is_remote_storage(spec)
    with_array = serialization.get_tensorstore_spec(path, arr=x, **more)["metadata"]
    assert with_array == oracle[0].get_tensorstore_spec(path, arr=x, **more)["metadata"]
    over = {"kvstore": {"path": "elsewhere"}, "dtype": "int32"}
    assert tensorstore_impl.merge_nested_ts_specs(spec, over) == oracle[1].merge_nested_ts_specs(spec, over)


@pytest.mark.parametrize("path", ["gs://bucket", "relative/w", "s3://bucket"])
def test_paths_that_jax_refuses(oracle, path):
    for module in (oracle[1], tensorstore_impl):
        with pytest.raises(ValueError):
            module.get_tensorstore_spec(path)


@alone
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("driver", ["zarr", "zarr3"])
@pytest.mark.one_in(3)
def test_jax_reads_what_is_written_here_and_the_other_way_round(oracle, folder, dtype, driver):
    if (dtype, driver) == ("bool", "zarr3"):
        dtype = "int8"
    x = draw((6, 4), dtype)
    one = theirs.sharding.SingleDeviceSharding(theirs.devices()[0])
    for name, (writer, put, reader, sharding) in {
        "ours": (serialization, jax.numpy.asarray, oracle[0], one),
        "theirs": (oracle[0], theirs.numpy.asarray, serialization, WHOLE),
    }.items():
        spec = writer.get_tensorstore_spec(f"{folder}/{name}", driver=driver)
        writer.run_serialization([put(x)], [spec])
        spec = reader.get_tensorstore_spec(f"{folder}/{name}", driver=driver)
        (found,) = reader.run_deserialization([sharding], [spec])
        np.testing.assert_array_equal(np.asarray(found), x)
        assert found.dtype == x.dtype


def test_saved_beside_the_program_and_read_in_another_sharding(folder):
    x, y = draw((4 * SIZE, 3)), draw((5,), "int32")
    paths, calls = [f"{folder}/x", f"{folder}/y"], []
    manager = serialization.GlobalAsyncCheckpointManager(timeout_secs=60)
    arrays = [jax.device_put(x, ROWS), jax.device_put(y, WHOLE)]
    for offset in (0, 1):
        updated = [jax.device_put(v + offset, v.sharding) for v in arrays]
        manager.serialize_with_paths(updated, paths, on_commit_callback=lambda: calls.append(1))
        manager.check_for_errors()
    del updated
    manager.wait_until_finished()
    assert len(calls) == (2 if jax.process_index() == 0 else 0)
    for sharding in (ROWS, WHOLE):
        found, small = manager.deserialize_with_paths([sharding, WHOLE], paths)
        assert found.sharding == sharding
        assert_same(found, x + 1)
        assert_same(small, y + 1)


def test_padded_cut_and_converted_while_it_is_read(folder):
    x, more = draw((2 * SIZE, 3)), 2 * SIZE
    spec = serialization.get_tensorstore_spec(f"{folder}/x")
    serialization.run_serialization([jax.device_put(x, ROWS)], [spec])
    objects.allgather(None, "test")
    longer = (2 * SIZE + more, 3)
    (found,) = serialization.run_deserialization([ROWS], [spec], [longer], ["int32"], concurrent_gb=1)
    assert_same(found, np.concatenate([x, np.zeros((more, 3))]).astype(np.int32))
    typed = jax.ShapeDtypeStruct((SIZE, 3), np.float16, sharding=ROWS)
    assert_same(asyncio.run(serialization.async_deserialize(typed, spec, (SIZE, 3))), x[:SIZE].astype(np.float16))


def test_reads_wait_for_memory():
    """Ten reads of 6 bytes under a limit of 10: one at a time, and one that is larger than the limit by itself."""
    limiter, now, most = tensorstore_impl._LimitInFlightBytes(10), [], []

    async def read(size):
        await limiter.wait_for_bytes(size)
        now.append(size)
        most.append(sum(now))
        await asyncio.sleep(0)
        now.remove(size)
        await limiter.release_bytes(size)

    async def all_reads():
        await asyncio.gather(*map(read, [6] * 10 + [50] + [5, 5]))

    asyncio.run(all_reads())
    assert len(most) == 13 and sorted(most)[-1] == 50 and sorted(most)[-2] == 10


def test_what_cannot_be_written(folder):
    manager = serialization.GlobalAsyncCheckpointManager()
    spec = serialization.get_tensorstore_spec(f"{folder}/w")
    if SIZE > 1:
        with pytest.raises(ValueError, match=r"fully addressable arrays.*device_put"):
            manager.serialize([jax.numpy.ones(3)], [spec])
    keys = jax.device_put(jax.random.split(jax.random.key(0)), WHOLE)
    with pytest.raises(TypeError, match="key_data"):
        serialization.run_serialization([keys], [spec])
    with pytest.raises(TypeError, match="sharding passed to deserialization"):
        serialization.run_deserialization([None], [spec])
    with pytest.raises(ValueError, match="NOT_FOUND"):
        serialization.run_deserialization([WHOLE], [spec])


def test_an_error_in_the_thread_is_raised_once(folder):
    manager = serialization.GlobalAsyncCheckpointManager(timeout_secs=2)

    def fail():
        raise RuntimeError("cannot rename")

    manager.serialize_with_paths([jax.device_put(draw((SIZE,)), ROWS)], [f"{folder}/w"], on_commit_callback=fail)
    first = jax.process_index() == 0
    with pytest.raises(RuntimeError, match="cannot rename" if first else "DEADLINE_EXCEEDED"):
        manager.wait_until_finished()
    manager.check_for_errors()
