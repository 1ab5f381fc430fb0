"""Functions of JAX that mpijax does not have yet: what each would do, and what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_ARRAYS = (
    "arrays that are spread over ranks are made by shard_map: pass the whole array, of which every rank "
    "takes its shard, or build the shard inside the function from lax.axis_index"
)
_REFS = (
    "mutable arrays come with the stateful primitives; until then return the updated array (x.at[i].set(v))"
)

INSTEAD: dict[str, str] = {
    "empty_ref": _REFS,
    "free_ref": _REFS,
    "freeze": _REFS,
    "make_array_from_callback": _ARRAYS,
    "make_array_from_process_local_data": _ARRAYS,
    "make_array_from_single_device_arrays": _ARRAYS,
    "new_ref": _REFS,
    "pmap": "use jit(shard_map(f, mesh=..., in_specs=..., out_specs=...)), which names the same axes",
    "smap": "use shard_map over a mesh that has only the axes to be mapped",
}


def missing(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function in place of JAX's `name` that says what to use instead."""

    def unavailable(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"mpijax does not have {name} yet: {instead}.")

    unavailable.__name__ = unavailable.__qualname__ = name
    unavailable.__doc__ = f"Not available yet: {instead}."
    return unavailable


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name not in INSTEAD:
        raise AttributeError(f"module 'mpijax.missing' has no attribute {name!r}")
    return missing(name, INSTEAD[name])
