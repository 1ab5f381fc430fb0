"""``mpijax.interpreters.mlir``: lowerings of primitives.

    register_lowering(p, lower_fun(fun, multiple_results=False))

mpijax does not use MLIR. A lowering is a function of `mpijax.numpy` and `mpijax.lax` operations, which is traced and
compiled in place of the primitive, or a record of `mpijax.extend.lowering`. A rule in JAX's form,
`rule(context, *operands, **params) -> results`, works if it takes its results from `lower_fun(...)(context, ...)` and
`emit_python_callback`; its operands are traced arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar, NoReturn

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Decompose, Elementwise, HostCall, Native
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.core.types.typeof import typeof
from mpijax.extend.primitive import Primitive, has_open_slots
from mpijax.ops.callbacks.host import io_callback, pure_callback

__all__ = ["LoweringRuleContext", "ModuleContext", "emit_python_callback", "lower_fun", "register_lowering"]

_INSTEAD = (
    "Use mlir.lower_fun(a function of mpijax.numpy operations). That function may call mpijax.numba_call (a numba "
    "kernel), mpijax.ffi.ffi_call (a C function) or mpijax.pure_callback (Python)."
)


@dataclass(frozen=True)
class TraceableLowering:
    """The result of `lower_fun`. In a rule in JAX's form, `lowering(context, *operands, **params)` is the results."""

    fun: Callable
    multiple_results: bool

    def __call__(self, context: Any, /, *args: Any, **params: Any) -> list[Any]:
        outs = self.fun(*args, **params)
        return list(outs) if self.multiple_results else [outs]


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
    if not has_open_slots(prim):
        raise TypeError(
            f"register_lowering: expected a primitive of mpijax.extend.core.Primitive, got {prim!r}. The lowerings of "
            "mpijax's own primitives cannot be changed."
        )
    if platform not in (None, "cpu"):
        return
    if isinstance(rule, TraceableLowering):
        prim.lower = Decompose(functools.wraps(rule.fun)(functools.partial(_run_function, prim, rule)))
    elif isinstance(rule, (Decompose, Elementwise, HostCall, Native)):
        prim.lower = rule
    elif callable(rule):
        prim.lower = Decompose(functools.partial(_run_rule, prim, rule))
    else:
        raise TypeError(f"register_lowering: the lowering of {prim} must be a result of lower_fun, got {rule!r}")


class ModuleContext:
    """What a rule in JAX's form learns about the program: it runs on CPUs.

    >>> mpijax.interpreters.mlir.ModuleContext().platforms
    ('cpu',)
    """

    platforms: ClassVar[tuple[str, ...]] = ("cpu",)

    def add_keepalive(self, keepalive: Any) -> None:
        """Accepted; programs keep the functions that they call alive."""


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
    module_context: ModuleContext = field(default_factory=ModuleContext)


def emit_python_callback(
    ctx: LoweringRuleContext,
    callback: Callable,
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    returns_token: bool = True,
    partitioned: bool = False,
    sharding: Any = None,
) -> tuple[tuple[Any, ...], Any, None]:
    """A call of Python in a rule in JAX's form: the results, the token, and None for what to keep alive.

    Args:
      callback: receives the operands as arrays and returns a sequence of arrays.
      operands, result_avals: the operands of the rule, and the types of the results.
      has_side_effect: whether the program makes the call even if it does not use the results.
      ctx, token, operand_avals, returns_token, partitioned, sharding: accepted, without effect.

    >>> from mpijax.interpreters import mlir
    >>> x = jnp.arange(3.0)
    >>> a = mpijax.typeof(x)
    >>> [out], _, _ = mlir.emit_python_callback(None, lambda x: [2 * x], None, [x], [a], [a], has_side_effect=False)
    >>> out
    Array([0., 2., 4.], dtype=float32)
    """
    call = io_callback if has_side_effect else pure_callback
    types = tuple(ShapeDtypeStruct(a.shape, a.dtype) for a in result_avals)
    return call(lambda *arrays: tuple(callback(*arrays)), types, *operands), token, None


def _run_rule(prim: Primitive, rule: Callable, /, *args: Any, **params: Any) -> Any:
    """The results of a rule in JAX's form; raises NotImplementedError if it builds MLIR."""
    declared = _declared(prim, args, params)
    try:
        outs = list(rule(LoweringRuleContext(prim, [typeof(x) for x in args], declared), *args, **params))
        found = list(map(typeof, outs))
    except Exception as error:
        raise NotImplementedError(
            f"The lowering of {prim}, {rule!r}, generates MLIR for XLA, which mpijax does not use. {_INSTEAD}"
        ) from error
    return _checked(prim, outs, found, declared)


def _run_function(prim: Primitive, rule: TraceableLowering, /, *args: Any, **params: Any) -> Any:
    """The results of the function of `lower_fun`."""
    outs = rule(None, *args, **params)
    return _checked(prim, outs, list(map(typeof, outs)), _declared(prim, args, params))


def _declared(prim: Primitive, args: Sequence[Any], params: dict) -> list[Any]:
    """The types of the results by abstract evaluation."""
    declared = prim.type_rule(*map(typeof, args), **params)
    return list(declared) if prim.multiple_results else [declared]


def _checked(prim: Primitive, outs: list[Any], found: list[Any], declared: list[Any]) -> Any:
    """The results of a lowering; raises TypeError if their types are not those of abstract evaluation."""
    if [(a.shape, a.dtype) for a in found] != [(a.shape, a.dtype) for a in declared]:
        shown = [", ".join(a.str_short(True) for a in avals) for avals in (found, declared)]
        raise TypeError(
            f"The lowering of {prim} returns {shown[0]}, but its abstract evaluation returns {shown[1]}. Shapes and "
            "dtypes must be equal."
        )
    return outs if prim.multiple_results else outs[0]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"mpijax.interpreters.mlir has no {name!r}: mpijax does not use MLIR. {_INSTEAD}")
