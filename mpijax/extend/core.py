"""``mpijax.extend.core``: primitives and Jaxprs for code that defines operations or interprets programs."""

from mpijax.core.avals import ShapedArray
from mpijax.core.effects import Effect, no_effects
from mpijax.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, Literal, Var, jaxpr_as_fun, subjaxprs
from mpijax.core.jaxpr import Eqn as JaxprEqn
from mpijax.core.primitive import Unsupported
from mpijax.extend import primitives
from mpijax.extend.primitive import Primitive

__all__ = [
    "ClosedJaxpr",
    "DropVar",
    "Effect",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Unsupported",
    "Var",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "mapped_aval",
    "no_effects",
    "primitives",
    "subjaxprs",
    "unmapped_aval",
    "valid_jaxtype",
]


def jaxprs_in_params(params):
    """The Jaxprs among the parameters of an equation."""
    return [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in subjaxprs(params)]


def mapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of one example, given that of a batch of `size` along `axis`."""
    if axis is None:
        return aval
    if aval.shape[axis] != size:
        raise ValueError(f"axis {axis} of {aval.str_short()} has not {size} examples")
    return aval.update(shape=aval.shape[:axis] + aval.shape[axis + 1 :])


def unmapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of a batch of `size` along `axis`, given that of one example."""
    return aval if axis is None else aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis:]))


def valid_jaxtype(x) -> bool:
    """Whether a value has a type in programs."""
    from mpijax.core.trace import typeof

    try:
        typeof(x)
    except TypeError:
        return False
    return True
