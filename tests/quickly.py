"""What makes the tests faster and changes nothing that they see: fewer garbage collections, an oracle that repeats
less of its work, and ranks that compile each kernel once between them.
"""

from __future__ import annotations

import fcntl
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


def compile_once_for_all_ranks() -> None:
    """Ranks reach a kernel at the same time: the first one compiles it, and the others find it on disk."""
    from mpijax.compiler.backend import llvm

    compile_object, cache = llvm.compile_object, llvm.DiskCache.default()
    if cache is None:
        return

    def compiled_once(ir_text: str, optimize: bool = False) -> bytes:
        key = llvm.cache_key(ir_text)
        with (cache.folder / f"{key[:2]}.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            code = cache.get(key)
            if code is None:
                code = compile_object(ir_text, optimize)
                cache.put(key, code)
        return code

    cache.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    llvm.compile_object = compiled_once
