"""``mpijax.custom_derivatives``: derivatives given by the user, by JAX's names."""

from mpijax.missing import closure_convert, custom_gradient
from mpijax.transforms.custom import custom_jvp, custom_jvp_call_p, custom_vjp, custom_vjp_call_p
from mpijax.transforms.zeros import Zero as SymbolicZero

__all__ = [
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_jvp_call_p",
    "custom_vjp",
    "custom_vjp_call_p",
    "zero_from_primal",
]


def zero_from_primal(x, symbolic_zeros: bool = False):
    """The zero tangent of `x`: symbolic if asked for, else an array."""
    from mpijax.transforms.zeros import instantiate

    zero = SymbolicZero.of_primal(x)
    return zero if symbolic_zeros else instantiate(zero)
