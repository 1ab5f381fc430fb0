"""`restore`: every rank reads its part of the arrays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax.checkpointing import folders, metadata, store, structure
from mpijax.checkpointing.chunks import boxes, file_name
from mpijax.checkpointing.errors import CheckpointError, agree
from mpijax.checkpointing.leaves import ArrayLeaf, value_of
from mpijax.core import dtypes
from mpijax.core.dtypes.extended import PRNGKeyDtype
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray, ShapeDtypeStruct
from mpijax.ops.random.keys import prngs
from mpijax.runtime.arrays.array import from_numpy
from mpijax.runtime.arrays.default_sharding import default_sharding
from mpijax.runtime.arrays.placement import carried_sharding, device_put, type_in
from mpijax.runtime.mpi import mpi_start


def open_checkpoint(path: str | os.PathLike) -> tuple[Path, metadata.Contents]:
    """(its location, its contents). Collective: rank 0 reads the metadata for all."""
    target = Path(os.path.abspath(path))

    def read() -> tuple[str, bytes]:
        if mpi_start.rank() > 0:
            return "", b""
        folder = folders.found(target)
        return folder.name, metadata.read(folder)

    name, data = agree(read, "checkpoint.restore")[0]
    place = target.with_name(name)
    return place, metadata.load(data, place)


def read_part(folder: Path, contents: metadata.Contents, leaf: ArrayLeaf, start: tuple, shape: tuple) -> np.ndarray:
    """The elements of a part of an array, in their form in memory. Does not communicate."""
    zarr = contents.zarr_of(leaf)
    store.check_files(folder / leaf.array, leaf.array, zarr, start, shape)
    out = np.empty(shape, leaf.numpy_dtype)
    store.read(folder / leaf.array, leaf.array, zarr, start, out)
    return out


def read_whole(folder: Path, contents: metadata.Contents, leaf: ArrayLeaf) -> np.ndarray:
    """All elements of an array."""
    return read_part(folder, contents, leaf, (0,) * len(leaf.stored_shape), leaf.stored_shape)


def files_for(contents: metadata.Contents, like: Any) -> set[str]:
    """The chunk files, relative to the checkpoint's folder, from which this rank restores `like`."""
    stored = {structure.key_of(p): leaf for p, leaf in contents.by_path().items()}
    wanted = dict.fromkeys(stored) if like is None else {structure.key_of(p): x for p, x in structure.flatten(like)[0]}
    files = set()
    for key, x in wanted.items():
        leaf = stored.get(key)
        if isinstance(leaf, ArrayLeaf):
            start, shape = (0,) * len(leaf.stored_shape), leaf.stored_shape
            if isinstance(x, (ArrayBase, ShapeDtypeStruct)) and tuple(x.shape) == leaf.shape:
                _, start, shape = _own_part(leaf, _sharding(x))
            stop = tuple(a + n for a, n in zip(start, shape, strict=True))
            files |= {f"{leaf.array}/{file_name(at)}" for at, _ in boxes(start, stop, contents.chunks[leaf.array])}
    return files


def restore(path: str | os.PathLike, like: Any = None) -> Any:
    """The pytree that `save` wrote into the folder `path`. Collective; the number of ranks may have changed.

    Args:
      like: a pytree that defines containers, shapes, dtypes and shardings of the result. Its leaves are arrays or
        `ShapeDtypeStruct`s. With a sharding, each rank reads only its own shard; without one, each rank reads the whole
        array. It may have fewer leaves than the checkpoint. Without `like`, arrays are whole on each rank, and
        containers are dicts, lists and tuples (dicts for namedtuples, dataclasses and others).

    NumPy arrays come back as NumPy arrays; so do 64-bit arrays while ``jax_enable_x64`` is off.

    Raises:
      CheckpointError: on every rank, if one of them cannot read. The text names the damaged array and file, or the
        part of `like` that is not in the checkpoint.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/state"
    >>> mpijax.checkpoint.save(folder, {"w": jnp.arange(4.0), "count": 3})
    >>> rows = mpijax.NamedSharding(mpijax.make_mesh((mpijax.device_count(),), ("x",)), mpijax.P("x"))
    >>> like = {"w": mpijax.ShapeDtypeStruct((4,), jnp.float32, sharding=rows)}
    >>> mpijax.checkpoint.restore(folder, like)["w"].sharding == rows
    True
    """
    store.tensorstore()
    folder, contents = open_checkpoint(path)
    made: list[Any] = []

    def read() -> None:
        if like is None:
            leaves = [_make(folder, contents, leaf, None, "") for leaf in contents.leaves]
            made.append(structure.decode(contents.tree, leaves))
            return
        wanted, treedef = structure.flatten(like)
        stored = {structure.key_of(p): leaf for p, leaf in contents.by_path().items()}
        absent = [structure.show(p) for p, _ in wanted if structure.key_of(p) not in stored]
        if absent:
            raise CheckpointError(
                f"{folder} has no {', '.join(absent[:5])}{' and others' if len(absent) > 5 else ''}, which `like` "
                f"has. `mpijax checkpoint show {path}` lists its contents"
            )
        leaves = [_make(folder, contents, stored[structure.key_of(p)], x, structure.show(p)) for p, x in wanted]
        made.append(tree.tree_unflatten(treedef, leaves))

    agree(read, "checkpoint.restore")
    return made[0]


def _make(folder: Path, contents: metadata.Contents, leaf: Any, like: Any, where: str) -> Any:
    """A leaf, in the form of `like` unless that is None."""
    wants_array = isinstance(like, (ArrayBase, ShapeDtypeStruct, np.ndarray, np.generic))
    if not isinstance(leaf, ArrayLeaf):
        value = value_of(leaf)
        if not wants_array:
            return value
        return _in_form_of(np.asarray(value).astype(like.dtype), ShapedArray((), like.dtype), like)
    if not wants_array:
        if like is not None:  # a Python scalar or string
            return read_whole(folder, contents, leaf).item()
        return _by_itself(folder, contents, leaf)
    dtype = dtype_of(leaf, like)
    if tuple(like.shape) != leaf.shape or like.dtype != dtype:
        raise CheckpointError(
            f"{where} is {_name(dtype)}{list(leaf.shape)} in the checkpoint and {_name(like.dtype)}{list(like.shape)} "
            "in `like`. Restore it with its saved type, and convert it afterwards"
        )
    if isinstance(like, (np.ndarray, np.generic)):
        value = read_whole(folder, contents, leaf)
        return value if isinstance(like, np.ndarray) else value[()]
    aval = ShapedArray(leaf.shape, dtype, weak_type=bool(getattr(like, "weak_type", False)))
    return _read_as(folder, contents, leaf, aval, _sharding(like))


def _name(dtype: Any) -> str:
    return getattr(dtype, "name", str(dtype))


def dtype_of(leaf: ArrayLeaf, like: Any = None) -> Any:
    """The dtype of the mpijax array for a leaf."""
    if leaf.words is None:
        return leaf.numpy_dtype
    if isinstance(getattr(like, "dtype", None), PRNGKeyDtype) and like.dtype.impl.name == leaf.dtype:
        return like.dtype  # a user-defined generator
    impl = prngs.get(leaf.dtype)
    if impl is None or tuple(impl.key_shape) != leaf.words:
        raise CheckpointError(
            f"array {leaf.array} has keys of the generator {leaf.dtype!r}, which this program does not have. Define "
            "it with mpijax.extend.random, and pass an array of such keys in `like`"
        )
    return PRNGKeyDtype(impl)


def _by_itself(folder: Path, contents: metadata.Contents, leaf: ArrayLeaf) -> Any:
    """An array in its saved form, whole."""
    dtype = dtype_of(leaf, None)
    if leaf.kind == "numpy" or (leaf.words is None and dtypes.canonicalize_dtype(dtype) != dtype):
        return read_whole(folder, contents, leaf)
    return _read_as(folder, contents, leaf, ShapedArray(leaf.shape, dtype, weak_type=leaf.weak), None)


def _sharding(like: Any) -> Any:
    """The sharding that `like` requests; None if it is uncommitted."""
    if isinstance(like, ArrayBase):
        return like.sharding if like.committed else None
    return getattr(like, "sharding", None)


def _in_form_of(value: np.ndarray, aval: ShapedArray, like: Any) -> Any:
    """A whole NumPy array in the form of `like`."""
    if isinstance(like, (np.ndarray, np.generic)):
        return value if isinstance(like, np.ndarray) else value[()]
    return device_put(value, _sharding(like))


def _own_part(leaf: ArrayLeaf, given: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """(sharding, start, shape) of this rank's part of an array. given: the array's sharding, or None."""
    sharding = carried_sharding(given) if given is not None else default_sharding()
    words = leaf.words or ()
    if sharding is None or sharding.has_all_here:
        return sharding, (0,) * len(leaf.stored_shape), leaf.stored_shape
    start = tuple(s.start or 0 for s in sharding.local_slices(leaf.shape)) + (0,) * len(words)
    return sharding, start, (*sharding.process_shape(leaf.shape), *words)


def _read_as(folder: Path, contents: metadata.Contents, leaf: ArrayLeaf, aval: ShapedArray, given: Any) -> Any:
    """An mpijax array in the given sharding: this rank reads its own part directly into the array's memory."""
    sharding, start, shape = _own_part(leaf, given)
    value = read_part(folder, contents, leaf, start, shape)
    return from_numpy(value, type_in(aval, sharding), False, sharding)
