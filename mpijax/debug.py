"""``mpijax.debug``: looking at values while a program runs.

    debug.print("loss {x}", x=loss)                      # from every rank that runs it
    debug.print("loss {x}", x=loss, show_rank=True)      # [rank 3] loss 0.25
    debug.callback(lambda v: history.append(v), loss)
    debug.breakpoint()

All of them work inside `jit`, loops and branches, under `vmap` (once per example) and under `grad`, where they show
the values of the forward pass. ``ordered=True`` keeps the order of the program. Where programs run on several ranks,
each rank prints its own values; the option ``mpijax_debug_print_rank`` (the variable MPIJAX_DEBUG_PRINT_RANK) puts
``[rank r]`` in front of every message.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mpijax import missing as _missing
from mpijax.core.base.source import current_source
from mpijax.core.types.effects import DebugEffect, OrderedDebugEffect
from mpijax.debugger import breakpoint
from mpijax.ops.callbacks.debug import (
    ORDERED,
    UNORDERED,
    SplitCall,
    check_format,
    debug_callback_p,
    debug_print_p,
    has_placeholders,
    inspect_sharding_p,
    logger,
    shows_rank,
    split_arguments,
)

__all__ = ["DebugEffect", "OrderedDebugEffect", "breakpoint", "callback", "inspect_array_sharding", "log", "print",
           "visualize_array_sharding", "visualize_sharding"]  # fmt: skip


def callback(
    callback: Callable[..., None] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function on the values of `args` and `kwargs` (pytrees; leaves that are not arrays stay as is).

    Two forms: ``debug.callback(fun, x, ordered=True)`` and ``debug.callback(ordered=True)(fun, x)``, where `fun` may
    have arguments named like the options.

    Args:
      callback: gets arrays; what it returns is ignored.
      ordered: keep the order of the program among ordered callbacks and prints.
      partitioned: call the function once for each of this process's devices, on the device's parts of global arrays,
        without communication. By default, a program on arrays over several ranks gathers them, and the rank of the
        first device calls it once. Inside `shard_map`, functions always get shards.

    >>> mpijax.jit(lambda x: mpijax.debug.callback(print, x * 2))(jnp.arange(3))
    [0 2 4]
    """

    def bind(fun: Callable[..., None], *fun_args: Any, **fun_kwargs: Any) -> None:
        if not callable(fun):
            raise TypeError(
                f"first argument to jax.debug.callback must be callable, but got an object of type {type(fun)}"
            )
        dynamic, in_tree, static = split_arguments(fun_args, fun_kwargs)
        effect = ORDERED if ordered else UNORDERED
        debug_callback_p.bind(
            *dynamic, callback=SplitCall(fun, in_tree, static), effect=effect, partitioned=partitioned
        )

    return _one_or_two_calls("debug_callback", bind, callback, args, kwargs)


def print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    show_rank: bool | None = None,
    _use_logging: bool = False,
    **kwargs: Any,
) -> Any:
    """Print values by a format such as ``"loss {x} at {}"``, when the program runs.

    Two forms: ``debug.print("{x}", x=x, ordered=True)`` and ``debug.print(ordered=True)("{x}", x=x)``.

    Args:
      fmt: a format as of `str.format`; it is checked against the arguments at once. Not an f-string: values are not
        known yet.
      ordered: keep the order of the program among ordered prints and callbacks.
      partitioned: print once for each of this process's devices: the device's parts of global arrays, without
        communication. By default, a program on arrays over several ranks gathers them, and the rank of the first device
        prints them once. Inside `shard_map`, shards are always printed.
      skip_format_check: leave out the check.
      show_rank: begin the message with ``[rank r]``; None leaves it to the option `mpijax_debug_print_rank`.

    Raises:
      ValueError: for arguments that the format does not use.
      IndexError, KeyError: for values that the format names and the call does not give.

    >>> mpijax.jit(lambda x: mpijax.debug.print("the sum of {} is {total}", x, total=jnp.sum(x)))(jnp.arange(3))
    the sum of [0 1 2] is 3
    """

    def bind(fmt: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
        if not skip_format_check:
            check_format(fmt, *fmt_args, **fmt_kwargs)
        dynamic, in_tree, static = split_arguments(fmt_args, fmt_kwargs)
        debug_print_p.bind(
            *dynamic,
            fmt=fmt,
            ordered=ordered,
            partitioned=partitioned,
            in_tree=in_tree,
            static_args=static,
            np_printoptions=tuple(np.get_printoptions().items()),
            has_placeholders=has_placeholders(fmt),
            logging_record=_log_record() if _use_logging else None,
            show_rank=shows_rank(show_rank),
        )

    return _one_or_two_calls("debug_print", bind, fmt, args, kwargs)


log = partial(print, _use_logging=True)


def _log_record() -> logging.LogRecord:
    source = current_source()
    return logger.makeRecord(logger.name, logging.INFO, source.file or "(unknown file)", source.line, "", (), None)


def _one_or_two_calls(name: str, bind: Callable, first: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Bind at once, or return what binds: options were given alone."""
    if first is not None:
        bind(first, *args, **kwargs)
        return None
    if args or kwargs:
        raise TypeError(f"{name} received unexpected arguments in the two-call form: {args=} {kwargs=}")
    return bind


# ---------------------------------------------------------------- shardings


def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call a function on the sharding of an array.

    Inside a traced function it is called when the program is compiled, in bodies of `shard_map` with a sharding that
    does not divide shards further. Carries of loops over several devices of one process are shown as whole.

    >>> mpijax.debug.inspect_array_sharding(jnp.arange(3), callback=lambda s: print(s.is_fully_replicated))
    True
    """
    inspect_sharding_p.bind(value, callback=callback)


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Print which device holds which part of a one- or two-dimensional array; see `visualize_sharding`.

    >>> mpijax.debug.visualize_array_sharding(jnp.ones((2, 2)))
    ┌─────────┐
    │         │
    │  CPU 0  │
    │         │
    └─────────┘
    """
    inspect_array_sharding(arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **options))


def visualize_sharding(
    shape: tuple[int, ...], sharding: Any, *, use_color: bool = True, scale: float = 1.0, min_width: int = 9,
    max_width: int = 80, color_map: Any = None,
) -> None:  # fmt: skip
    """Print which device holds which part of an array of a shape, as a table of boxes.

    Args:
      shape: one or two sizes.
      scale, min_width, max_width: of the boxes, in characters; scale 1 is `min_width` wide.
      use_color, color_map: accepted; the table is plain text.

    Raises:
      ValueError: for another number of dimensions.

    >>> place = mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0])
    >>> mpijax.debug.visualize_sharding((2, 2), place)
    ┌─────────┐
    │         │
    │  CPU 0  │
    │         │
    └─────────┘
    """
    if len(shape) not in (1, 2):
        raise ValueError("`visualize_sharding` only works for shapes with 1 and 2 dimensions.")
    holders: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    indices = getattr(sharding, "held_indices", sharding.devices_indices_map)
    for device, index in indices(tuple(shape)).items():
        place = tuple(s.indices(d)[:2] for s, d in zip(index, shape, strict=True))
        holders.setdefault(place if len(shape) == 2 else ((0, 1), *place), []).append(device.id)
    rows = sorted({row for row, _ in holders})
    columns = sorted({column for _, column in holders})
    cells = [["CPU " + ",".join(map(str, sorted(holders[r, c]))) for c in columns] for r in rows]
    widest = max(len(text) for row in cells for text in row) + 2
    width = max(widest, min(int(min_width * scale), (max_width - 1) // len(columns) - 1))
    _print_boxes(cells, width, blank=max(0, round(scale)))


def _print_boxes(cells: list[list[str]], width: int, blank: int) -> None:
    line = "─" * width
    count = len(cells[0])
    between = "├" + "┼".join([line] * count) + "┤"
    empty = ["│" + "│".join([" " * width] * count) + "│"] * blank
    body = [[*empty, "│" + "│".join(text.center(width) for text in row) + "│", *empty] for row in cells]
    lines = ["┌" + "┬".join([line] * count) + "┐"]
    for i, row in enumerate(body):
        lines += ([between] if i else []) + row
    lines.append("└" + "┴".join([line] * count) + "┘")
    builtins.print("\n".join(lines))


def __getattr__(name: str):
    raise _missing.error(__name__, name)
