"""``mpijax.experimental.colocated_python``: Python functions that run in the processes that have the devices."""

from mpijax import missing as _missing
from mpijax.experimental.colocated_python.api import colocated_cpu_devices, colocated_python, colocated_python_class

__all__ = ["colocated_cpu_devices", "colocated_python", "colocated_python_class"]


def __getattr__(name: str):
    raise _missing.error(__name__, name)
