"""What a program is: a function of arrays, and how its arguments are drawn and split."""

import dataclasses
import importlib
import math
import zlib
from collections.abc import Callable

import numpy as np

TOPICS = [
    "elementwise", "products", "networks", "indexing", "linalg", "convolutions", "stencils", "control", "scans",
    "sorting", "fourier", "shapes", "pairs", "vmapped", "gradients", "random", "uneven",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Array:
    """An argument. spec: for each axis the mesh axis that splits it, or None.

    drawn: "normal", "uniform" in [0, 1), "definite" matrices, "sorted" numbers, or whole numbers below that number.
    """

    shape: tuple[int, ...]
    spec: tuple
    drawn: str | int = "normal"
    dtype: str = "float32"

    def draw(self, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        if isinstance(self.drawn, int):
            return rng.integers(0, self.drawn, self.shape).astype(np.int32)
        if self.drawn == "uniform":
            return rng.random(self.shape).astype(self.dtype)
        x = rng.normal(size=self.shape)
        if self.drawn == "sorted":
            x = np.sort(x, axis=0)
        if self.drawn == "definite":
            n = self.shape[-1]
            x = x @ np.swapaxes(x, -1, -2) / n + np.eye(n)
        if self.dtype == "complex64":
            x = x + 1j * rng.normal(size=self.shape)
        return x.astype(self.dtype)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * (4 if isinstance(self.drawn, int) else np.dtype(self.dtype).itemsize)


def rows(*shape: int, **fields) -> Array:
    """An array whose first axis is split."""
    return Array(shape, ("i",), **fields)


def columns(*shape: int, **fields) -> Array:
    """An array whose last axis is split."""
    return Array(shape, (None,) * (len(shape) - 1) + ("i",), **fields)


def grid(*shape: int, **fields) -> Array:
    """An array whose first two axes are split, over a mesh of two axes."""
    return Array(shape, ("i", "j"), **fields)


def whole(*shape: int, **fields) -> Array:
    """An array that every device has."""
    return Array(shape, (), **fields)


@dataclasses.dataclass(frozen=True)
class Program:
    """One row of the table. least: bytes that a device must send at least, of the number of devices."""

    name: str
    function: Callable
    arrays: tuple[Array, ...]
    least: Callable[[int], float] | None = None
    rtol: float = 1e-4

    def mesh_shape(self, devices: int) -> dict[str, int]:
        """Sizes of the mesh axes: of two axes, the most even ones."""
        if not any("j" in array.spec for array in self.arrays):
            return {"i": devices}
        first = next(n for n in range(math.isqrt(devices), 0, -1) if devices % n == 0)
        return {"i": devices // first, "j": first}

    def draw(self) -> list[np.ndarray]:
        """The arguments, the same in every process."""
        seed = zlib.crc32(self.name.encode())
        return [array.draw(seed + k) for k, array in enumerate(self.arrays)]

    @property
    def largest(self) -> int:
        """Bytes of the largest argument that is split."""
        return max((array.nbytes for array in self.arrays if any(array.spec)), default=0)


PROGRAMS: dict[str, Program] = {}


def program(name: str, *arrays: Array, **fields):
    """Registers the decorated function as a program."""

    def register(function):
        if name in PROGRAMS:
            raise ValueError(f"two programs are called {name!r}")
        PROGRAMS[name] = Program(name, function, arrays, **fields)
        return function

    return register


def load_programs(words=()) -> list[Program]:
    """The programs with any of the words in their names; or all."""
    for topic in TOPICS:
        importlib.import_module(f"bench.partition.programs.{topic}")
    return [p for p in PROGRAMS.values() if not words or any(word in p.name for word in words)]
