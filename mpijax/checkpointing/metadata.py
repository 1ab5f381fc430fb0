"""The JSON file that describes a checkpoint: `zarr.json` of the group.

Its attributes contain the tree, the leaves and a checksum. Its `consolidated_metadata` contains Zarr's metadata of all
arrays, so that only one file is read. A folder without it is not a checkpoint: it is written last and removed first.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from mpijax.checkpointing import structure
from mpijax.checkpointing.errors import CheckpointError
from mpijax.checkpointing.leaves import ArrayLeaf, parse
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.version import __version__

FILE = "zarr.json"
# Maximum bytes of the file to read: a few hundred thousand arrays.
LIMIT = 256 << 20
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True)
class Contents:
    """The contents of a checkpoint. tree: containers as JSON. chunks: the chunk shape of each array, by name."""

    tree: Any
    leaves: tuple[ArrayLeaf | dict[str, Any], ...]
    chunks: dict[str, tuple[int, ...]]

    @property
    def arrays(self) -> list[ArrayLeaf]:
        return [leaf for leaf in self.leaves if isinstance(leaf, ArrayLeaf)]

    @property
    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.arrays)

    def by_path(self) -> dict[structure.Path, ArrayLeaf | dict[str, Any]]:
        """The leaves by their paths in the tree."""
        return {path: self.leaves[number] for path, number in structure.walk(self.tree)}

    def zarr_of(self, leaf: ArrayLeaf) -> dict[str, Any]:
        """Zarr's metadata of an array."""
        return zarr_array(leaf, self.chunks[leaf.array])


def name_of(path: structure.Path, taken: set[str]) -> str:
    """A name for the array at a path that is also a valid file name and not taken."""
    base = re.sub(r"[^A-Za-z0-9_.-]+", "_", ".".join(str(p) for p in path))[:100].strip("._-") or "value"
    name, number = base, 1
    while name.lower() in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name.lower())
    return name


def zarr_array(leaf: ArrayLeaf, chunk: tuple[int, ...]) -> dict[str, Any]:
    """The Zarr 3 metadata of an array: plain chunks, each followed by its CRC32C."""
    dtype = leaf.stored_dtype
    fill = {"b": False, "c": [0.0, 0.0], "f": 0.0}.get(dtype.kind, 0)
    attributes = {} if dtype.name == leaf.dtype else {"dtype": leaf.dtype}
    order = [{"name": "bytes", "configuration": {"endian": "little"}}] if dtype.itemsize > 1 else [{"name": "bytes"}]
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [*leaf.stored_shape],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "codecs": [*order, {"name": "crc32c"}],
        "fill_value": fill,
        "attributes": attributes,
        "dimension_names": [f"{leaf.array}_{i}" for i in range(len(leaf.stored_shape))],
    }


def as_json(x: Any) -> bytes:
    """Readable JSON, as bytes."""
    return json.dumps(x, indent=1, allow_nan=False).encode()


def _sum(about: dict[str, Any], arrays: dict[str, Any]) -> str:
    text = json.dumps([{k: v for k, v in about.items() if k != "sha256"}, arrays], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def dump(contents: Contents) -> bytes:
    """The file's content. ValueError if it is larger than `LIMIT`."""
    arrays = {leaf.array: contents.zarr_of(leaf) for leaf in contents.arrays}
    leaves = [leaf.plain() if isinstance(leaf, ArrayLeaf) else leaf for leaf in contents.leaves]
    about = {"format": _FORMAT, "version": __version__, "tree": contents.tree, "leaves": leaves}
    group = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"mpijax": {**about, "sha256": _sum(about, arrays)}},
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays},
    }
    data = as_json(group)
    if len(data) > LIMIT:
        raise ValueError(
            f"The metadata has {len(data)} bytes, more than the limit of {LIMIT} bytes. Save fewer, larger arrays."
        )
    return data


def read(folder: Path) -> bytes:
    """The file's bytes. CheckpointError if the folder is not a checkpoint."""
    file = folder / FILE
    try:
        with file.open("rb") as stream:
            data = stream.read(LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{folder} is not a checkpoint: {file} is missing") from None
    if len(data) > LIMIT:
        raise CheckpointError(f"{file} is larger than the limit of {LIMIT} bytes")
    return data


def load(data: bytes, folder: Path) -> Contents:
    """The parsed contents. CheckpointError unless `dump` could have written them."""
    try:
        return _load(data)
    except CheckpointError as error:
        raise CheckpointError(f"{folder / FILE} is damaged or not of a checkpoint: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        text = f"{type(error).__name__}: {error}"[:300]
        raise CheckpointError(f"{folder / FILE} is damaged or not of a checkpoint: {text}") from None


def _load(data: bytes) -> Contents:
    group = json.loads(data)
    about, arrays = group["attributes"]["mpijax"], group["consolidated_metadata"]["metadata"]
    if about["format"] != _FORMAT:
        raise CheckpointError(f"it has format {about['format']!r}, but mpijax {__version__} reads format {_FORMAT}")
    if about["sha256"] != _sum(about, arrays):
        raise CheckpointError("its SHA-256 does not match its contents")
    leaves = tuple(map(parse, about["leaves"]))
    if sorted(number for _, number in structure.walk(about["tree"])) != list(range(len(leaves))):
        raise CheckpointError("the tree does not match the leaves")
    contents = Contents(about["tree"], leaves, {})
    for leaf in contents.arrays:
        if not _NAME.fullmatch(leaf.array) or leaf.array in contents.chunks:
            raise CheckpointError(f"{leaf.array!r} is not a valid name of an array")
        said = arrays[leaf.array]
        chunk = said["chunk_grid"]["configuration"]["chunk_shape"]
        if len(chunk) != len(leaf.stored_shape) or not all(type(n) is int and 0 < n < 1 << 48 for n in chunk):
            raise CheckpointError(f"array {leaf.array} has chunks of shape {chunk}")
        contents.chunks[leaf.array] = tuple(chunk)
        if said != contents.zarr_of(leaf):
            raise CheckpointError(f"array {leaf.array} does not have the format of mpijax")
    return contents
