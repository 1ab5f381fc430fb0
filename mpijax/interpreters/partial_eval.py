"""``mpijax.interpreters.partial_eval``: traces functions to programs, partial evaluation, and dead code elimination."""

from collections.abc import Callable, Sequence
from typing import Any

from mpijax import missing as _missing
from mpijax.core.programs.jaxpr import Eqn as JaxprEqn
from mpijax.core.programs.jaxpr import Jaxpr, dead_code
from mpijax.core.tracing.jaxpr_trace import JitTracer as DynamicJaxprTracer
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.effects import pins
from mpijax.extend.linear_util import WrappedFun
from mpijax.extend.rules import OptionalRules
from mpijax.transforms.partial_eval import PartialVal, partially_evaluate

__all__ = [
    "DynamicJaxprTracer",
    "PartialVal",
    "dce_jaxpr",
    "dce_jaxpr_consts",
    "dce_rules",
    "trace_to_jaxpr_dynamic",
    "trace_to_jaxpr_nounits",
]


def trace_to_jaxpr_dynamic(
    fun: WrappedFun, in_avals: Sequence[ShapedArray]
) -> tuple[Jaxpr, list[ShapedArray], list[Any]]:
    """The program of a wrapped function of flat arguments, the types of its results, the values of its constants.

    >>> from mpijax.extend import linear_util
    >>> f = linear_util.wrap_init(lambda x: [x * x])
    >>> mpijax.interpreters.partial_eval.trace_to_jaxpr_dynamic(f, [mpijax.typeof(jnp.ones(3))])[0]
    { lambda ; a:f32[3]. let b:f32[3] = mul a a in (b,) }
    """
    jaxpr, consts = trace_to_jaxpr(fun.call_wrapped, in_avals, fun.debug_info)
    return jaxpr, jaxpr.out_avals, consts


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """Run a wrapped function of flat arguments as far as they are known; records the rest as a program.

    Returns the program from the unknown arguments to the unknown results, the results as `PartialVal`s, and the values
    of the program's constants. instantiate: results to make unknown in any case.

    >>> from mpijax.extend import linear_util
    >>> pe = mpijax.interpreters.partial_eval
    >>> unknown = pe.PartialVal((mpijax.typeof(jnp.float32(0)), None))
    >>> f = linear_util.wrap_init(lambda x, y: [x * y])
    >>> pe.trace_to_jaxpr_nounits(f, [pe.PartialVal((None, jnp.float32(3))), unknown])[0]
    { lambda a:f32[]; b:f32[]. let c:f32[] = mul a b in (c,) }
    """
    return partially_evaluate(fun.call_wrapped, pvals, instantiate, fun.debug_info)


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """A Jaxpr reduced to the used results and the equations they need, and flags for the arguments it still takes.

    instantiate: arguments to keep in any case.

    >>> closed = mpijax.make_jaxpr(lambda x, y: (jnp.sin(x), jnp.cos(y)))(1.0, 2.0)
    >>> mpijax.interpreters.partial_eval.dce_jaxpr(closed.jaxpr, [True, False])
    ({ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }, [True, False])
    """
    pruned, used = dead_code(jaxpr, used_outputs)
    forced = [instantiate] * len(used) if isinstance(instantiate, bool) else list(instantiate)
    kept = [u or f for u, f in zip(used, forced, strict=True)]
    return pruned.replace(invars=[v for v, k in zip(jaxpr.invars, kept, strict=True) if k]), kept


def dce_jaxpr_consts(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool], list[bool]]:
    """Like `dce_jaxpr`, but also removes constants: the Jaxpr, flags for its constants, and flags for its arguments.

    instantiate: constants and arguments, in this order, to keep in any case.

    >>> table = jnp.arange(3.0)
    >>> closed = mpijax.make_jaxpr(lambda x, y: (x, table * y))(1.0, 2.0)
    >>> mpijax.interpreters.partial_eval.dce_jaxpr_consts(closed.jaxpr, [True, False])
    ({ lambda ; a:f32[]. let  in (a,) }, [False], [True, False])
    """
    count = len(jaxpr.constvars)
    together = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    pruned, used = dce_jaxpr(together, used_outputs, instantiate)
    kept = sum(used[:count])
    return pruned.replace(constvars=pruned.invars[:kept], invars=pruned.invars[kept:]), used[:count], used[count:]


def _as_slot(rule: Callable) -> Callable:
    """Converts a rule in JAX's form, which also returns the used operands; these follow from the equation."""

    def call(used_outputs: Sequence[bool], eqn: JaxprEqn) -> JaxprEqn | None:
        if not any(used_outputs) and not pins(eqn.effects):
            return None
        _, new = rule(list(used_outputs), eqn)
        if new is not None and len(new.outvars) != len(eqn.outvars):
            wanted = [v for v, used in zip(eqn.outvars, used_outputs, strict=True) if used]
            if list(new.outvars) != wanted:
                raise ValueError(f"the dce rule of {eqn.primitive} must return an equation with the used results only")
        return new

    return call


def _as_jaxs(rule: Callable) -> Callable:
    """Converts a slot's rule to JAX's form, which also returns flags for the used operands."""

    def call(used_outputs: Sequence[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
        new = rule(list(used_outputs), eqn)
        left = set() if new is None else {id(v) for v in new.invars}
        return [id(v) in left for v in eqn.invars], new

    return call


dce_rules = OptionalRules("dce", _as_slot, _as_jaxs)


def __getattr__(name: str):
    raise _missing.error(__name__, name)
