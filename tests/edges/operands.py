"""Edge values of each dtype: zeros of both signs, infinities, NaN, denormals, the ends of the range."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 float16 bfloat16 float32 complex64".split()
WIDE = "int64 uint64 float64 complex128".split()

ORDINARY = [1, -1, 0.5, -0.5, 1.5, -2.5, 3, -7.25, 30.25, 88.9, -88.9, 1000.5, 1e-3, -1e-3, 0.999]
PARTS = [0, -0.0, 1, -1.5, 0.25, np.inf, -np.inf, np.nan, 40, 1e-3]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def kind(dtype: np.dtype) -> str:
    """b, i, u, f or c: also of the floats that NumPy does not have."""
    return "f" if dtype.kind == "V" else dtype.kind


def edges(dtype: np.dtype) -> np.ndarray:
    """A vector of an odd number of edge values."""
    if kind(dtype) == "b":
        return np.array([False, True, True])
    if kind(dtype) in "iu":
        limits = ml_dtypes.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        values = [0, 1, 2, 3, 7, 100, high, high - 1, high // 2, low, low + 1]
        return np.array(values + [-1, -2, -7, -100, low // 2] if low else [*values, 8, 9], dtype)
    if kind(dtype) == "c":
        values = np.empty((len(PARTS), len(PARTS)), dtype)
        values.real, values.imag = np.array(PARTS)[:, None], PARTS
        return values.reshape(-1)[:-1]
    limits = ml_dtypes.finfo(dtype)
    ends = [limits.max, limits.tiny, limits.smallest_subnormal, float(limits.tiny) / 4]
    ends = [sign * float(end) for end in ends for sign in (1, -1)]
    with np.errstate(over="ignore"):
        return np.array([0, -0.0, *ORDINARY, np.inf, -np.inf, np.nan, *ends, 1 + float(limits.eps)]).astype(dtype)


def few(dtype: np.dtype) -> np.ndarray:
    """A vector for pairs."""
    values = edges(dtype)
    if kind(dtype) == "f":
        return values[[0, 1, 2, 3, 4, 7, 8, 9, 12, 14, 17, 18, 19, 20, 22]]
    return values[::7] if kind(dtype) == "c" else values


def among(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """An array with an edge value in every third place, others small."""
    numbers = np.random.default_rng(3).integers(-9, 10, shape)
    numbers = np.abs(numbers) if kind(dtype) == "u" else numbers
    values = (numbers > 0 if kind(dtype) == "b" else numbers / 4 if kind(dtype) in "fc" else numbers).astype(dtype)
    last = {"f": [np.nan, np.inf, -0.0, -np.inf], "c": [1j, -0.5 - 2j, 0j, complex(-3, 0.25)]}.get(kind(dtype))
    special = np.array(last, dtype) if last else edges(dtype)[::-1]
    for place, value in zip(range(1, values.size, 3), itertools.cycle(special)):
        values.reshape(-1)[place] = value
    return values


def operands(letters: tuple[str, ...], name: str, shape: tuple[int, ...] | None = None) -> list[np.ndarray]:
    """Arrays for the letters of a row; of another shape than the letters', if one is given."""
    dtype = dtype_of(name)
    if shape is not None:
        return [among(dtype, shape) for _ in letters]
    if letters == ("x", "y"):
        return [few(dtype)[:, None], few(dtype)]
    own = {"a": (3, 5), "v": (7,)}
    return [edges(dtype) if letter == "x" else among(dtype, own[letter]) for letter in letters]
