"""``mpijax.interpreters.mlir``: lowerings of primitives.

    register_lowering(p, lower_fun(fun, multiple_results=False))

mpijax does not use MLIR. A lowering is a function of `mpijax.numpy` and `mpijax.lax` operations, which is traced and
compiled in place of the primitive, or a record of `mpijax.extend.lowering`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.lowering import Decompose, Elementwise, HostCall, Native
from mpijax.core.trace import typeof
from mpijax.extend.primitive import Primitive

__all__ = ["LoweringRuleContext", "lower_fun", "register_lowering"]

_INSTEAD = (
    "Give mlir.lower_fun(a function of mpijax.numpy operations). For code of your own use mpijax.numba_call (a numba "
    "kernel) or mpijax.ffi.ffi_call (a C function) in that function, or mpijax.pure_callback for Python."
)


@dataclass(frozen=True)
class TraceableLowering:
    """The result of `lower_fun`."""

    fun: Callable
    multiple_results: bool

    def __call__(self, *_args: Any, **_params: Any) -> NoReturn:
        raise TypeError(f"what lower_fun makes is for register_lowering; call {self.fun!r} itself")


def lower_fun(fun: Callable, multiple_results: bool = True) -> TraceableLowering:
    """A lowering from a function of traced arrays, `fun(*args, **params)`.

    Args:
      multiple_results: whether `fun` returns a sequence; False for one array.

    >>> callable(mpijax.interpreters.mlir.lower_fun(lambda x: 2 * x, multiple_results=False).fun)
    True
    """
    if not callable(fun):
        raise TypeError(f"lower_fun takes a function, got {fun!r}")
    return TraceableLowering(fun, multiple_results)


def register_lowering(
    prim: Primitive, rule: Any, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> None:
    """Set the lowering of a primitive.

    Args:
      prim: made by `mpijax.extend.core.Primitive`.
      rule: the result of `lower_fun`, or a record of `mpijax.extend.lowering`.
      platform: None or "cpu"; lowerings for other platforms are accepted, and never used.
      inline, cacheable: accepted; the function is always inlined.

    A rule `f(context, *operands, **params)` may be written for JAX. Its operands are traced arrays, and it returns
    arrays: operands, or results of the elementwise operations of `jax._src.lib.mlir.dialects.hlo`. A rule that builds
    other MLIR is accepted, but running the primitive raises NotImplementedError.

    >>> from mpijax.extend.core import Primitive
    >>> double_p = Primitive("doubled_by_a_lowering")
    >>> shape_of_result = double_p.def_abstract_eval(lambda x: x)
    >>> rule = mpijax.interpreters.mlir.lower_fun(lambda x: 2 * x, multiple_results=False)
    >>> mpijax.interpreters.mlir.register_lowering(double_p, rule)
    >>> mpijax.jit(double_p.bind)(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """
    if not isinstance(prim, Primitive):
        raise TypeError(
            f"register_lowering: {prim!r} is not made by mpijax.extend.core.Primitive: the lowerings of mpijax's own "
            "primitives stay as they are."
        )
    if platform not in (None, "cpu"):
        return
    if isinstance(rule, TraceableLowering):
        prim.lower = Decompose(_checked(prim, rule))
    elif isinstance(rule, (Decompose, Elementwise, HostCall, Native)):
        prim.lower = rule
    elif callable(rule):
        prim.lower = Decompose(functools.partial(_run_rule, prim, rule))
    else:
        raise TypeError(f"register_lowering: a lowering of {prim} is what lower_fun returns, got {rule!r}")


@dataclass(frozen=True)
class LoweringRuleContext:
    """The first argument of a lowering: the primitive, and the types of operands and results.

    >>> from mpijax.interpreters import mlir
    >>> aval = mpijax.typeof(jnp.ones(2))
    >>> mlir.LoweringRuleContext(lax.sin_p, [aval], [aval]).avals_in
    [ShapedArray(float32[2])]
    """

    primitive: Primitive
    avals_in: Sequence[Any]
    avals_out: Sequence[Any]


def _run_rule(prim: Primitive, rule: Callable, *args: Any, **params: Any) -> Any:
    """The result of a lowering written for JAX that returns arrays."""
    declared = prim.type_rule(*map(typeof, args), **params)
    avals = list(declared) if prim.multiple_results else [declared]
    try:
        outs = list(rule(LoweringRuleContext(prim, [typeof(x) for x in args], avals), *args, **params))
        found = list(map(typeof, outs))
    except Exception as error:
        raise _makes_mlir(prim, rule) from error
    _check(prim, found, avals)
    return outs if prim.multiple_results else outs[0]


def _makes_mlir(prim: Primitive, rule: Callable) -> NotImplementedError:
    return NotImplementedError(
        f"the lowering of {prim}, {rule!r}, makes MLIR for XLA, and mpijax has a compiler of its own. {_INSTEAD}"
    )


def _checked(prim: Primitive, rule: TraceableLowering) -> Callable:
    """The function; it must return the types that abstract evaluation gives."""

    @functools.wraps(rule.fun)
    def lowered(*args: Any, **params: Any) -> Any:
        outs = rule.fun(*args, **params)
        outs = list(outs) if rule.multiple_results else [outs]
        declared = prim.type_rule(*map(typeof, args), **params)
        _check(prim, list(map(typeof, outs)), list(declared) if prim.multiple_results else [declared])
        return outs if prim.multiple_results else outs[0]

    return lowered


def _check(prim: Primitive, found: list[Any], declared: list[Any]) -> None:
    if [(a.shape, a.dtype) for a in found] != [(a.shape, a.dtype) for a in declared]:
        shown = [", ".join(a.str_short() for a in avals) for avals in (found, declared)]
        raise TypeError(
            f"the lowering of {prim} returns {shown[0]}, and its abstract evaluation says {shown[1]}. Both must be "
            "of the same shapes and dtypes."
        )


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"mpijax.interpreters.mlir has no {name!r}: there is no MLIR here. {_INSTEAD}")
