"""``mpijax.experimental``: the parts of ``jax.experimental`` that programs use."""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from mpijax import missing as _missing
from mpijax.core.base import config as _config
from mpijax.core.tracing.primal_tangent import primal_tangent_dtype as primal_tangent_dtype
from mpijax.ops.callbacks.host import io_callback as io_callback

_MODULES = frozenset(
    """array_serialization buffer_callback checkify custom_partitioning hijax jet key_reuse layout mesh_utils
    multihost_utils ode pallas pjit random rnn roofline scheduling_groups serialize_executable shard_alike shard_map
    sparse xla_metadata""".split()
)

__all__ = ["cur_qdd", "disable_x64", "enable_x64", "io_callback", "primal_tangent_dtype", *sorted(_MODULES)]  # noqa: PLE0604


def enable_x64(new_val: bool = True):
    """Context manager: inside, 64-bit types are allowed, or not if `new_val` is False.

    >>> with mpijax.experimental.enable_x64():
    ...     jnp.arange(2.0).dtype
    dtype('float64')
    """
    return _config.enable_x64(new_val)


def disable_x64():
    """Context manager: inside, 64-bit types become 32-bit types.

    >>> with mpijax.experimental.disable_x64():
    ...     jnp.arange(2.0).dtype
    dtype('float32')
    """
    return _config.enable_x64(False)


def __getattr__(name: str) -> Any:
    if name == "cur_qdd":
        return _importlib.import_module("mpijax.experimental.hijax.mutable").cur_qdd
    if name not in _MODULES:
        raise _missing.error(__name__, name)
    return _importlib.import_module(f"{__name__}.{name}")
