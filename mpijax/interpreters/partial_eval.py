"""``mpijax.interpreters.partial_eval``: tracers of programs, and dead code."""

from collections.abc import Sequence

from mpijax.core.jaxpr import Jaxpr, dead_code
from mpijax.core.trace import JitTracer as DynamicJaxprTracer

__all__ = ["DynamicJaxprTracer", "dce_jaxpr"]


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """A Jaxpr with only the used results and what they need, and which arguments it still takes.

    instantiate: which arguments to keep in any case.
    """
    pruned, used = dead_code(jaxpr, used_outputs)
    forced = [instantiate] * len(used) if isinstance(instantiate, bool) else list(instantiate)
    kept = [u or f for u, f in zip(used, forced, strict=True)]
    return pruned.replace(invars=[v for v, k in zip(jaxpr.invars, kept, strict=True) if k]), kept
