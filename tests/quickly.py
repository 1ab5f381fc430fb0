"""What makes the tests faster: fewer garbage collections, an oracle that repeats less of its work, and of a product of
parameters a part of the cases.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

_NONE = SimpleNamespace(params={})
# The options of JAX that are set here, with the values that JAX gave them.
DEFAULTS: dict[str, object] = {}


def collect_garbage_less_often() -> None:
    """What modules of tests and caches hold stays: no later turn looks through it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def quicken_jax(folder: Path) -> None:
    """JAX makes an MLIR context for each program, and resolves the path of each frame when an error passes it. It keeps
    in `folder` the machine code of its programs: to compile them is half of its time.
    """
    if "jax" in sys.modules:
        _quicken_jax(folder)


@functools.cache
def _quicken_jax(folder: Path) -> None:
    import jax
    from jax._src import compilation_cache, lru_cache, traceback_util
    from jax._src.interpreters import mlir

    traceback_util._path_starts_with = functools.cache(traceback_util._path_starts_with)
    contexts = threading.local()
    make = mlir.make_ir_context

    def context_of_thread():
        if not hasattr(contexts, "context"):
            contexts.context = make()
        return contexts.context

    mlir.make_ir_context = context_of_thread

    def put(self, key: str, value: bytes) -> None:
        """In one step: other processes read the folder."""
        own = self.path / f"{key}.{os.getpid()}"
        own.write_bytes(value)
        own.replace(self.path / f"{key}-cache")

    lru_cache.LRUCache.put = put
    # JAX's keys do not say for which CPU a program was compiled.
    from mpijax.compiler.backend.disk_cache import host_id

    own = folder / f"jax-{jax.__version__}-{hashlib.sha256(host_id().encode()).hexdigest()[:16]}"
    options = {"jax_compilation_cache_dir": str(own), "jax_persistent_cache_min_compile_time_secs": 0}
    for name, value in options.items():
        DEFAULTS[name] = jax.config.values[name]
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # if it has compiled, it has looked for its options


def sweep_products(items: list) -> None:
    """Mark tests of products of parameters `sweep`: all cases run on two ranks, each value of a parameter on more."""
    for item in items:
        if item.get_closest_marker("mpi") and len(getattr(item, "callspec", _NONE).params) > 1:
            item.add_marker("sweep")


def cases_of_sweeps(items: list) -> tuple[list, list]:
    """Cases of tests marked `sweep` that have each value of each parameter at least once, and the others."""
    sweeps: dict[tuple, list] = {}
    for item in items:
        if item.get_closest_marker("sweep"):
            sweeps.setdefault((item.path, item.originalname), []).append(item)
    chosen, others = [], []
    for cases in sweeps.values():
        seen: set[tuple[str, int]] = set()
        left = cases
        for at_least_new in (lambda new, values: new == values, lambda new, values: new):
            waiting = []
            for item in left:
                values = {(name, id(value)) for name, value in item.callspec.params.items()}
                (chosen if at_least_new(values - seen, values) else waiting).append(item)
                if chosen and chosen[-1] is item:
                    seen |= values
            left = waiting
        others += left
    return chosen, others
