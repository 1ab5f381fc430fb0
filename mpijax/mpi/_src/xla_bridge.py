"""What mpi4jax was built with: arrays are in main memory here, so there is nothing for devices. And its log."""

import os

from mpijax.core.base import config

__all__ = ["HAS_CUDA_EXT", "HAS_XPU_EXT", "get_logging", "set_logging"]

HAS_CUDA_EXT = HAS_XPU_EXT = False


def set_logging(enable: bool) -> None:
    """Log operations between ranks from now on, or no longer: the option `mpijax_log_operations`."""
    config.update("mpijax_log_operations", enable)


def get_logging() -> bool:
    """Whether operations between ranks are logged."""
    return config.values.mpijax_log_operations


# As in mpi4jax, a program may set the variable and reload this module.
if "MPI4JAX_DEBUG" in os.environ:
    config.update("mpijax_log_operations", os.environ["MPI4JAX_DEBUG"])
