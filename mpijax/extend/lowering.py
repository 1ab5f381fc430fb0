"""``mpijax.extend.lowering``: what a primitive can be to the compiler.

`on_floats(b, fun, *scalars)` writes the rule of an `Elementwise` with arithmetic: `fun` gets scalar expressions.
"""

from mpijax import missing as _missing
from mpijax.core.lowering import Decompose, Elementwise, HostCall, Native, NativeCode
from mpijax.scalar.expr import on_floats

__all__ = ["Decompose", "Elementwise", "HostCall", "Native", "NativeCode", "on_floats"]


def __getattr__(name: str):
    raise _missing.error(__name__, name)
