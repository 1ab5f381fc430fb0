"""``serialization``: saves arrays while the program runs, into files that TensorStore specs describe.

Libraries for JAX use these names. Programs that are written for mpijax use `mpijax.checkpoint`. On several ranks, every
rank must make the managers: rank 0 serves the barriers of their threads (`runtime.mpi.coordination`).
"""

from __future__ import annotations

import abc
import asyncio
import itertools
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mpijax import missing as _missing
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.experimental.array_serialization import tensorstore_impl
from mpijax.experimental.array_serialization.tensorstore_impl import _LimitInFlightBytes as _LimitInFlightBytes
from mpijax.experimental.array_serialization.tensorstore_impl import async_deserialize, async_serialize
from mpijax.runtime.mpi import coordination, mpi_start

__all__ = [
    "AsyncManager", "BarrierTimeoutError", "GlobalAsyncCheckpointManager", "GlobalAsyncCheckpointManagerBase",
    "async_deserialize", "async_serialize", "get_tensorstore_spec", "is_remote_storage", "run_deserialization",
    "run_serialization",
]  # fmt: skip

get_tensorstore_spec = partial(tensorstore_impl.get_tensorstore_spec, driver="zarr", ocdbt=False)

_numbers = itertools.count()


class BarrierTimeoutError(Exception):
    """A rank waited too long for the others to write their shards."""


def is_remote_storage(tspec: dict[str, Any] | str) -> bool:
    """Whether a TensorStore spec, or a URL, names Google's or Amazon's storage.

    >>> from mpijax.experimental.array_serialization import serialization
    >>> serialization.is_remote_storage(serialization.get_tensorstore_spec("gs://bucket/run/w"))
    True
    """
    if isinstance(tspec, str):
        return re.match("(gs|s3)://", tspec) is not None
    inner = next((tspec[key] for key in ("base", "kvstore") if key in tspec), None)
    return is_remote_storage(inner) if inner is not None else tspec.get("driver") in ("gcs", "s3")


def run_serialization(arrays: Sequence[Any], tensorstore_specs: Sequence[dict[str, Any]]) -> None:
    """Write arrays to the places of TensorStore specs, and wait until they are written.

    >>> import tempfile
    >>> from mpijax.experimental.array_serialization import serialization
    >>> spec = serialization.get_tensorstore_spec(tempfile.mkdtemp() + "/w")
    >>> serialization.run_serialization([jnp.arange(3)], [spec])
    """
    async def run() -> None:
        await asyncio.gather(*map(async_serialize, arrays, tensorstore_specs))

    asyncio.run(run())


def run_deserialization(
    shardings: Sequence[Any],
    tensorstore_specs: Sequence[Any],
    global_shapes: Sequence[Sequence[int]] | None = None,
    dtypes: Sequence[Any] | None = None,
    concurrent_gb: int = 32,
) -> list[Any]:
    """Read arrays from the places of TensorStore specs, with the given shardings. At most `concurrent_gb` gigabytes are
    in flight at once.

    >>> import tempfile
    >>> from mpijax.experimental.array_serialization import serialization
    >>> spec = serialization.get_tensorstore_spec(tempfile.mkdtemp() + "/w")
    >>> serialization.run_serialization([jnp.arange(3)], [spec])
    >>> serialization.run_deserialization([mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0])], [spec])
    [Array([0, 1, 2], dtype=int32)]
    """
    none = [None] * len(tensorstore_specs)

    async def run() -> list[Any]:
        read = partial(async_deserialize, byte_limiter=_LimitInFlightBytes(concurrent_gb * 10**9))
        return await asyncio.gather(*map(read, shardings, tensorstore_specs, global_shapes or none, dtypes or none))

    return asyncio.run(run())


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """Interface of a manager that saves arrays while the program runs.

    >>> from mpijax.experimental.array_serialization import serialization
    >>> issubclass(serialization.GlobalAsyncCheckpointManager, serialization.GlobalAsyncCheckpointManagerBase)
    True
    """

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raise the error of the thread, if there is one. Does not wait."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Wait until all ranks have written everything."""

    @abc.abstractmethod
    def serialize(self, arrays: Any, tensorstore_specs: Any, *, on_commit_callback: Callable[[], None]) -> None:
        """Start to write arrays to the places of TensorStore specs."""

    @abc.abstractmethod
    def deserialize(
        self, shardings: Any, tensorstore_specs: Any, global_shapes: Any = None, dtypes: Any = None
    ) -> Any:
        """Read arrays from the places of TensorStore specs."""


class AsyncManager:
    """Waits in a thread until all ranks have written, and then calls the function that makes the files a checkpoint.

    Args:
      timeout_secs: seconds that a rank waits for the others.

    On several ranks, every rank must make one.

    >>> from mpijax.experimental.array_serialization import serialization
    >>> serialization.AsyncManager(timeout_secs=10).wait_until_finished()
    """

    def __init__(self, timeout_secs: float = 300):
        coordination.start()
        self._milliseconds = int(1000 * timeout_secs)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._key: str | None = None
        self._futures: Sequence[Any] = ()

    def _add_futures(self, futures: Sequence[Any]) -> None:
        self._futures = futures

    def _start_async_commit(self, on_commit_callback: Callable[[], None] | None) -> None:
        self._key = f"tensorstore_checkpoint_{next(_numbers)}"
        commit = partial(self._commit, self._futures, self._key, on_commit_callback)
        self._thread = threading.Thread(target=commit, name="mpijax checkpoint")
        self._thread.start()

    def _commit(self, futures: Sequence[Any], key: str, on_commit_callback: Callable[[], None] | None) -> None:
        try:
            for future in futures:
                future.result()
            client = coordination.client()
            if client is not None:
                client.wait_at_barrier(key, self._milliseconds)
            if mpi_start.rank() == 0:
                if on_commit_callback is not None:
                    on_commit_callback()
                if client is not None:
                    client.key_value_set(key, "checkpoint_write_success")
        except Exception as error:
            self._error = error

    def check_for_errors(self) -> None:
        """Raise the error of the thread, if there is one, once. Does not wait."""
        error, self._error = self._error, None
        if isinstance(error, JaxRuntimeError) and "Barrier timed out" in str(error):
            raise BarrierTimeoutError(
                f"{error}. Check in the logs whether a rank failed, or increase timeout_secs of the manager."
            ) from error
        if error is not None:
            raise error

    def wait_until_finished(self) -> None:
        """Wait until all ranks have written, and rank 0 has called `on_commit_callback`."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check_for_errors()
        client = coordination.client()
        if client is not None and self._key is not None:
            client.blocking_key_value_get(self._key, self._milliseconds)


class GlobalAsyncCheckpointManager(AsyncManager, GlobalAsyncCheckpointManagerBase):
    """Saves arrays while the program runs: `serialize` returns when the elements are copied.

    >>> import tempfile
    >>> from mpijax.experimental.array_serialization import serialization
    >>> manager, path = serialization.GlobalAsyncCheckpointManager(), tempfile.mkdtemp() + "/w"
    >>> written = []
    >>> manager.serialize_with_paths([jnp.arange(3)], [path], on_commit_callback=lambda: written.append(path))
    >>> manager.wait_until_finished()
    >>> written == [path]
    True
    >>> manager.deserialize_with_paths([mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0])], [path])
    [Array([0, 1, 2], dtype=int32)]
    """

    def serialize(
        self,
        arrays: Sequence[Any],
        tensorstore_specs: Sequence[dict[str, Any]],
        *,
        on_commit_callback: Callable[[], None] | None = None,
        transaction: Any = None,
    ) -> None:
        """Start to write arrays to the places of TensorStore specs, after the previous arrays. Collective: every rank
        calls it.

        on_commit_callback: function that rank 0 calls when all ranks have written, for example to rename a folder.
        """
        self.wait_until_finished()
        futures: list[Any] = []

        async def run() -> None:
            write = partial(async_serialize, commit_future=futures, transaction=transaction)
            await asyncio.gather(*map(write, arrays, tensorstore_specs))

        asyncio.run(run())
        self._add_futures(futures)
        self._start_async_commit(on_commit_callback)

    def serialize_with_paths(
        self,
        arrays: Sequence[Any],
        paths: Sequence[str],
        *,
        on_commit_callback: Callable[[], None] | None = None,
        transaction: Any = None,
    ) -> None:
        """`serialize` into folders, as Zarr."""
        specs = [get_tensorstore_spec(path) for path in paths]
        self.serialize(arrays, specs, on_commit_callback=on_commit_callback, transaction=transaction)

    def deserialize(
        self,
        shardings: Sequence[Any],
        tensorstore_specs: Sequence[Any],
        global_shapes: Sequence[Sequence[int]] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
    ) -> list[Any]:
        """`run_deserialization`, after all pending writes."""
        self.wait_until_finished()
        return run_deserialization(shardings, tensorstore_specs, global_shapes, dtypes, concurrent_gb)

    def deserialize_with_paths(
        self,
        shardings: Sequence[Any],
        paths: Sequence[str],
        global_shapes: Sequence[Sequence[int]] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
    ) -> list[Any]:
        """`deserialize` of folders that `serialize_with_paths` wrote."""
        specs = [get_tensorstore_spec(path) for path in paths]
        return self.deserialize(shardings, specs, global_shapes, dtypes, concurrent_gb)


def __getattr__(name: str) -> Any:
    if name == "TS_CONTEXT":
        return tensorstore_impl.default_context()
    raise _missing.error(__name__, name)
