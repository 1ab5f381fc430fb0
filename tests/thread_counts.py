"""Programs on several numbers of threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import mpijax as jax
from mpijax._ext import executor

THREADS = (1, 2, 3)


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Programs run on n threads; afterwards on as many as before."""
    before = executor.num_threads()
    executor.set_num_threads(n)
    try:
        yield
    finally:
        executor.set_num_threads(before)


def on_threads(fun: Callable, *args: Any) -> list[np.ndarray]:
    """The results of a jitted function, which must have the same bits on any number of threads.

    The sign of a NaN may change with the code: an addition of two NaNs gives one of them, and LLVM may swap the operands.
    """
    compiled = jax.jit(fun)
    found = []
    for n in THREADS:
        with threads(n):
            leaves = [np.asarray(x) for x in jax.tree.leaves(compiled(*args))]
        found.append([_bits(x) for x in leaves])
    assert all(other == found[0] for other in found)
    return leaves


def _bits(x: np.ndarray) -> tuple:
    nan = x != x
    return x.dtype, x.shape, nan.tobytes(), np.where(nan, np.zeros_like(x), x).tobytes()
