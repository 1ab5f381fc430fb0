"""Collectives with deferred results: `future = lax.psum_start(x, "i")`, ..., `future.done()`.

The compiler starts each exchange when its operands are ready, and waits at the first use of the result. So these are
the ordinary collectives; `done()` documents where a program expects to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mpijax.core.trees import tree
from mpijax.ops.collectives import all_gather, all_to_all, ppermute, psum, psum_scatter


class Future:
    """The result of a started collective; a pytree.

    >>> mpijax.vmap(lambda x: lax.psum_start(x, "i").done(), axis_name="i")(jnp.arange(3))
    Array([3, 3, 3], dtype=int32)
    """

    def __init__(self, value: Any):
        self._value = value

    def done(self) -> Any:
        """The result."""
        return self._value


tree.register_pytree_node(Future, lambda future: ((future._value,), None), lambda _, values: Future(*values))


def _started(collective: Callable) -> Callable[..., Future]:
    @wraps(collective)
    def start(*args: Any, **kwargs: Any) -> Future:
        return Future(collective(*args, **kwargs))

    name = collective.__name__
    start.__name__ = start.__qualname__ = f"{name}_start"
    start.__doc__ = f"""Start `{name}`, with the same arguments. Returns a future; its `done()` returns the result.

    >>> mpijax.vmap(lambda x: lax.{name}_start(x, {_EXAMPLES[name]}).done(), axis_name="i")(jnp.ones((1, 1))).shape
    {"(1, 1, 1)" if name == "all_gather" else "(1,)" if name == "psum_scatter" else "(1, 1)"}
    """
    return start


# Further arguments of each function, after its operand.
_EXAMPLES = {
    "all_gather": '"i"',
    "all_to_all": '"i", 0, 0',
    "ppermute": '"i", [(0, 0)]',
    "psum": '"i"',
    "psum_scatter": '"i"',
}

all_gather_start = _started(all_gather)
all_to_all_start = _started(all_to_all)
ppermute_start = _started(ppermute)
psum_scatter_start = _started(psum_scatter)
psum_start = _started(psum)
