"""Contexts around tracing, waiting (there is nothing to wait for), and what to put into a bug report."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax import version
from mpijax.core import config, tree
from mpijax.runtime.arrays import devices
from mpijax.runtime.mpi import mpi_start


def disable_jit(disable: bool = True) -> Any:
    """Inside, functions under `jit` run operation by operation, so that `print` sees every value.

    >>> f = mpijax.jit(lambda x: print("x is", x))
    >>> with mpijax.disable_jit():
    ...     f(jnp.arange(3))
    x is [0 1 2]
    """
    return config.disable_jit(disable)


def checking_leaks() -> Any:
    """Inside, a traced value that outlives its trace raises where the trace ends, not at its use.

    >>> with mpijax.checking_leaks():
    ...     mpijax.jit(jnp.negative)(jnp.arange(3))
    Array([ 0, -1, -2], dtype=int32)
    """
    return config.check_tracer_leaks(True)


class named_scope(contextlib.ContextDecorator):
    """A name for the operations inside; accepted for JAX's sake, programs name source lines instead.

    >>> with mpijax.named_scope("inner"):
    ...     jnp.square(jnp.arange(3))
    Array([0, 1, 4], dtype=int32)
    """

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"named_scope name argument must be a string, got {name!r} of type {type(name)}")
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_exc: Any) -> None:
        return None


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """`fun` itself; see `named_scope`.

    >>> mpijax.named_call(jnp.square, name="square")(jnp.arange(3))
    Array([0, 1, 4], dtype=int32)
    """
    return fun


def effects_barrier() -> None:
    """Wait until side effects have happened; execution is synchronous, so they have.

    >>> mpijax.effects_barrier()
    """


def copy_to_host_async(x: Any) -> Any:
    """`x` itself, a pytree: arrays are in the host's memory. Leaves of other kinds get the call.

    >>> mpijax.copy_to_host_async(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    for leaf in tree.tree_leaves(x):
        if hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return x


def print_environment_info(return_string: bool = False) -> str | None:
    """Print the versions and the machine, for bug reports; or return them as text. Starts MPI.

    >>> "mpijax" in mpijax.print_environment_info(return_string=True)
    True
    """

    info = "\n".join(
        [
            f"mpijax: {version.__version__}",
            f"numpy:  {np.__version__}",
            f"python: {sys.version}",
            f"mpi:    {mpi_start.library_version()}",
            f"ranks:  {devices.process_count()}, this is {devices.process_index()}",
            f"system: {platform.platform()}",
        ]
    )
    if return_string:
        return info
    print(info)
    return None
