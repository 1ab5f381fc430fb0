"""``mpijax.extend.core.primitives``: mpijax's own primitives under JAX's names, such as `add_p`."""

from typing import Any

from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.rules.registry import registry
from mpijax.extend.linear_util import WrappedFun
from mpijax.extend.primitive import Primitive

# JAX's names that differ from the name of the primitive.
_NAMES = {
    "add_jaxvals_p": "add_any",
    "linear_solve_p": "custom_linear_solve",
    "remat_p": "remat2",
    "scatter_add_p": "scatter-add",
    "scatter_mul_p": "scatter-mul",
    "scatter_sub_p": "scatter-sub",
}


class CallPrimitive(Primitive):
    """Calls a wrapped function; a program records the operations of the function instead of the call.

    As in JAX, pass the function as `subfuns=(fun,)`, or before the arguments.

    >>> from mpijax.extend import core, linear_util
    >>> core.CallPrimitive("my_call").bind(3, subfuns=(linear_util.wrap_init(lambda x: [x + 1]),))
    [4]
    """

    def __init__(self, name: str):
        super().__init__(name, multiple_results=True)

    def bind(self, *args: Any, subfuns: tuple[WrappedFun, ...] | None = None, **params: Any) -> list[Any]:
        """The results of the function. Raises TypeError without one."""
        if subfuns is None:
            if not args or not isinstance(args[0], WrappedFun):
                raise TypeError(
                    f"{self.name}.bind: expected subfuns=(wrapped function,), or a wrapped function as first argument"
                )
            subfuns, args = args[:1], args[1:]
        [fun] = subfuns
        return call_impl(fun, *args, **params)


def call_impl(f: WrappedFun, *args: Any, **_params: Any) -> list[Any]:
    """The results of a wrapped function; ignores the parameters of the call.

    >>> from mpijax.extend import core, linear_util
    >>> core.call_impl(linear_util.wrap_init(lambda x: [x + 1]), 3)
    [4]
    """
    return f.call_wrapped(*args)


class _ClosedCall(Primitive):
    """Like `CallPrimitive`, but calls a Jaxpr."""

    def bind(self, *args: Any, call_jaxpr: ClosedJaxpr, **_params: Any) -> list[Any]:  # type: ignore[override]
        return eval_jaxpr(call_jaxpr.jaxpr, call_jaxpr.consts, *args)


call_p = CallPrimitive("call")
closed_call_p = _ClosedCall("closed_call", multiple_results=True)


def __getattr__(name: str) -> Any:
    key = _NAMES.get(name, name.removesuffix("_p"))
    if name.endswith("_p") and not name.startswith("_"):
        for spelling in (key, f"{key}_"):
            try:
                return registry[spelling]
            except KeyError:
                continue
    raise AttributeError(f"mpijax does not have the primitive {name!r}")
