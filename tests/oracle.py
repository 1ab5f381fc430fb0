"""JAX as oracle: run the same function on JAX and on mpijax and compare everything a user can see.

A case is a function of the library, `lambda J: lambda x: J.numpy.sin(x)`. What is compared: the Jaxpr's
text, the values (exactly, unless a tolerance is given), dtypes, weak types; for errors the class.
"""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

LIBRARIES = ("jax", "mpijax")
# What pytest asks all objects of a module for, to find fixtures.
ASKED_BY_PYTEST = ("_mock_name", "__wrapped__")


class Library:
    """A library and its submodules as attributes: `J.numpy`, `J.lax`, `J.nn`, `J.random`, and what it
    exports."""

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ASKED_BY_PYTEST:
            raise AttributeError(attribute)  # without loading the library
        if not is_module(f"{self.name}.{attribute}"):
            return getattr(importlib.import_module(self.name), attribute)
        return importlib.import_module(f"{self.name}.{attribute}")


@functools.cache
def is_module(name: str) -> bool:
    """Whether there is such a module: looking for one that is none takes longer than most operations."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


THEIRS, OURS = map(Library, LIBRARIES)


def run(call) -> tuple:
    """("value", leaves) or ("error", class name, message)."""
    try:
        return ("value", call())
    except Exception as error:
        # An AxisError is a ValueError to JAX's users, and an IndexError to those of the array API standard.
        name = "ValueError" if isinstance(error, np.exceptions.AxisError) else type(error).__name__
        return ("error", name, str(error))


def jaxpr_of(library: Library, make, args) -> tuple:
    fun = make(library)
    return run(lambda: library.make_jaxpr(fun)(*args))


def jaxpr_text(library: Library, make, args) -> tuple:
    outcome = jaxpr_of(library, make, args)
    return ("value", clean(str(outcome[1]))) if outcome[0] == "value" else outcome


def clean(text: str) -> str:
    """A Jaxpr's text without addresses of objects, and trailing blanks."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def same_text(theirs: str, ours: str) -> bool:
    """Whether two Jaxprs have the same text. JAX prints some of its integers as NumPy's, and breaks lines then."""
    if theirs == ours or "np.int" not in theirs:
        return theirs == ours
    numpy_integer = re.compile(r"np\.int(?:32|64)\((-?\d+)\)|\s+")
    return numpy_integer.sub(r"\1", theirs) == numpy_integer.sub(r"\1", ours)


def leaves_of(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in leaves_of(x[key])]
    return [leaf for part in x for leaf in leaves_of(part)] if isinstance(x, (tuple, list)) else [x]


def described(library: Library, leaf: Any) -> tuple:
    """(array, dtype name, weak type) of a result."""
    if isinstance(leaf, Typed):
        array, dtype, _ = described(library, leaf.value)
        if dtype != str(leaf.aval.dtype):
            array = array.astype(leaf.aval.dtype)
        return array, str(leaf.aval.dtype), leaf.aval.weak_type
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and str(dtype).startswith("key<"):
        return np.asarray(library.random.key_data(leaf)), str(dtype), False
    weak = getattr(getattr(leaf, "aval", None), "weak_type", None)
    return np.asarray(leaf), str(np.asarray(leaf).dtype), weak


def check(
    make,
    *args,
    jaxpr: bool = True,
    eager: bool = True,
    jitted: bool = True,
    compiled: bool = False,
    rtol: float = 0,
    atol: float = 0,
):
    """Assert that `make(library)(*args)` is the same for both libraries: its Jaxpr, its results one operation at a time,
    and under `jit`.

    What costs is that JAX compiles: a function that it has run one operation at a time it compiles no second time, as
    under `jit` it has the same values, with the types that its Jaxpr says.

    Args:
      compiled: JAX's values one operation at a time are those under `jit` too: for functions of many operations, each
        of which JAX would compile.
    """
    traced, values = None, None
    if jaxpr:
        ours = jaxpr_of(OURS, make, args)
        traced = jaxpr_of(THEIRS, make, args)
        assert_same_outcome(traced, ours)
        if traced[0] == "value":
            texts = [clean(str(closed)) for closed in (traced[1], ours[1])]
            assert same_text(*texts), "Jaxprs differ.\nJAX:\n{}\nmpijax:\n{}".format(*texts)
    if eager:
        values = run(lambda: (THEIRS.jit(make(THEIRS)) if compiled else make(THEIRS))(*args))
        if compiled and values[0] == "error":
            values = run(lambda: make(THEIRS)(*args))
        compare(values, run(lambda: make(OURS)(*args)), rtol, atol)
    if jitted:
        theirs = jitted_outcome(make, args, traced, values)
        compare(theirs, run(lambda: OURS.jit(make(OURS))(*args)), rtol, atol)


@dataclass
class Typed:
    """A leaf of the results of JAX: its value, and its type under `jit`."""

    value: Any
    aval: Any


def jitted_outcome(make, args, traced: tuple | None, values: tuple | None) -> tuple:
    """What JAX returns or raises under `jit`; by its Jaxpr and its values without, if it has values without."""
    if values is not None:
        traced = traced or jaxpr_of(THEIRS, make, args)
        if traced[0] == "error":
            return traced
        if values[0] == "value":
            leaves, structure = THEIRS.tree.flatten(values[1])
            return "value", THEIRS.tree.unflatten(structure, map(Typed, leaves, traced[1].out_avals))
    return run(lambda: THEIRS.jit(make(THEIRS))(*args))


def compare(theirs: tuple, ours: tuple, rtol: float, atol: float) -> None:
    assert_same_outcome(theirs, ours)
    if theirs[0] == "value":
        assert_same_values(theirs[1], ours[1], rtol, atol)


def assert_same_outcome(theirs: tuple, ours: tuple) -> None:
    """Both a value, or both an error of the same class."""
    assert ours[0] == theirs[0], f"JAX: {theirs}\nmpijax: {ours}"
    if theirs[0] == "error":
        assert ours[1] == theirs[1], f"JAX raised {theirs[1]}: {theirs[2]}\nmpijax raised {ours[1]}: {ours[2]}"


def assert_same_values(theirs: Any, ours: Any, rtol: float = 0, atol: float = 0) -> None:
    theirs, ours = leaves_of(theirs), leaves_of(ours)
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours, strict=True):
        (a, a_dtype, a_weak), (b, b_dtype, b_weak) = described(THEIRS, a), described(OURS, b)
        assert b_dtype == a_dtype and b.shape == a.shape, f"{b_dtype}{b.shape}, JAX: {a_dtype}{a.shape}"
        assert b_weak == a_weak, f"weak_type={b_weak}, JAX: {a_weak}"
        if a.dtype.kind == "V":
            a, b = a.astype(np.float32), b.astype(np.float32)
        if rtol or atol:
            np.testing.assert_allclose(b, a, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(b, a)


def sample(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Small multiples of 1/8 of both signs: sums and products of a few are exact."""
    values = np.random.default_rng(seed).integers(-16, 17, size=shape)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return values > 0
    if dtype.kind in "iu":
        return values.astype(dtype)
    if dtype.kind == "c":
        return (values / 8 + 1j * np.roll(values, 1) / 8).astype(dtype)
    return (values / 8).astype(dtype)
