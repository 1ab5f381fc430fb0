"""Defines `remat2`, the primitive of `checkpoint`: a call of a Jaxpr whose derivative recomputes intermediate values.

Differentiation evaluates the function in place. The derivative is another `remat2` call, with `differentiated` set: it
takes the arguments and recomputes the intermediate values before it uses them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from mpijax.core.base import config
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, eval_jaxpr
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.primitive import Primitive
from mpijax.core.tracing.refs import run_on
from mpijax.core.types.abstract import advance
from mpijax.core.types.typeof import typeof
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_jaxpr, leading, move_dim
from mpijax.transforms.call import pruned_call
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.remat_split import split_jaxpr
from mpijax.transforms.residuals import log_kept
from mpijax.transforms.transpose import is_undefined_primal, transpose_jaxpr
from mpijax.transforms.zeros import Zero


def _type_rule(*avals, jaxpr: ClosedJaxpr, **_):
    advance(avals, jaxpr.in_avals)
    return jaxpr.out_avals


def _evaluate(*args, jaxpr: ClosedJaxpr, differentiated: bool, **_):
    if differentiated and config.values.jax_debug_key_reuse:
        with config.debug_key_reuse(False):  # recomputation draws the same numbers on purpose
            return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)
    return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)


def _flags(prevent_cse: bool | tuple[bool, ...], which: Sequence[bool], before: int = 0, after: int = 0):
    """`prevent_cse` for the operands marked in `which`, with `before` and `after` new values around them."""
    if isinstance(prevent_cse, bool):
        return prevent_cse
    kept = (p for p, w in zip(prevent_cse, which, strict=True) if w)
    return (*(True,) * before, *kept, *(True,) * after)


def _nonzero(tangents) -> tuple[bool, ...]:
    return tuple(type(t) is not Zero for t in tangents)


def _given(tangents) -> list[Any]:
    return [t for t in tangents if type(t) is not Zero]


def _with_zeros(primals, tangents, nonzero) -> list[Any]:
    """A tangent for each result; `tangents` has those marked `nonzero`."""
    rest = iter(tangents)
    return [next(rest) if nz else Zero.of_primal(p) for p, nz in zip(primals, nonzero, strict=True)]


def _jvp(primals, tangents, *, jaxpr, prevent_cse, **params):
    closed, nonzero_out = jvp_jaxpr(jaxpr, _nonzero(tangents), False)
    live = _given(tangents)
    cse = _flags(prevent_cse, [True] * len(primals), after=len(live))
    outs = remat_p.bind(*primals, *live, jaxpr=closed, prevent_cse=cse, **params)
    n = len(nonzero_out)
    return outs[:n], _with_zeros(outs[:n], outs[n:], nonzero_out)


def _linearize(trace, primals, tangents, params):
    split = split_jaxpr(params["jaxpr"], _nonzero(tangents), params["policy"])
    outs = eval_jaxpr(split.known.jaxpr, split.known.consts, *primals)
    n = len(split.nonzero_out)
    if not any(split.nonzero_out):
        return outs, [Zero.of_primal(p) for p in outs]
    log_kept([typeof(primals[i]) for i in split.primal_inputs], split.known.jaxpr, n)
    saved, live = outs[n:], _given(tangents)
    used = [i in split.primal_inputs for i in range(len(primals))]
    operands = [*saved, *(primals[i] for i in split.primal_inputs), *(live[i] for i in split.tangent_inputs)]
    cse = _flags(params["prevent_cse"], used, len(saved), len(split.tangent_inputs))
    changed = {"jaxpr": split.staged, "prevent_cse": cse, "differentiated": True}
    linear_outs = remat_p.bind(*operands, **{**params, **changed})
    return outs[:n], _with_zeros(outs[:n], linear_outs, split.nonzero_out)


def _transpose(cts, *args, jaxpr, prevent_cse, **params):
    linear = tuple(is_undefined_primal(x) for x in args)
    closed, nonzero_out, refs = transpose_jaxpr(jaxpr, linear, _nonzero(cts))
    values, live = [x for x in args if not is_undefined_primal(x)], _given(cts)
    cse = _flags(prevent_cse, [not lin for lin in linear], len(refs), len(live))
    outs = iter(run_on(refs, partial(remat_p.bind, jaxpr=closed, prevent_cse=cse, **params), *values, *live))
    flags = iter(nonzero_out)
    return [(next(outs) if next(flags) else Zero(x.aval)) if lin else None for x, lin in zip(args, linear, strict=True)]


def _batch(axis, args, dims, *, jaxpr, **params):
    moved = [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims, strict=True)]
    closed, out_batched = batch_jaxpr(jaxpr, axis, tuple(d is not None for d in dims), False)
    outs = remat_p.bind(*moved, jaxpr=closed, **params)
    return outs, [leading(a) if b else None for a, b in zip(jaxpr.out_avals, out_batched, strict=True)]


def _dce(used: list[bool], eqn: Eqn) -> Eqn:
    closed, used_inputs = pruned_call(eqn.params["jaxpr"], tuple(used))
    if closed is eqn.params["jaxpr"]:
        return eqn
    return eqn.replace(
        invars=[v for v, u in zip(eqn.invars, used_inputs, strict=True) if u],
        outvars=[v for v, u in zip(eqn.outvars, used, strict=True) if u],
        params={**eqn.params, "jaxpr": closed, "prevent_cse": _flags(eqn.params["prevent_cse"], used_inputs)},
        effects=closed.effects,
    )


def _pretty(eqn: Eqn, names):
    """Prints a policy that is a function without its address, as JAX does."""
    policy = re.sub(r"0x[0-9a-f]+", "0xXXXXXXXXXXXX", str(eqn.params["policy"]))
    return sorted({**eqn.params, "policy": policy}.items())


def _is_apart(params: dict[str, Any]) -> bool:
    """Whether values must be recomputed although the compiler could keep them from their first computation."""
    cse = params["prevent_cse"]
    return params["differentiated"] and (cse if isinstance(cse, bool) else any(cse))


def _keys(eqn: Eqn) -> key_reuse.Signature:
    """The signature of a call. Recomputation draws the same numbers on purpose."""
    return key_reuse.NOTHING if eqn.params["differentiated"] else key_reuse.signature_of(eqn.params["jaxpr"])


remat_p = Primitive(
    "remat2",
    type_rule=_type_rule,
    reference=_evaluate,
    lower=InlineJaxpr("jaxpr", apart=_is_apart),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    effects=lambda params: params["jaxpr"].effects,
    dce=_dce,
    linearize=_linearize,
    pretty=_pretty,
    vma=lambda avals, params: None,
    keys=_keys,
)
remat_p.impl = _evaluate
