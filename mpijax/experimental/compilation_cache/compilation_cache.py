"""Functions that set the cache of compiled programs; the option `jax_compilation_cache_dir` does the same."""

from __future__ import annotations

import os

from mpijax.core.base import config
from mpijax.transforms.jit import clear_caches

__all__ = ["reset_cache", "set_cache_dir"]


def set_cache_dir(path: str | os.PathLike) -> None:
    """Cache programs that are compiled from now on in a folder. The folder is made if it does not exist.

    >>> from mpijax.experimental.compilation_cache import compilation_cache
    >>> compilation_cache.set_cache_dir("/tmp/mpijax-programs")
    >>> mpijax.config.jax_compilation_cache_dir
    '/tmp/mpijax-programs'
    >>> mpijax.config.update("jax_compilation_cache_dir", None)
    """
    config.update("jax_compilation_cache_dir", os.fspath(path))


def reset_cache() -> None:
    """Remove the programs from memory. The files on disk remain.

    >>> from mpijax.experimental.compilation_cache import compilation_cache
    >>> compilation_cache.reset_cache()
    """
    clear_caches()
