"""`remat_opt`: the forward rule of a `custom_vjp`, which becomes the function itself if nobody reads the residuals.

Removal of dead code does that. So the first pass of a function under `checkpoint`, which keeps no residuals, runs the
function and not the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Var, eval_jaxpr
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.primitive import Primitive
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.types.typeof import typeof
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_at, batch_jaxpr
from mpijax.transforms.call import call_jaxpr, hoist_tracers, jit_p, plain_call
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.ref_state import values_of
from mpijax.transforms.zeros import Zero


def fwd_or_fun(
    rule: Callable, fun: Callable, name: str, primals: Sequence[Any], perturbed: Sequence[bool]
) -> tuple[list[Any], list[Any], Callable]:
    """`rule(primals, perturbed)`, flat, as one operation if a program is recorded: `fun` without the residuals."""
    if state.trace.recorder() is None:
        return rule(primals, perturbed)
    found: list[Callable] = []

    def with_residuals(*args):
        outs, residuals, bwd = rule(args, perturbed)
        found.append(bwd)
        return [*outs, *residuals]

    avals = [typeof(x) for x in primals]
    # A rule over batches has the axes of its results where the function has them.
    alone, of_fun = _traced(fun, avals)
    whole, of_rule = _traced(with_residuals, avals)
    args = [*of_rule, *of_fun, *primals]
    whole = _with_arguments(whole, len(of_rule), of_fun)
    outs = remat_opt_p.bind(*args, fwd=whole, fun=_with_arguments(alone, 0, of_rule), name=name)
    # Residuals that are arguments are known without the rule.
    given = dict(zip(whole.jaxpr.invars, args, strict=True))
    count = len(alone.out_avals)
    known = [given.get(v) if type(v) is Var else None for v in whole.jaxpr.outvars[count:]]
    residuals = [x if k is None else k for x, k in zip(outs[count:], known, strict=True)]
    return outs[:count], residuals, found[-1]


def _traced(fun: Callable, avals: list[Any]) -> tuple[ClosedJaxpr, list[Any]]:
    """A Jaxpr whose first arguments are the values that the function closes over, and these."""
    jaxpr, consts = trace_to_jaxpr(fun, avals)
    closed, moved = hoist_tracers(jaxpr, consts, lambda _: True)
    return closed, values_of(moved)


def _with_arguments(closed: ClosedJaxpr, at: int, values: Sequence[Any]) -> ClosedJaxpr:
    """The same program with arguments of the types of values at a position, which it does not read."""
    invars, more = closed.jaxpr.invars, [Var(typeof(x)) for x in values]
    return ClosedJaxpr(closed.jaxpr.replace(invars=[*invars[:at], *more, *invars[at:]]), closed.consts)


def _jvp(primals, tangents, *, fwd, fun, name):
    """The derivative of the forward rule, by its operations."""
    closed, nonzero_out = jvp_jaxpr(fwd, tuple(type(t) is not Zero for t in tangents), False)
    outs = call_jaxpr(closed, [*primals, *(t for t in tangents if type(t) is not Zero)], name=name)
    n = len(nonzero_out)
    rest = iter(outs[n:])
    return outs[:n], [next(rest) if nz else Zero.of_primal(p) for p, nz in zip(outs[:n], nonzero_out, strict=True)]


def _not_linear(*_args, **_params):
    raise NotImplementedError("The forward rule of a custom_vjp function is not linear. It cannot be transposed.")


def _batch(axis, args, dims, *, fwd, fun, name):
    moved = [x if d is None else batch_at(x, d, 0, axis) for x, d in zip(args, dims, strict=True)]
    batched = tuple(d is not None for d in dims)
    both = [batch_jaxpr(closed, axis, batched, True)[0] for closed in (fwd, fun)]
    outs = remat_opt_p.bind(*moved, fwd=both[0], fun=both[1], name=name)
    return outs, [0] * len(outs)


def _dce(used: list[bool], eqn: Eqn) -> Eqn:
    fun: ClosedJaxpr = eqn.params["fun"]
    count = len(fun.out_avals)
    if any(used[count:]):
        return eqn
    params = plain_call(fun, eqn.params["name"])
    call = Eqn(jit_p, eqn.invars, eqn.outvars[:count], params, fun.effects, eqn.source)
    assert jit_p.dce is not None
    return jit_p.dce(used[:count], call)


remat_opt_p = Primitive(
    "remat_opt",
    type_rule=lambda *_avals, fwd, **_: fwd.out_avals,
    reference=lambda *args, fwd, **_: eval_jaxpr(fwd.jaxpr, fwd.consts, *args),
    lower=InlineJaxpr("fwd"),
    jvp=_jvp,
    transpose=_not_linear,
    batch=_batch,
    multiple_results=True,
    effects=lambda params: params["fwd"].effects,
    dce=_dce,
    vma=lambda avals, params: None,
    keys=key_reuse.of_program("fwd"),
)
