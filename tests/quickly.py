"""What makes the tests faster and changes nothing that they see: fewer garbage collections, an oracle that repeats
less of its work.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading


def collect_garbage_less_often() -> None:
    """What modules of tests and caches hold stays: no later turn looks through it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def quicken_jax() -> None:
    """JAX makes an MLIR context for each program, and resolves the path of each frame when an error passes it."""
    if "jax" not in sys.modules:
        return
    from jax._src import traceback_util
    from jax._src.interpreters import mlir

    traceback_util._path_starts_with = functools.cache(traceback_util._path_starts_with)
    contexts = threading.local()
    make = mlir.make_ir_context

    def context_of_thread():
        if not hasattr(contexts, "context"):
            contexts.context = make()
        return contexts.context

    mlir.make_ir_context = context_of_thread
