"""``mpijax.extend.lowering``: lowering records, which define a primitive for the compiler.

`on_floats(b, fun, *scalars)` writes the rule of an `Elementwise` as arithmetic: `fun` receives scalar expressions.
A `Structural` moves elements by an index map, which is evaluated where its result is read.
"""

from mpijax import missing as _missing
from mpijax.core.rules.lowering import Decompose, Elementwise, HostCall, Native, NativeCode, Structural, ViewKind
from mpijax.scalar.expr import on_floats

__all__ = ["Decompose", "Elementwise", "HostCall", "Native", "NativeCode", "Structural", "ViewKind", "on_floats"]


def __getattr__(name: str):
    raise _missing.error(__name__, name)
