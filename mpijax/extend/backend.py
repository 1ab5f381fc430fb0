"""``mpijax.extend.backend``: the backend that runs compiled programs. There is one: the CPUs of the job's ranks."""

from __future__ import annotations

from typing import Any, NoReturn

from mpijax import missing as _missing
from mpijax.core.base import config
from mpijax.runtime.arrays.devices import CLIENT, Client, Device, devices, local_devices

__all__ = ["backends", "get_backend", "get_default_device"]


def get_backend(platform: str | Client | None = None) -> Client:
    """The backend with this name: "cpu", or None. It has `platform`, `devices()` and the process number.

    Raises RuntimeError for other names.

    >>> mpijax.extend.backend.get_backend().platform
    'cpu'
    """
    if not isinstance(platform, Client):
        devices(platform)
    return CLIENT


def backends() -> dict[str, Client]:
    """All backends, by name.

    >>> list(mpijax.extend.backend.backends())
    ['cpu']
    """
    return {CLIENT.platform: get_backend()}


def get_default_device() -> Device:
    """The default device for new arrays.

    >>> mpijax.extend.backend.get_default_device().platform
    'cpu'
    """
    chosen: Any = config.values.jax_default_device
    return chosen if isinstance(chosen, Device) else local_devices()[0]


def __getattr__(name: str) -> NoReturn:
    raise _missing.error(__name__, name)
