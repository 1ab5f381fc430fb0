"""Devices."""

from mpijax.runtime.devices import default_backend, device_count, devices, local_devices, process_count, process_index

__all__ = ["default_backend", "device_count", "devices", "local_devices", "process_count", "process_index"]
