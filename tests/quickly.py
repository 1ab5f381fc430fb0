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
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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


def all_slow_but(often: Collection[str], cases: Iterable, name: Callable[[Any], str] = str) -> list:
    """Cases as parameters with their names; all but `often` are marked slow."""
    named = [(name(case), case) for case in cases]
    assert set(often) <= {n for n, _ in named}, set(often) - {n for n, _ in named}
    return [pytest.param(*_values(c), id=n, marks=() if n in often else pytest.mark.slow) for n, c in named]


def slow(*cases) -> list:
    """Cases as parameters that are marked slow."""
    return [pytest.param(*_values(case), marks=pytest.mark.slow) for case in cases]


def _values(case: Any) -> tuple:
    """The parameters of a case: a tuple is several."""
    return case if isinstance(case, tuple) else (case,)


def one_in(count: int, cases: Iterable, rows: bool = False) -> list:
    """Cases as parameters: the first of each `count` in the default run, the others marked slow.

    rows: a case is a tuple of several parameters.
    """
    params = [
        case if isinstance(case, _PARAM) else pytest.param(*case) if rows else pytest.param(case) for case in cases
    ]
    return [p if i % count == 0 else p._replace(marks=(*p.marks, pytest.mark.slow)) for i, p in enumerate(params)]


_PARAM = type(pytest.param())


def sweep_products(items: list) -> None:
    """Mark tests of products of parameters `sweep`: all cases run on one rank, each value of a parameter on several."""
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


def left_out_of_samples(items: list, count: int | None = None) -> list:
    """The cases of tests marked `one_in(n)` that the default run leaves out.

    Of one parameter one of each n values stays. Of several parameters a diagonal of their product stays, so that different
    values of one meet different values of another. The tests of a file begin at different values: what one of them leaves
    out of a table, another runs.

    count: the n of all tests with parameters that are not marked `many_ranks`, in place of the marker's.
    """
    samples: dict[Path, dict[tuple, list]] = {}
    for item in items:
        if "slow" not in item.keywords and (item.get_closest_marker("one_in") if count is None else _may_be_fewer(item)):
            samples.setdefault(item.path, {}).setdefault((item.parent, item.originalname), []).append(item)
    return [
        item for tests in samples.values() for begin, cases in enumerate(tests.values())
        for item in _left_out(cases, count or cases[0].get_closest_marker("one_in").args[0], begin)
    ]  # fmt: skip


def _may_be_fewer(item: Any) -> bool:
    return hasattr(item, "callspec") and not item.get_closest_marker("many_ranks")


def _left_out(cases: list, count: int, begin: int) -> list:
    """All but one in `count` cases of a test."""
    parameters = [_parameters(case) for case in cases]
    numbers: list[dict] = [{} for _ in parameters[0]]
    places = [
        sum(known.setdefault(value, len(known)) for known, value in zip(numbers, values, strict=True)) for values in parameters
    ]
    begin %= min(count, max(places) + 1)  # so that some case stays
    return [case for case, place in zip(cases, places, strict=True) if place % count != begin]


def _parameters(case: Any) -> list[tuple]:
    """A case's value of each parameter, as what can be compared. Names that vary together are one parameter."""
    params, together = case.callspec.params, []
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        together.append([n.strip() for n in names.split(",")] if isinstance(names, str) else list(names))
    of_fixtures = params.keys() - {name for names in together for name in names}
    return [tuple(id(params[n]) for n in names if n in params) for names in (*together, *([n] for n in sorted(of_fixtures)))]
