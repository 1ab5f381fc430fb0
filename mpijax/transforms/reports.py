"""Logs what `jit` does: `log_compiles`, `explain_cache_misses`; warns about unused donations."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import ne
from typing import Any

from mpijax.core.base import config, option
from mpijax.core.base.source import callable_location, callable_name, current_source
from mpijax.core.base.warn import warn_user
from mpijax.transforms.flat import parameter_names

logger = logging.getLogger("mpijax.jit")

_WEAK = "https://docs.jax.dev/en/latest/type_promotion.html#weak-types"


# Locations of functions whose first trace has been explained.
_explained: set[str] = set()


def _level() -> int:
    return logging.WARNING if config.values.jax_log_compiles else logging.DEBUG


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Log the end of a block, and its duration."""
    start = time.perf_counter()
    yield
    if logger.isEnabledFor(level := _level()):
        logger.log(level, "Finished %s in %.9f sec", what, time.perf_counter() - start)


def unused_donations(avals: Sequence[Any], donated: Sequence[bool], results: Sequence[Any]) -> None:
    """Warn about donated arguments that no remaining result can reuse, because shapes or dtypes differ."""
    left = [(a.shape, a.dtype) for a in results]
    unused = []
    for aval, gone in zip(avals, donated, strict=True):
        if not gone:
            continue
        if (aval.shape, aval.dtype) in left:
            left.remove((aval.shape, aval.dtype))
        else:
            unused.append(aval.str_short(False))
    if unused:
        warn_user(
            f"Some donated buffers were not usable: {', '.join(unused)}. A result reuses the memory of a donated "
            "argument only if their shapes and dtypes are equal.",
        )


def compiling(name: str, avals: Sequence[Any]) -> None:
    """Log the compilation of a program, with the types of its arguments."""
    if logger.isEnabledFor(level := _level()):
        logger.log(level, "Compiling jit(%s) with global shapes and types %s.", name, tuple(avals))


def refuse_tracing(fun: Callable) -> None:
    """Raise if the option `no_tracing` is set and a function is about to be traced."""
    if config.values.jax_no_tracing:
        raise RuntimeError(
            f"re-tracing function {callable_location(fun)} for `jit`, but 'no_tracing' is set. The argument types, "
            "static arguments or options differ from those of earlier calls."
        )


def explain_miss(fun: Callable, key: tuple, seen: Sequence[tuple], args: tuple, kwargs: dict[str, Any]) -> None:
    """Log why a call is traced: how its key differs from the most similar earlier key."""
    if not config.values.jax_explain_cache_misses:
        return
    place = callable_location(fun)
    lines = [
        f"TRACING CACHE MISS at {current_source()}:",
        f"  for {callable_name(fun)} defined at {place.rpartition(' at ')[2]}",
    ]
    if not seen:
        lines.append("  never seen function, or its earlier traces have been discarded")
        if place in _explained:
            lines.append(
                "  but seen another function defined on the same line. If each call defines the function again, define "
                "it once, outside."
            )
        _explained.add(place)
    else:
        closest = min(seen, key=lambda old: _distance(old, key))
        lines.append("  all previously seen cache keys differ. For the closest previous key:")
        lines += _differences(closest, key, parameter_names(fun, args, kwargs))
    logger.warning("\n".join(lines))


def _distance(old: tuple, new: tuple) -> tuple[int, int]:
    """The number of differing parts of two keys, and of types that print differently."""
    texts = ([a.str_short(True) for a in key[2]] for key in (old, new))
    return sum(map(ne, old, new)), sum(map(ne, *texts))


def _differences(old: tuple, new: tuple, names: list[str]) -> list[str]:
    """The differences between two keys of `PjitFunction._trace`, as text."""
    (_, old_tree, old_avals, old_statics, *old_scope) = old
    (_, new_tree, new_avals, new_statics, *new_scope) = new
    found = []
    if old_tree != new_tree:
        found += ["  different input pytree:", f"  * now {new_tree} and before {old_tree}"]
    elif old_avals != new_avals:
        found.append("  different input types:")
        for name, now, before in zip(names, new_avals, old_avals, strict=False):
            if now is not before:
                texts = now.str_short(True), before.str_short(True)
                weak = [f"{{weak_type={a.weak_type}}}" if texts[0] == texts[1] else "" for a in (now, before)]
                found.append(f"  * at {name}, now {texts[0]}{weak[0]} and before {texts[1]}{weak[1]}")
                if weak[0]:
                    found.append(f"    where weak_type=True often means a Python builtin numeric value, see {_WEAK}")
    if old_statics != new_statics:
        found += ["  different static arguments:", f"  * now {_shown(new_statics)} and before {_shown(old_statics)}"]
    if old_scope != new_scope:
        found.append("  different tracing context: options (jax.config, context managers) or named axes")
        changed = option.differing(new_scope[0], old_scope[0])
        found += [f"  * at {name}, now {now} and before {before}" for name, now, before in changed]
    return found or ["  the declaration of static arguments differs"]


def _shown(statics: tuple) -> str:
    return ", ".join(f"{name}={value!r}" for name, _, value in statics) or "none"
