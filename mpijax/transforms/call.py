"""Defines the primitive `jit`, a call of a Jaxpr, with its rules."""

from __future__ import annotations

from functools import partial
from typing import Any

from mpijax.core.base import provided
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, eval_jaxpr, without_dead_code
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.primitive import Primitive
from mpijax.core.tracing.refs import Ref, run_on
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.abstract import advance
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_jaxpr_in_place
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.linearize import linearize_jaxpr
from mpijax.transforms.transpose import is_undefined_primal, transpose_jaxpr
from mpijax.transforms.zeros import Zero


def _type_rule(*avals, jaxpr: ClosedJaxpr, **_):
    advance(avals, jaxpr.in_avals)
    return jaxpr.out_avals


def _reference(*args, jaxpr: ClosedJaxpr, **_):
    return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)


def _without_donation(params: dict[str, Any], jaxpr: ClosedJaxpr) -> dict[str, Any]:
    """Parameters for calling another Jaxpr under the same name, without donation."""
    return {**params, "jaxpr": jaxpr, "donated_invars": (False,) * len(jaxpr.in_avals)}


def _jvp(primals, tangents, **params):
    nonzero = tuple(type(t) is not Zero for t in tangents)
    closed, nonzero_out = jvp_jaxpr(params["jaxpr"], nonzero, False)
    args = [*primals, *(t for t in tangents if type(t) is not Zero)]
    outs = jit_p.bind(*args, **_without_donation(params, closed))
    n = len(nonzero_out)
    rest = iter(outs[n:])
    primal_out = outs[:n]
    return primal_out, [next(rest) if nz else Zero.of_primal(p) for p, nz in zip(primal_out, nonzero_out, strict=True)]


def _linearize(trace, primals, tangents, params):
    nonzero = tuple(type(t) is not Zero for t in tangents)
    closed = params["jaxpr"]
    split = linearize_jaxpr(closed, nonzero) if trace.backward else linearize_jaxpr(closed, nonzero, False, True, False)
    outs = jit_p.bind(*primals, **_without_donation(params, split.primal))
    n = len(split.nonzero_out)
    returned = iter(outs[n:])
    residuals = [next(returned) if i is None else primals[i] for i in split.forwarded]
    live = [t for t in tangents if type(t) is not Zero]
    linear_outs = iter(
        trace.bind_linear(jit_p, [*residuals, *live], _without_donation(params, split.linear))
        if any(split.nonzero_out) or split.linear.effects
        else ()
    )
    primal_out = outs[:n]
    out_tangents = [
        next(linear_outs) if nz else Zero.of_primal(p) for p, nz in zip(primal_out, split.nonzero_out, strict=True)
    ]
    return primal_out, out_tangents


def _transpose(cts, *args, **params):
    linear = tuple(is_undefined_primal(x) for x in args)
    nonzero = tuple(type(ct) is not Zero for ct in cts)
    closed, nonzero_out, refs = transpose_jaxpr(params["jaxpr"], linear, nonzero)
    values = [x for x in args if not is_undefined_primal(x)]
    live = [ct for ct in cts if type(ct) is not Zero]
    outs = iter(run_on(refs, partial(jit_p.bind, **_without_donation(params, closed)), *values, *live))
    flags = iter(nonzero_out)
    return [(next(outs) if next(flags) else Zero(x.aval)) if lin else None for x, lin in zip(args, linear, strict=True)]


def _batch(axis, args, dims, **params):
    closed, out_dims = batch_jaxpr_in_place(params["jaxpr"], axis, tuple(dims))
    return jit_p.bind(*args, **_without_donation(params, closed)), out_dims


@memo_on_jaxpr
def _pruned(closed: ClosedJaxpr, used: tuple[bool, ...]) -> tuple[ClosedJaxpr, list[bool]] | None:
    """Like `pruned_call`, but None if there is nothing to remove: the cached result must not reference its own key."""
    jaxpr, consts, used_inputs = without_dead_code(closed.jaxpr, closed.consts, used)
    return None if jaxpr is closed.jaxpr else (ClosedJaxpr(jaxpr, consts), used_inputs)


def pruned_call(closed: ClosedJaxpr, used: tuple[bool, ...]) -> tuple[ClosedJaxpr, list[bool]]:
    """A called Jaxpr without equations that only unused results need, and a flag for each argument: whether it is read.

    If there is nothing to remove, returns the same Jaxpr. So nested calls are searched once, and not once for each
    enclosing call.
    """
    return _pruned(closed, used) or (closed, [True] * len(closed.jaxpr.invars))


def _dce(used: list[bool], eqn: Eqn) -> Eqn:
    closed, used_inputs = pruned_call(eqn.params["jaxpr"], tuple(used))
    if closed is eqn.params["jaxpr"] and not any(eqn.params["donated_invars"]):
        return eqn
    return Eqn(
        eqn.primitive,
        [v for v, u in zip(eqn.invars, used_inputs, strict=True) if u],
        [v for v, u in zip(eqn.outvars, used, strict=True) if u],
        _without_donation(eqn.params, closed),
        closed.effects,
        eqn.source,
    )


_DEFAULTS = {"inline": False, "keep_unused": False}


def _pretty(eqn: Eqn, names):
    inner: Jaxpr = eqn.params["jaxpr"].jaxpr
    if id(inner) not in names.shared:
        names.borrow(inner.invars, eqn.invars)
        names.borrow(inner.outvars, eqn.outvars)
    shown = {"jaxpr": eqn.params["jaxpr"]}
    if any(eqn.params["donated_invars"]):
        shown["donated_invars"] = eqn.params["donated_invars"]
    for key, default in _DEFAULTS.items():
        if key != "inline" and eqn.params[key] != default:
            shown[key] = eqn.params[key]
    return [("name", eqn.params["name"]), *sorted(shown.items())]


class _Jit(Primitive):
    """The call primitive. A recorder inlines a call whose parameter `inline` is set."""

    def bind(self, *args, **params):
        if params["inline"] and state.trace.records(args):
            closed = params["jaxpr"]
            outs = eval_jaxpr(closed.jaxpr, closed.consts, *args)
            # A result may be a literal of the Jaxpr.
            recorder = state.trace.recorder()
            return [x if recorder is None or isinstance(x, Tracer) else recorder.lift(x) for x in outs]
        return super().bind(*args, **params)


jit_p = _Jit(
    "jit",
    type_rule=_type_rule,
    reference=_reference,
    lower=InlineJaxpr("jaxpr"),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    effects=lambda params: params["jaxpr"].effects,
    dce=_dce,
    linearize=_linearize,
    pretty=_pretty,
    vma=lambda avals, params: None,
    keys=key_reuse.of_program("jaxpr"),
    origin=lambda params: f"output of jitted function '{params['name']}'",
)
jit_p.impl = lambda *args, **params: provided.run_call(*args, **params)


def call_jaxpr(closed: ClosedJaxpr, args, *, name: str, inline: bool = False, keep_unused=False, donated=None):
    """Bind `jit` to flat arguments. The caller has already turned constants that are tracers into leading arguments."""
    return jit_p.bind(
        *args,
        jaxpr=closed,
        name=name,
        inline=inline,
        keep_unused=keep_unused,
        donated_invars=donated or (False,) * len(args),
    )


def plain_call(closed: ClosedJaxpr, name: str) -> dict[str, Any]:
    """The parameters of a call without options."""
    return _without_donation({**_DEFAULTS, "name": name}, closed)


def hoist_tracers(jaxpr: Jaxpr, consts, is_tracer) -> tuple[ClosedJaxpr, list[Any]]:
    """Turn constants that are tracers or mutable array references into leading arguments. Returns their values too."""
    traced = [type(c) is Ref or is_tracer(c) for c in consts]
    moved = [c for c, t in zip(consts, traced, strict=True) if t]
    if not moved:
        return ClosedJaxpr(jaxpr, consts), []
    new_args = [v for v, t in zip(jaxpr.constvars, traced, strict=True) if t]
    kept = [v for v, t in zip(jaxpr.constvars, traced, strict=True) if not t]
    hoisted = jaxpr.replace(constvars=kept, invars=new_args + jaxpr.invars)
    return ClosedJaxpr(hoisted, [c for c, t in zip(consts, traced, strict=True) if not t]), moved
