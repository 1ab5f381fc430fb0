"""``mpijax.experimental``: the parts of ``jax.experimental`` that programs use."""

from mpijax.core import config as _config
from mpijax.ops.callbacks import io_callback as io_callback

__all__ = ["disable_x64", "enable_x64", "io_callback"]


def enable_x64(new_val: bool = True):
    """Inside, 64-bit types are allowed (or not)."""
    return _config.enable_x64(new_val)


def disable_x64():
    """Inside, 64-bit types become 32-bit."""
    return _config.enable_x64(False)
