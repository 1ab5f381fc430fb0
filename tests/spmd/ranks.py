"""A NumPy model of a mesh: global arrays cut into shards, collectives over the list of all ranks' shards.

All ranks draw the same global arrays, so each one knows what every other computes.
"""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np

import mpijax as jax
from mpijax.experimental.multihost_utils import process_allgather
from mpijax.sharding import Mesh
from mpijax.sharding import PartitionSpec as P

SIZE = jax.device_count()
# Shapes of meshes with axes i and j, that use all ranks.
GRIDS = {1: [(1, 1)], 2: [(2, 1), (1, 2)], 3: [(3, 1)], 4: [(2, 2), (1, 4)]}.get(SIZE, [(SIZE, 1)])
DTYPES = ["float32", "int32", "bfloat16", "bool", "complex64", "float16", "uint8"]


def mesh_1d(name: str = "i") -> Mesh:
    return Mesh(jax.devices(), name)


def mesh_2d(shape) -> Mesh:
    return Mesh(np.array(jax.devices(), dtype=object).reshape(shape), ("i", "j"))


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def draw(shape, dtype="float32", seed=0) -> np.ndarray:
    """Small whole numbers and eighths, whose sums are exact in every dtype and any order."""
    rng = np.random.default_rng([seed, *np.shape(shape)])
    x = rng.integers(-8, 8, shape)
    dtype = dtype_of(dtype)
    if dtype == np.bool_:
        return np.asarray(x > 0)
    if dtype.kind == "u":
        return np.asarray(abs(x), dtype)
    if dtype.kind == "c":
        return np.asarray(x / 8 + 1j * rng.integers(-8, 8, shape), dtype)
    return np.asarray(x, dtype) if dtype.kind == "i" else np.asarray(x / 8).astype(dtype)


def real(shape, seed=0) -> np.ndarray:
    """Generic float32 numbers."""
    return np.random.default_rng([seed, 99]).uniform(-1, 1, shape).astype(np.float32)


def whole(x) -> np.ndarray:
    """All elements of a result, however it is sharded."""
    if getattr(x, "_is_whole", True):
        return np.asarray(x)
    check_local(x)
    return process_allgather(x, tiled=True)


def check_local(x) -> None:
    """The local shard is the part of the whole that the sharding says."""
    [shard] = x.addressable_shards
    np.testing.assert_array_equal(np.asarray(shard.data), process_allgather(x, tiled=True)[shard.index])


def assert_same(got, want, **tolerance) -> None:
    got, want = whole(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    if tolerance:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), **tolerance)
    else:
        np.testing.assert_array_equal(got, want)


class Grid:
    """Ranks in row-major order of a grid with named axes; `parts` are lists with an array for each rank."""

    def __init__(self, mesh: Mesh):
        self.sizes = dict(mesh.shape)
        self.places = [dict(zip(self.sizes, at)) for at in np.ndindex(*self.sizes.values())]

    def _block(self, place, axes) -> int:
        block = 0
        for a in axes:
            block = block * self.sizes[a] + place[a]
        return block

    def split(self, x: np.ndarray, spec: P) -> list[np.ndarray]:
        return [x[self._index(place, spec, x.shape)] for place in self.places]

    def _index(self, place, spec, shape):
        out = []
        for dim, n in enumerate(shape):
            axes = spec.axes_of(dim)
            part = n // math.prod(self.sizes[a] for a in axes)
            at = self._block(place, axes)
            out.append(slice(at * part, (at + 1) * part))
        return tuple(out)

    def join(self, parts, spec: P) -> np.ndarray:
        shape = [
            n * math.prod(self.sizes[a] for a in spec.axes_of(dim)) for dim, n in enumerate(np.shape(parts[0]))
        ]
        out = np.zeros(shape, parts[0].dtype)
        for place, part in zip(self.places, parts):
            out[self._index(place, spec, shape)] = part
        return out

    def group(self, rank: int, axes) -> list[int]:
        """The ranks that differ from this one only along `axes`, in row-major order of `axes`."""
        here = self.places[rank]
        members = []
        for at in itertools.product(*(range(self.sizes[a]) for a in axes)):
            members.append(self.places.index({**here, **dict(zip(axes, at))}))
        return members

    def over(self, parts, axes, combine):
        """`combine(list of the group's arrays)` on every rank."""
        return [combine([parts[m] for m in self.group(r, axes)]) for r in range(len(parts))]

    def index(self, axes) -> list[np.int32]:
        return [np.int32(self._block(place, axes)) for place in self.places]

    def permute(self, parts, axis, perm):
        origin = {b: a for a, b in perm}
        out = []
        for r, part in enumerate(parts):
            at = self.places[r][axis]
            out.append(parts[self.group(r, [axis])[origin[at]]] if at in origin else np.zeros_like(part))
        return out


def summed(arrays):
    """Exact sums, rounded as the dtype's additions one after the other."""
    if arrays[0].dtype == np.bool_:
        return np.sum(arrays, axis=0, dtype=np.int32)
    total = arrays[0]
    for a in arrays[1:]:
        total = (total + a).astype(total.dtype)
    return total
