"""``mpijax.debug``: looking at values.

Under `grad`, `jvp` and outside of any transformation values are there and can be shown. Inside `jit` and
`vmap` a Python function would have to be called while the compiled program runs, which programs cannot do
yet.
"""

from __future__ import annotations

import builtins
import string
from collections.abc import Callable
from typing import Any

from mpijax.core import tree
from mpijax.core.trace import Tracer

__all__ = ["breakpoint", "callback", "print"]

_INSTEAD = (
    "return the value from the jitted function and look at it there, or run the function operation by "
    "operation: with mpijax.disable_jit()"
)


def _concrete(what: str, x: Any) -> Any:
    if not isinstance(x, Tracer):
        return x
    known = x.concrete()
    if known is None:
        raise NotImplementedError(
            f"mpijax does not have debug.{what} of values inside jit or vmap yet (got a {x._error_repr()}): "
            f"{_INSTEAD}."
        )
    return known


def callback(
    callback: Callable[..., None], *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any
) -> None:
    """Call a Python function on the values of `args` and `kwargs` (pytrees)."""
    args, kwargs = tree.tree_map(lambda x: _concrete("callback", x), (args, kwargs))
    callback(*args, **kwargs)


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print values by a format such as ``"loss {x} at {}"``."""
    wanted = [name for _, name, _, _ in string.Formatter().parse(fmt) if name is not None]
    unused = {k for k in kwargs if not any(w.split(".")[0].split("[")[0] == k for w in wanted)}
    if unused or (args and not any(w == "" or w[:1].isdigit() for w in wanted)):
        raise ValueError(
            f"debug.print: the format {fmt!r} does not use all arguments (unused: {sorted(unused)}). The "
            "first argument is a format string, as of str.format: debug.print('x = {}', x)."
        )
    args, kwargs = tree.tree_map(lambda x: _concrete("print", x), (args, kwargs))
    builtins.print(fmt.format(*args, **kwargs))


def breakpoint(*_args: Any, **_kwargs: Any) -> None:
    """Not available; Python's own `breakpoint()` works while a function is traced and under `disable_jit`."""
    raise NotImplementedError(
        "mpijax does not have debug.breakpoint: use Python's breakpoint() under mpijax.disable_jit()."
    )
