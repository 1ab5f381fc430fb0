"""Lists the values of a function's evaluation that its derivative keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpijax.core.base import config
from mpijax.core.programs.jaxpr import Eqn, Jaxpr, Literal
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.transforms.flat import FlatFun, debug_info, parameter_names
from mpijax.transforms.linearize import linearize_flat

_logger = logging.getLogger(__name__)


def saved_residuals(f: Callable, *args: Any, **kwargs: Any) -> list[tuple[ShapedArray, str]]:
    """The type and origin of each value that reverse mode keeps from evaluating `f`, without computing anything.

    >>> [str(aval) for aval, origin in mpijax.ad_checkpoint.saved_residuals(lambda x: x * x * x, jnp.ones(3))]
    ['float32[3]', 'float32[3]']
    """
    leaves, in_tree = tree.tree_flatten((args, kwargs))
    flat = FlatFun(f, in_tree)

    def residuals(*xs):
        return linearize_flat(flat, xs)[1].residuals

    avals = [typeof(x) for x in leaves]
    jaxpr, _ = trace_to_jaxpr(residuals, avals, debug_info("saved_residuals", f, args, kwargs))
    return list(_described(jaxpr, parameter_names(f, args, kwargs)))


def print_saved_residuals(f: Callable, *args: Any, **kwargs: Any) -> None:
    """Print the values that reverse mode keeps from evaluating `f`, one per line.

    >>> mpijax.ad_checkpoint.print_saved_residuals(lambda x: jnp.sin(x), 1.0)
    f32[] output of cos from ...:1 (<lambda>)
    """
    for aval, source in saved_residuals(f, *args, **kwargs):
        print(f"{aval.str_short(short_dtypes=True)} {source}")


def log_kept(kept: Sequence[ShapedArray], known: Jaxpr, count: int) -> None:
    """Log the values that `checkpoint` keeps: arguments, and the results of `known` after the first `count`.

    As a warning with the option `jax_log_checkpoint_residuals`, else for debugging.
    """
    level = logging.WARNING if config.log_checkpoint_residuals.value else logging.DEBUG
    if not _logger.isEnabledFor(level):
        return
    values = list(_described(known.replace(outvars=known.outvars[count:]), [""] * len(known.invars)))
    parts = []
    if kept:
        parts.append("\n".join(["saving inputs with shapes:", *(f"  {a.str_short()}" for a in kept)]))
    if values:
        parts.append("\n".join(["saving these intermediates:", *(f"  {a.str_short()} from {s}" for a, s in values)]))
    _logger.log(level, "remat-decorated function %s", "\nand ".join(parts))


def _described(jaxpr: Jaxpr, names: Sequence[str]) -> Iterator[tuple[ShapedArray, str]]:
    for x in jaxpr.outvars:
        if type(x) is Literal:
            yield x.aval, "from a literal"
    kept = {v for v in jaxpr.outvars if type(v) is not Literal}
    for v in jaxpr.constvars:
        if v in kept:
            yield v.aval, "from a constant"
    for v, name in zip(jaxpr.invars, names, strict=True):
        if v in kept:
            yield v.aval, f"from the argument {name}"
    for eqn in jaxpr.eqns:
        for v in eqn.outvars:
            if v in kept:
                yield v.aval, _origin(eqn)


def _origin(eqn: Eqn) -> str:
    primitive = eqn.primitive
    what = f"output of {primitive.name}" if primitive.origin is None else primitive.origin(eqn.params)
    return f"{what} from {eqn.source}"
