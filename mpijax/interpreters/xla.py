"""``mpijax.interpreters.xla``: evaluation of primitives outside programs."""

from typing import Any

from mpijax import missing as _missing
from mpijax.core.rules.primitive import Primitive
from mpijax.core.tracing.trace import evaluate
from mpijax.core.types.foreign import canonicalize_dtype_handlers

__all__ = ["apply_primitive", "canonicalize_dtype_handlers"]


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """Run a primitive on arrays, as a program from its lowering. `p.def_impl(partial(apply_primitive, p))`.

    >>> mpijax.interpreters.xla.apply_primitive(lax.sin_p, jnp.zeros(2), accuracy=None)
    Array([0., 0.], dtype=float32)
    """
    return evaluate(prim, args, params)


def __getattr__(name: str):
    raise _missing.error(__name__, name)
