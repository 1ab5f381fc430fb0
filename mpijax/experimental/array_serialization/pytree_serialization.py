"""``pytree_serialization``: save and load pytrees, with JAX's names. All functions are collective."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from mpijax import missing as _missing
from mpijax.checkpointing import folders, restoring, saving, structure
from mpijax.checkpointing.errors import CheckpointError, agree, describe
from mpijax.checkpointing.leaves import ArrayLeaf, value_of
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.runtime.mpi import mpi_start

__all__ = ["load", "load_pytreedef", "nonblocking_load", "nonblocking_save", "save"]


def _check(directory: str | os.PathLike, overwrite: bool, ts_specs: Any) -> None:
    """Raise an error on every rank for options that mpijax does not support, and for a checkpoint that must not be
    replaced."""
    if ts_specs is not None:
        raise NotImplementedError(
            "ts_specs is not supported: mpijax stores every array as plain Zarr 3 chunks. Leave it out."
        )

    def refuse() -> None:
        if not overwrite and mpi_start.rank() == 0 and folders.is_checkpoint(folders.found(Path(directory))):
            raise CheckpointError(f"{directory} exists, and overwrite is False")

    agree(refuse, "array_serialization")


def save(data: Any, directory: str | os.PathLike, *, overwrite: bool = True, ts_specs: Any = None) -> None:
    """Save a pytree into a folder, as `mpijax.checkpoint.save`.

    Raises CheckpointError on every rank if a rank cannot write, or if the folder exists and `overwrite` is False.

    >>> import tempfile
    >>> from mpijax.experimental.array_serialization import pytree_serialization
    >>> folder = tempfile.mkdtemp() + "/state"
    >>> pytree_serialization.save({"w": jnp.arange(3)}, folder)
    >>> pytree_serialization.load(folder, mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0]))
    {'w': Array([0, 1, 2], dtype=int32)}
    """
    _check(directory, overwrite, ts_specs)
    saving.save(directory, data)


def load_pytreedef(directory: str | os.PathLike) -> Any:
    """The tree in a folder, with types instead of arrays.

    >>> import tempfile
    >>> from mpijax.experimental.array_serialization import pytree_serialization
    >>> folder = tempfile.mkdtemp() + "/state"
    >>> pytree_serialization.save([jnp.ones(3)], folder)
    >>> pytree_serialization.load_pytreedef(folder)
    [ShapeDtypeStruct(shape=(3,), dtype=float32)]
    """
    _, contents = restoring.open_checkpoint(directory)
    leaves = [
        ShapeDtypeStruct(leaf.shape, restoring.dtype_of(leaf), weak_type=leaf.weak)
        if isinstance(leaf, ArrayLeaf)
        else value_of(leaf)
        for leaf in contents.leaves
    ]
    return structure.decode(contents.tree, leaves)


def load(directory: str | os.PathLike, shardings: Any, *, mask: Any = None, ts_specs: Any = None) -> Any:
    """The tree in a folder, with the given shardings. Each rank reads only its own part.

    Args:
      shardings: a pytree of shardings or of `ShapeDtypeStruct`s with one, or a prefix of it.
      mask: a prefix pytree of bools; where it is False, the result has None.

    >>> import tempfile
    >>> from mpijax.experimental.array_serialization import pytree_serialization
    >>> folder = tempfile.mkdtemp() + "/state"
    >>> pytree_serialization.save([jnp.ones(3), jnp.zeros(2)], folder)
    >>> one = mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0])
    >>> pytree_serialization.load(folder, one, mask=[True, False])
    [Array([1., 1., 1.], dtype=float32), None]
    """
    if ts_specs is not None:
        raise NotImplementedError(
            "ts_specs is not supported: mpijax stores every array as plain Zarr 3 chunks. Leave it out."
        )
    types = load_pytreedef(directory)
    given = tree.tree_leaves(tree.tree_broadcast(shardings, types))
    leaves, treedef = tree.tree_flatten(types)
    wanted = [True] * len(leaves) if mask is None else tree.tree_leaves(tree.tree_broadcast(mask, types))

    def like(x: Any, sharding: Any) -> Any:
        if not isinstance(x, ShapeDtypeStruct):
            return x
        return x.update(sharding=getattr(sharding, "sharding", sharding))

    likes = [like(x, sharding) if want else None for x, sharding, want in zip(leaves, given, wanted, strict=True)]
    return restoring.restore(directory, tree.tree_unflatten(treedef, likes))


class PyTreeFuture:
    """A tree that is being saved or has been loaded. `result()` is collective."""

    def __init__(self, pytree: Any, finish: Any = None, thread: threading.Thread | None = None):
        self.pytree, self._finish, self._thread = pytree, finish, thread

    def done(self) -> bool:
        """Whether this rank has finished its part."""
        return self._thread is None or not self._thread.is_alive()

    def result(self, *_: Any, **__: Any) -> Any:
        """Wait for all ranks. Returns the loaded tree, or None after a save."""
        finish, self._finish = self._finish, None
        return finish() if finish is not None else None


def nonblocking_save(
    data: Any, directory: str | os.PathLike, *, overwrite: bool = True, ts_specs: Any = None
) -> PyTreeFuture:
    """`save` while the program runs. The files become a checkpoint in `result()` of the returned future.

    >>> import tempfile
    >>> from mpijax.experimental.array_serialization import pytree_serialization
    >>> folder = tempfile.mkdtemp() + "/state"
    >>> pytree_serialization.nonblocking_save([jnp.ones(3)], folder).result()
    >>> pytree_serialization.load_pytreedef(folder)
    [ShapeDtypeStruct(shape=(3,), dtype=float32)]
    """
    _check(directory, overwrite, ts_specs)
    job, first = saving.prepare(data, copy=True), mpi_start.rank() == 0
    target = Path(os.path.abspath(directory))
    folder = saving.begin(target, first)
    failed: list[str] = []

    def write() -> None:
        try:
            job.write(folder, first)
        except Exception as error:
            failed.append(describe(error))

    def told() -> None:
        thread.join()
        if failed:
            raise CheckpointError(failed[0])

    def finish() -> None:
        agree(told, "array_serialization")
        saving.finish(target, first)

    thread = threading.Thread(target=write, name="mpijax nonblocking_save", daemon=True)
    thread.start()
    return PyTreeFuture(tree.tree_map(ShapeDtypeStruct.like, data), finish, thread)


def nonblocking_load(
    directory: str | os.PathLike, shardings: Any, *, mask: Any = None, ts_specs: Any = None
) -> PyTreeFuture:
    """`load` as a future, for programs that use JAX's interface. It has already finished when it returns.

    >>> import tempfile
    >>> from mpijax.experimental.array_serialization import pytree_serialization
    >>> folder = tempfile.mkdtemp() + "/state"
    >>> pytree_serialization.save([jnp.ones(3)], folder)
    >>> one = mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0])
    >>> pytree_serialization.nonblocking_load(folder, one).result()
    [Array([1., 1., 1.], dtype=float32)]
    """
    loaded = load(directory, shardings, mask=mask, ts_specs=ts_specs)
    return PyTreeFuture(tree.tree_map(ShapeDtypeStruct.like, loaded), lambda: loaded)


def __getattr__(name: str) -> Any:
    raise _missing.error(__name__, name)
