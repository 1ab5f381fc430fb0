"""Defines the primitives behind `mpijax.debug`, which show values while a program runs.

They have no results. A program keeps them nevertheless, and calls each one as often as it is reached; ordered ones in
program order.
"""

from __future__ import annotations

import logging
import string
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.base import config, provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import HostCall, Reshard, ReshardKind
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.sharding.shardings import SingleDeviceSharding
from mpijax.core.tracing.refs import Ref, RefView
from mpijax.core.trees import tree
from mpijax.core.types.array_api import Array
from mpijax.core.types.effects import DebugEffect, OrderedDebugEffect
from mpijax.core.types.typeof import typeof
from mpijax.ops.callbacks.host import call_python, called_by_program, example, location, run_directly
from mpijax.transforms import key_reuse

logger = logging.getLogger(__name__)

UNORDERED, ORDERED = DebugEffect(), OrderedDebugEffect()


@dataclass(frozen=True)
class SplitCall:
    """A function of a pytree with some leaves that are not arrays: `static` has these by position."""

    callback: Callable
    in_tree: Any
    static: tuple[tuple[int, Any], ...]

    def __call__(self, *dynamic: Any) -> None:
        fixed, rest = dict(self.static), iter(dynamic)
        leaves = [fixed[i] if i in fixed else next(rest) for i in range(len(fixed) + len(dynamic))]
        args, kwargs = tree.tree_unflatten(self.in_tree, leaves)
        self.callback(*args, **kwargs)

    @property
    def __wrapped__(self) -> Callable:
        return self.callback

    def __repr__(self) -> str:
        return repr(self.callback)


def split_arguments(args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], Any, tuple[tuple[int, Any], ...]]:
    """The arrays among the leaves, the structure, and the other leaves with their positions.

    A mutable array reference becomes the array that it holds now.
    """
    leaves, in_tree = tree.tree_flatten((args, kwargs))
    dynamic, static = [], []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, (Ref, RefView)):
            dynamic.append(leaf[...])
        elif _is_value(leaf):
            dynamic.append(leaf)
        else:
            static.append((i, leaf))
    return dynamic, in_tree, tuple(static)


def _is_value(leaf: Any) -> bool:
    """Whether a leaf can be an operand; `ShapeDtypeStruct`s and variables have types, but no values."""
    if not isinstance(leaf, (Array, np.ndarray, np.generic, int, float, complex)):
        return hasattr(leaf, "__jax_array__") and not isinstance(leaf, type)
    try:
        typeof(leaf)
    except TypeError:
        return False
    return True


# ---------------------------------------------------------------- rules of both


def _jvp(name: str) -> Callable:
    def jvp(primals, _tangents, **params):
        return registry[name].bind(*primals, **params), []

    return jvp


def _batch(name: str) -> Callable:
    """Calls once per example, in order."""

    def batch(axis, args, dims, **params):
        for i in range(axis.size):
            registry[name].bind(*example(args, dims, i), **params)
        return [], []

    return batch


def _parts(s: Operation) -> Plan | None:
    """With `partitioned`, each rank shows its parts, and nothing is gathered."""
    return Plan(s.cuts, (), s.params) if s.params["partitioned"] else None


def _observer(name: str, run: Callable, effect: Callable, pretty: Callable | None = None) -> Primitive:
    """A primitive without results; `run(*arrays, **params)` receives its operands."""

    api = name.replace("_", ".")

    def host_call(*arrays, **params):
        who = location(params["callback"]) if "callback" in params else f"of {name}"
        called_by_program(api, who, lambda: run(*arrays, **params))
        return []

    def now(*args, **params):
        run(*args, **params)
        return []

    primitive = Primitive(
        name,
        type_rule=lambda *_, **params: [],
        reference=host_call,
        lower=HostCall(host_call, once=lambda params: not params["partitioned"]),
        jvp=_jvp(name),
        transpose=lambda cts, *args, **params: [None] * len(args),
        batch=_batch(name),
        multiple_results=True,
        sharding=_parts,
        sharding_type=types.whole,
        effects=lambda params: frozenset({effect(params)}),
        pretty=pretty,
    )
    primitive.impl = run_directly(primitive, now)
    return primitive


# ---------------------------------------------------------------- debug_callback


def _run_callback(*values, callback, effect, partitioned):
    call_python(callback, values)


debug_callback_p = _observer("debug_callback", _run_callback, lambda params: params["effect"])
debug_callback_p.keys = key_reuse.NOTHING

# ---------------------------------------------------------------- debug_print


class _FormatChecker(string.Formatter):
    """Formats nothing; raises for arguments that the format does not use, and for missing ones."""

    def format_field(self, value, format_spec):
        return ""

    def convert_field(self, value, conversion):
        return value

    def check_unused_args(self, used_args, args, kwargs):
        unused = [arg for i, arg in enumerate(args) if i not in used_args]
        if unused:
            raise ValueError(f"Unused positional arguments to `jax.debug.print`: {unused}")
        names = [k for k in kwargs if k not in used_args]
        if names:
            raise ValueError(
                f"Unused keyword arguments to `jax.debug.print`: {names}. You may be passing an f-string "
                '(`f"{x}"`). Pass a plain string: values are formatted when the program runs.'
            )


def check_format(fmt: str, *args: Any, **kwargs: Any) -> str:
    """Raise ValueError, IndexError or KeyError for a format that does not match its values."""
    try:
        return _FormatChecker().format(fmt, *args, **kwargs)
    except KeyError as error:
        known = ", ".join(map(repr, kwargs)) or "none"
        raise KeyError(f"The format string contains {error.args[0]!r}, but the values are named {known}") from None


def has_placeholders(fmt: str) -> bool:
    """Whether a format shows values."""
    return any(field is not None for _, field, _, _ in string.Formatter().parse(fmt))


def _run_print(*values, fmt, in_tree, static_args, np_printoptions, has_placeholders, logging_record, show_rank, **_):
    def write(*args, **kwargs):
        if has_placeholders:
            with np.printoptions(**dict(np_printoptions)):
                text = fmt.format(*args, **kwargs)
        else:
            text = " ".join((fmt, *map(str, args)))
        _emit(f"[rank {_rank()}] {text}" if show_rank else text, logging_record)

    call_python(SplitCall(write, in_tree, static_args), values)


def _rank() -> int:
    return provided.process_index()


def _emit(text: str, logging_record) -> None:
    """One write per message, then a flush: lines of ranks do not mix, and none is lost if a rank fails."""
    if logging_record is not None:
        logger.handle(logging.makeLogRecord({**logging_record.__dict__, "msg": text}))
        return
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _pretty_print(eqn, _names):
    """JAX's parameters, and `show_rank` only if it is set."""
    return sorted((k, v) for k, v in eqn.params.items() if k != "show_rank" or v)


debug_print_p = _observer(
    "debug_print", _run_print, lambda params: ORDERED if params["ordered"] else UNORDERED, _pretty_print
)


def shows_rank(show_rank: bool | None) -> bool:
    """Whether a message begins with the rank: as the call says, else as the option `mpijax_debug_print_rank`."""
    return config.debug_print_rank.value if show_rank is None else show_rank


# ---------------------------------------------------------------- inspect_sharding


def _sharding_now(x: Any, *, callback: Callable) -> list:
    callback(getattr(x, "sharding", None) or SingleDeviceSharding(provided.local_devices()[0]))
    return []


def _batch_inspection(_axis, args, _dims, **params):
    """Calls once for all examples."""
    return inspect_sharding_p.bind(*args, **params), []


# In a program, the function is called at compile time.
inspect_sharding_p = Primitive(
    "inspect_sharding",
    type_rule=lambda x, **_: [],
    reference=lambda x, **_: [],
    lower=Reshard("callback", ReshardKind.INSPECT),
    jvp=_jvp("inspect_sharding"),
    transpose=lambda cts, *args, **params: [None] * len(args),
    batch=_batch_inspection,
    multiple_results=True,
    effects=lambda params: frozenset({UNORDERED}),
    keys=key_reuse.NOTHING,
)
inspect_sharding_p.impl = _sharding_now
