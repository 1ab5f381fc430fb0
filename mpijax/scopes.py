"""Contexts around tracing, waiting (there is nothing to wait for), and what to put into a bug report."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax import version
from mpijax.core.base import config
from mpijax.core.base.source import callable_name, in_scope, inherited
from mpijax.core.trees import tree
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


class named_scope:
    """A name for the operations inside. It appears beside their source line, in programs and in errors.

    It is a context manager and a decorator. Names of nested scopes are joined by slashes. A function that another
    one calls under `jit` is in the scope of the call. Transformations appear around the scopes of the function that
    they transform: `transpose(jvp(layer))` is the backward pass of `layer`.

    >>> @mpijax.named_scope("layer")
    ... def layer(x):
    ...     with mpijax.named_scope("activation"):
    ...         return jnp.tanh(x)
    >>> str(mpijax.make_jaxpr(layer)(1.0).eqns[0].source_info.name_stack)
    'layer/activation'
    """

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"named_scope name argument must be a string, got {name!r} of type {type(name)}")
        self.name = name

    def __enter__(self) -> None:
        self._entered = in_scope(inherited.scope.extend(self.name))
        self._entered.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self._entered.__exit__(*exc_info)

    def __call__(self, fun: Callable) -> Callable:
        @functools.wraps(fun)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with named_scope(self.name):
                return fun(*args, **kwargs)

        return scoped


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """`fun` in a `named_scope` of its name, or of `name`.

    >>> str(mpijax.make_jaxpr(mpijax.named_call(jnp.square, name="area"))(1.0).eqns[0].source_info.name_stack)
    'area'
    """
    return named_scope(callable_name(fun) if name is None else name)(fun)


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

    With `mpijax.as_jax`, the text also has the versions of JAX and jaxlib that mpijax stands for.

    >>> "mpijax" in mpijax.print_environment_info(return_string=True)
    True
    """
    names = ("jax:    ", "jaxlib: ") if "mpijax.as_jax" in sys.modules else ()
    info = "\n".join(
        [
            *[name + version.jax_version for name in names],
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
