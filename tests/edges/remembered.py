"""JAX's results, computed once and kept in `build/`: compiling a few thousand expressions is what a sweep costs."""

from __future__ import annotations

import hashlib
import pickle
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np

FILE = Path(__file__).parent.parent.parent / "build" / "test-oracle.sqlite"


def key_of(source: str, operands: Iterable[np.ndarray]) -> str:
    """Of an expression, the bits of its operands, the width of JAX's types, and its version."""
    parts = [jax.__version__, str(jax.config.jax_enable_x64), source]
    for x in operands:
        parts += [str(x.dtype), str(x.shape), x.tobytes().hex()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def remembered(keys: list[str], compute: Callable[[list[int]], list[Any]]) -> list[Any]:
    """What is kept for the keys; of those without, by their places, what `compute` finds, which is then kept."""
    FILE.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(FILE, timeout=60)) as file:
        file.execute("create table if not exists results (key text primary key, result blob)")
        question = f"select key, result from results where key in ({','.join('?' * len(keys))})"
        known = {key: pickle.loads(blob) for key, blob in file.execute(question, keys)}
        missing = [place for place, key in enumerate(keys) if key not in known]
        if missing:
            new = {keys[place]: result for place, result in zip(missing, compute(missing), strict=True)}
            with file:
                file.executemany("insert or replace into results values (?, ?)",
                                 [(key, pickle.dumps(result)) for key, result in new.items()])  # fmt: skip
            known |= new
    return [known[key] for key in keys]
