"""``mpijax.interpreters.partial_eval``: programs of functions, partial evaluation, and dead code."""

from collections.abc import Sequence
from typing import Any

from mpijax import missing as _missing
from mpijax.core.avals import ShapedArray
from mpijax.core.jaxpr import Jaxpr, dead_code
from mpijax.core.trace import JitTracer as DynamicJaxprTracer
from mpijax.core.trace import trace_to_jaxpr
from mpijax.extend.linear_util import WrappedFun
from mpijax.transforms.partial_eval import PartialVal, partially_evaluate

__all__ = ["DynamicJaxprTracer", "PartialVal", "dce_jaxpr", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits"]


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
    """Run a wrapped function of flat arguments as far as they are known; the rest as a program.

    Returns the program of the unknown arguments that computes the unknown results, the results as `PartialVal`s, and
    the values of the program's constants. instantiate: which results to make unknown in any case.

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
    """A Jaxpr with only the used results and what they need, and which arguments it still takes.

    instantiate: which arguments to keep in any case.

    >>> closed = mpijax.make_jaxpr(lambda x, y: (jnp.sin(x), jnp.cos(y)))(1.0, 2.0)
    >>> mpijax.interpreters.partial_eval.dce_jaxpr(closed.jaxpr, [True, False])
    ({ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }, [True, False])
    """
    pruned, used = dead_code(jaxpr, used_outputs)
    forced = [instantiate] * len(used) if isinstance(instantiate, bool) else list(instantiate)
    kept = [u or f for u, f in zip(used, forced, strict=True)]
    return pruned.replace(invars=[v for v, k in zip(jaxpr.invars, kept, strict=True) if k]), kept


def __getattr__(name: str):
    raise _missing.error(__name__, name)
