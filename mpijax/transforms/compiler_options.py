"""Checks XLA's compiler options, as JAX does. They have no effect, because mpijax does not use XLA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijax.core.base.errors import JaxRuntimeError
from mpijax.transforms.xla_options import xla_options

_NAMES = {"exec_time_optimization_effort", "memory_fitting_effort", "memory_fitting_level", "optimization_level"}


def check_compiler_options(options: Mapping[str, Any] | None) -> None:
    """Raise JaxRuntimeError for a misspelt or unknown name, or a value of another type."""
    for name, value in (options or {}).items():
        if name in _NAMES:
            continue
        type_ = xla_options().get(name)
        if type_ is None:
            raise JaxRuntimeError(
                f"INVALID_ARGUMENT: No such compile option: '{name}'. The options are those of XLA in JAX 0.10.2. "
                "mpijax accepts them without effect."
            )
        if not _is_value(value, type_):
            raise JaxRuntimeError(
                f"INVALID_ARGUMENT: While setting option {name}, '{value}' is not a valid {type_.__name__} value."
            )


def _is_value(value: Any, type_: type) -> bool:
    """Whether `value` is of the type, or a string that states such a value."""
    if type_ is object or type(value) is type_:
        return True
    if not isinstance(value, str):
        return False
    if type_ is bool:
        return value in ("True", "False")
    try:
        type_(value)
    except ValueError:
        return False
    return True
