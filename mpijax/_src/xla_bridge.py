"""Devices."""

from typing import Any

from mpijax.extend.backend import backends, get_backend
from mpijax.runtime.arrays.devices import (
    CLIENT,
    are_known,
    default_backend,
    device_count,
    devices,
    local_devices,
    process_count,
    process_index,
)

__all__ = [
    "backends",
    "default_backend",
    "device_count",
    "devices",
    "get_backend",
    "local_devices",
    "process_count",
    "process_index",
]


def __getattr__(name: str) -> Any:
    if name == "_backends":  # those that have been asked for their devices
        return {CLIENT.platform: CLIENT} if are_known() else {}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
