"""``jax.experimental.key_reuse``: detects PRNG keys that are used twice and would give equal numbers.

Under ``mpijax.debug_key_reuse(True)``, or with the option ``jax_debug_key_reuse``, it is an error to draw with a used
key or to split it. The `KeyReuseError` names the line of the first use. A program that would use a key twice raises it,
too. The check covers typed keys of ``random.key``, but not raw keys of ``random.PRNGKey``. `random.clone` returns a
copy of a key that may be used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.flat import FlatFun, debug_info
from mpijax.transforms.key_reuse import signature_of

__all__ = ["check_key_reuse"]


def check_key_reuse(fun: Callable[..., Any], /, *args: Any) -> None:
    """Trace `fun` for arguments, without running it. Raises KeyReuseError if it uses a key twice.

    >>> def noise(key):
    ...     return mpijax.random.normal(key) + mpijax.random.uniform(key)
    >>> mpijax.experimental.key_reuse.check_key_reuse(noise, mpijax.random.key(0))
    Traceback (most recent call last):
    ...
    mpijax.errors.KeyReuseError: In jit, argument 0 is already consumed: the key used at ...
    """
    leaves, structure = tree.tree_flatten((args, {}))
    info = debug_info("key_reuse", fun, args, {})
    signature_of(trace_to_closed_jaxpr(FlatFun(fun, structure), [typeof(x) for x in leaves], info))
