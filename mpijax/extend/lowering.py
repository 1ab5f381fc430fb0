"""``mpijax.extend.lowering``: what a primitive can be to the compiler."""

from mpijax.core.lowering import Decompose, Elementwise, HostCall, Native, NativeCode

__all__ = ["Decompose", "Elementwise", "HostCall", "Native", "NativeCode"]
