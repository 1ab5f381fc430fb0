"""``tensorstore_impl``: writes arrays to and reads them from files that TensorStore specs describe.

`mpijax.checkpoint` chooses the files itself. Here the caller passes a TensorStore spec for each array, as with JAX.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from mpijax import missing as _missing
from mpijax._ext.array import ArrayBase
from mpijax.checkpointing.chunks import chunk_shape
from mpijax.checkpointing.store import tensorstore
from mpijax.core import dtypes
from mpijax.core.sharding.format import Format
from mpijax.core.sharding.shardings import Sharding
from mpijax.core.types.avals import ShapedArray, ShapeDtypeStruct
from mpijax.runtime.arrays.array import from_numpy
from mpijax.runtime.arrays.placement import carried_sharding, type_in
from mpijax.runtime.mpi import mpi_start

__all__ = [
    "async_deserialize", "async_serialize", "estimate_read_memory_footprint", "get_tensorstore_spec",
    "is_tensorstore_spec_leaf", "merge_nested_ts_specs",
]  # fmt: skip

# Bytes of the largest file of one chunk.
_LARGEST_FILE = 2 << 30
_URL = re.compile(r"(gs|s3)://([^/]*)/(.*)", re.DOTALL)


@cache
def default_context() -> Any:
    """TensorStore's limits: operations that run at the same time, and bytes in memory."""
    return tensorstore().Context({
        "file_io_concurrency": {"limit": 128},
        "data_copy_concurrency": {"limit": 128},
        "cache_pool": {"total_bytes_limit": 10_000_000_000},
        "cache_pool#remote": {"total_bytes_limit": 10_000_000_000},
    })


@cache
def _chunk_layout() -> Any:
    layout = tensorstore().ChunkLayout
    return layout(chunk=layout.Grid(elements=100_000_000))


def get_tensorstore_spec(
    ckpt_path: str | os.PathLike[str],
    ocdbt: bool = True,
    process_idx: int | None = None,
    arr: Any = None,
    driver: str = "zarr3",
) -> dict[str, Any]:
    """A TensorStore spec for the array at a path: a folder, or a URL `gs://` or `s3://`.

    Args:
      ocdbt: keep all arrays of a folder in one database. The path must then be absolute.
      process_idx: write into a folder of this process, which the caller merges later.
      arr: an array. The spec then has its shape, dtype and chunks.
      driver: "zarr3" or "zarr".

    >>> from mpijax.experimental.array_serialization import tensorstore_impl
    >>> tensorstore_impl.get_tensorstore_spec("/tmp/run/w", ocdbt=False)
    {'driver': 'zarr3', 'kvstore': {'driver': 'file', 'path': '/tmp/run/w'}}
    """
    path = re.sub(r"^(gs|s3):/", r"\1://", os.path.normpath(str(ckpt_path)))
    if process_idx is not None:
        folder, name = os.path.split(path)
        path = os.path.join(folder, f"process_{process_idx}", name)
    url = _URL.fullmatch(path)
    entry = None
    if ocdbt:
        path, entry = os.path.split(path)
        if url is None and not os.path.isabs(path):
            raise ValueError(f"Checkpoint path should be absolute. Got {path}")
        if url is not None and _URL.fullmatch(path) is None:
            raise ValueError(
                "Using OCDBT requires the bucket name, the directory name and the array name, your path is: "
                f"{path}/{entry}"
            )
    base = _store_of(path)
    spec: dict[str, Any] = {"driver": driver, "kvstore": base}
    if ocdbt:
        spec["kvstore"] = {"driver": "ocdbt", "base": base, "path": entry}
    if arr is not None:
        spec["metadata"] = metadata_of(arr, driver)
    return spec


def _store_of(path: str) -> dict[str, Any]:
    url = _URL.fullmatch(path)
    if url is None:
        if path.startswith(("gs://", "s3://")):
            raise ValueError(f"The ckpt_path should contain the bucket name and the path inside it. Got: {path}")
        return {"driver": "file", "path": path}
    return {"driver": {"gs": "gcs", "s3": "s3"}[url[1]], "bucket": url[2], "path": url[3]}


def metadata_of(arr: Any, driver: str) -> dict[str, Any]:
    """Zarr's metadata of an array: each rank's shard consists of whole chunks."""
    if not isinstance(arr.dtype, np.dtype):
        raise TypeError(f"An array of {arr.dtype} cannot be saved. Save the data of PRNG keys: random.key_data(keys)")
    shape = tuple(arr.shape)
    shard = arr.sharding.shard_shape(shape) if isinstance(arr, ArrayBase) else shape
    if driver == "zarr":  # this driver has the dtype outside of the metadata
        return {"compressor": {"id": "zstd"}, "shape": shape, "chunks": [max(n, 1) for n in shard]}
    if driver != "zarr3":
        raise ValueError(f"Unsupported driver: {driver}")
    chunk = chunk_shape(shard, (True,) * len(shard), arr.dtype.itemsize, _LARGEST_FILE)
    grid = {"name": "regular", "configuration": {"chunk_shape": [*chunk]}}
    return {"codecs": [], "shape": shape, "data_type": arr.dtype.name, "chunk_grid": grid}


def is_tensorstore_spec_leaf(leaf: Any) -> bool:
    """Whether a leaf is a TensorStore spec or None, for trees of specs.

    >>> from mpijax.experimental.array_serialization import tensorstore_impl
    >>> tensorstore_impl.is_tensorstore_spec_leaf({"driver": "zarr3"})
    True
    """
    return leaf is None or isinstance(leaf, dict) and ("driver" in leaf or "kvstore" in leaf)


def merge_nested_ts_specs(dict1: dict[str, Any], dict2: dict[str, Any] | None) -> dict[str, Any]:
    """The spec `dict1`, updated with the entries of `dict2`. The entries of their `kvstore`s are merged one by one.

    >>> from mpijax.experimental.array_serialization import tensorstore_impl
    >>> tensorstore_impl.merge_nested_ts_specs({"kvstore": {"path": "a"}}, {"driver": "zarr", "kvstore": {}})
    {'kvstore': {'path': 'a'}, 'driver': 'zarr'}
    """
    if dict2 is None:
        return dict1
    return {**dict1, **dict2, "kvstore": {**dict1.get("kvstore", {}), **dict2.get("kvstore", {})}}


def _has_metadata(spec: Any) -> bool:
    """Whether a spec has metadata, also inside drivers that wrap others, such as `cast`."""
    return isinstance(spec, dict) and ("metadata" in spec or any(map(_has_metadata, spec.values())))


async def async_serialize(
    arr_inp: Any,
    tensorstore_spec: dict[str, Any],
    commit_future: list[Any] | None = None,
    context: Any = None,
    chunk_layout: Any = None,
    primary_host: int | None = None,
    replica_id: int = 0,
    transaction: Any = None,
) -> Any:
    """Write this rank's shards of an array where a TensorStore spec says.

    With `commit_future`, a list, it returns when the elements have been copied: the futures that it appends to the
    list are done when all is written.

    Args:
      primary_host: the only rank that creates the array; None: every rank does, which gives the same files.
      replica_id: which of the copies of a shard is written.

    Raises ValueError on several ranks for an array that each rank has to itself.

    >>> import asyncio, tempfile
    >>> from mpijax.experimental.array_serialization import serialization
    >>> spec = serialization.get_tensorstore_spec(tempfile.mkdtemp() + "/w")
    >>> _ = asyncio.run(serialization.async_serialize(jnp.arange(3.0), spec))
    >>> spec["metadata"]["shape"]
    (3,)
    """
    if isinstance(arr_inp, ArrayBase) and mpi_start.size() > 1 and arr_inp.is_fully_addressable:
        raise ValueError(
            "Passing fully addressable arrays to a multiprocess serialization is not allowed, as this may lead to a "
            f"race condition between processes: {tensorstore_spec['kvstore']}. Put the array on all ranks: "
            "jax.device_put(x, NamedSharding(mesh, P()))."
        )
    if not _has_metadata(tensorstore_spec):
        tensorstore_spec["metadata"] = metadata_of(arr_inp, tensorstore_spec["driver"])
    if tensorstore_spec["driver"] == "zarr" and "dtype" not in tensorstore_spec:
        tensorstore_spec["dtype"] = np.dtype(arr_inp.dtype).name
    ts = tensorstore()
    ways = {
        "context": context or default_context(),
        "chunk_layout": chunk_layout or _chunk_layout(),
        "transaction": transaction,
    }
    if primary_host is None or mpi_start.rank() == primary_host:
        created = ts.open(ts.Spec(tensorstore_spec), create=True, open=True, **ways)
        if commit_future is None:
            await created
        else:
            commit_future.append(created)
    target = await ts.open(ts.Spec(tensorstore_spec), open=True, assume_metadata=True, **ways)

    async def write(shard: Any) -> None:
        # TensorStore copies the elements: a donated array is overwritten in place.
        future = target[shard.index].write(np.asarray(shard.data), can_reference_source_data_indefinitely=False)
        if commit_future is None:
            await future.commit
        else:
            commit_future.append(future.commit)
            await future.copy

    return await asyncio.gather(*(write(s) for s in arr_inp.addressable_shards if s.replica_id == replica_id))


def estimate_read_memory_footprint(t: Any, domain: Any) -> int:
    """The bytes that TensorStore reads for a part of an array: all chunks that the part touches.

    >>> import tensorstore
    >>> from mpijax.experimental.array_serialization import tensorstore_impl
    >>> whole = tensorstore.array(np.zeros((3, 4), np.float32))
    >>> tensorstore_impl.estimate_read_memory_footprint(whole, whole.domain)
    48
    """
    domain = t.domain if domain is None else domain
    chunk = t.chunk_layout.read_chunk_template
    size = t.dtype.numpy_dtype.itemsize
    if not all(chunk[i].finite for i in range(t.rank)):  # not in chunks
        return domain.size * size
    for first, n, origin, step in zip(domain.origin, domain.shape, chunk.origin, chunk.shape, strict=True):
        lower, upper = (first - origin) // step, -(-(first + n - origin) // step)
        size *= (upper - lower) * step
    return size


class _LimitInFlightBytes:
    """Delays reads until the bytes in flight are below the limit. A single read may exceed the limit."""

    def __init__(self, host_memory_bytes_limit: int):
        self._limit, self._used = host_memory_bytes_limit, 0
        self._changed = asyncio.Condition()

    async def wait_for_bytes(self, requested_bytes: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._used or self._used + requested_bytes <= self._limit)
            self._used += requested_bytes

    async def release_bytes(self, requested_bytes: int) -> None:
        async with self._changed:
            self._used -= requested_bytes
            self._changed.notify_all()


async def async_deserialize(
    in_type: Any,
    tensorstore_spec: Any,
    global_shape: Sequence[int] | None = None,
    dtype: Any = None,
    byte_limiter: _LimitInFlightBytes | None = None,
    context: Any = None,
    chunk_layout: Any = None,
    assume_metadata: bool = False,
) -> Any:
    """The array of a TensorStore spec, of which this rank reads its own part.

    Args:
      in_type: the sharding of the result, a Format with one, or a ShapeDtypeStruct with one.
      global_shape: its shape; by default that of the file. Elements that the file lacks are zeros.
      dtype: its dtype; by default that of the file.

    >>> import asyncio, tempfile
    >>> from mpijax.experimental.array_serialization import serialization
    >>> spec = serialization.get_tensorstore_spec(tempfile.mkdtemp() + "/w")
    >>> serialization.run_serialization([jnp.arange(3.0)], [spec])
    >>> one = mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0])
    >>> asyncio.run(serialization.async_deserialize(one, spec, global_shape=(4,), dtype=jnp.int32))
    Array([0, 1, 2, 0], dtype=int32)
    """
    sharding = in_type
    if isinstance(in_type, (Format, ShapeDtypeStruct)):
        sharding = in_type.sharding
        dtype = in_type.dtype if dtype is None and isinstance(in_type, ShapeDtypeStruct) else dtype
    if not isinstance(sharding, Sharding):
        raise TypeError(
            "sharding passed to deserialization should be specified, concrete and an instance of "
            f"`jax.sharding.Sharding`. Got {sharding}"
        )
    ts = tensorstore()
    source = await ts.open(
        tensorstore_spec,
        open=True,
        assume_metadata=assume_metadata,
        context=context or default_context(),
        chunk_layout=chunk_layout or _chunk_layout(),
    )
    shape = tuple(source.shape if global_shape is None else global_shape)
    kind = dtypes.canonicalize_dtype(source.dtype.numpy_dtype if dtype is None else dtype)
    wanted = ts.IndexTransform(input_shape=shape)[sharding.local_slices(shape)].domain
    there = source.domain.intersect(wanted)
    out = np.zeros(sharding.process_shape(shape), source.dtype.numpy_dtype)
    needed = estimate_read_memory_footprint(source, there)
    if byte_limiter is not None:
        await byte_limiter.wait_for_bytes(needed)
    await ts.array(out)[ts.d[:].translate_to[wanted.origin]][there].write(source[there])
    if byte_limiter is not None:
        await byte_limiter.release_bytes(needed)
    aval = type_in(ShapedArray(shape, kind), sharding)
    return from_numpy(out.astype(kind, copy=False), aval, False, carried_sharding(sharding))


def __getattr__(name: str) -> Any:
    raise _missing.error(__name__, name)
