"""Checks transfers against the options `jax_transfer_guard_...`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.option import values
from mpijax.core.types.array_api import Array

logger = logging.getLogger(__name__)

_LETS_PASS = (None, "allow")


def to_device(x: Any, explicit: bool = False) -> None:
    """Check that a value of the host may become an array. Raises JaxRuntimeError if the guard disallows it."""
    level = values.jax_transfer_guard_host_to_device
    if level not in _LETS_PASS:
        _check("host-to-device", level, explicit, lambda: f"{type(x).__name__} of shape {getattr(x, 'shape', ())}")


def between(x: Any, target: Any, explicit: bool = False) -> None:
    """Check that an array may move to the devices of another sharding."""
    level = values.jax_transfer_guard_device_to_device
    if level not in _LETS_PASS and target is not None and x.sharding.device_set != target.device_set:
        _check("device-to-device", level, explicit, lambda: f"an array of type {x.aval}, from {x.sharding} to {target}")


def operands(args: Any) -> None:
    """Check the operands of an operation outside of jit: NumPy arrays and numbers."""
    if values.jax_transfer_guard_host_to_device not in _LETS_PASS:
        for x in args:
            if not isinstance(x, Array):
                to_device(x)


def _check(way: str, level: str, explicit: bool, described: Callable[[], str]) -> None:
    if explicit and not level.endswith("_explicit"):
        return
    if level.startswith("log"):
        logger.warning("%s transfer: %s", way, described())
        return
    option = f"jax_transfer_guard_{way.replace('-', '_')}"
    way_out = "Allow it" if explicit else "Make it explicit with jax.device_put, or allow it"
    raise JaxRuntimeError(
        f"Disallowed {way} transfer: {described()}. The option {option} is {level!r}. {way_out} with "
        'jax.transfer_guard("allow").'
    )
