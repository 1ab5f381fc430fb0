"""Functions of JAX that mpijax does not have yet: what each would do, and what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_REFS = (
    "mutable arrays come with the stateful primitives; until then return the updated array (x.at[i].set(v))"
)

INSTEAD: dict[str, str] = {
    "empty_ref": _REFS,
    "free_ref": _REFS,
    "freeze": _REFS,
    "new_ref": _REFS,
}


# What JAX has and mpijax does not have on purpose, by its name without "jax."; docs/coverage.md lists it.
_TOKENS = "tokens of XLA are not needed: communication and callbacks run in the order of the source"
LEFT_OUT: dict[str, str] = {
    "lax.after_all": _TOKENS,
    "lax.create_token": _TOKENS,
}


def error(module: str, name: str) -> AttributeError:
    """The error for a name that module `module` of mpijax does not have: with the reason, where there is one."""
    reason = LEFT_OUT.get(f"{module.removeprefix('mpijax.')}.{name}")
    text = f"module {module!r} has no attribute {name!r}"
    return AttributeError(text if reason is None else f"{text}: {reason}.")


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
