"""The primitive `shard_map` and its rules, and the types of shards."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mpijax.core.base import config
from mpijax.core.base.errors import JaxprTypeError
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Var, eval_jaxpr, without_dead_code
from mpijax.core.rules.lowering import Partitioned
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.context import in_types, unshard_aval
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.checks import agree
from mpijax.core.tracing.jaxpr_trace import refs_refused, trace_to_closed_jaxpr
from mpijax.core.tracing.trace import EVAL, examples_over, named_axes
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.effects import NamedAxisEffect, communication
from mpijax.core.types.typeof import typeof
from mpijax.ops.control_flow.kept import Twice, keep_in_body
from mpijax.runtime.arrays.array import rewrap
from mpijax.spmd.ranked_residuals import with_ranked_residuals
from mpijax.spmd.shard_map_parts import with_parts_as_residuals
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import AxisData, batch_jaxpr, move_dim
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.linearize import linearize_jaxpr
from mpijax.transforms.transpose import is_undefined_primal, transpose_jaxpr
from mpijax.transforms.zeros import Zero

P = PartitionSpec


# ---------------------------------------------------------------- types


def _type_rule(*avals, jaxpr: ClosedJaxpr, mesh: Mesh, in_specs, out_specs, newly_manual_axes, **_):
    whole = [
        a.update(shape=unshard_aval(mesh, s, a.update(split=None), newly_manual_axes).shape)
        for s, a in zip(in_specs, jaxpr.in_avals, strict=True)
    ]
    if not agree(whole, avals):
        raise JaxprTypeError(f"shard_map: the body takes shards of {whole}, but its operands are {avals}")
    return [unshard_aval(mesh, s, a, newly_manual_axes) for s, a in zip(out_specs, jaxpr.out_avals, strict=True)]


def inside(params):
    """The scope of the body: named axes, and the axes over which values may vary."""
    return scope(params["mesh"], params["newly_manual_axes"], params["check_vma"])


def scope(mesh: Mesh, names: frozenset, check_vma: bool):
    sizes = {n: s for n, s in mesh.shape.items() if n in names}
    return named_axes(sizes, state.manual_axes | in_types(names, mesh) if check_vma else state.manual_axes, mesh)


def _rebind(args, params, jaxpr: ClosedJaxpr, in_specs, out_specs):
    return shard_map_p.bind(
        *args, **{**params, "jaxpr": jaxpr, "in_specs": tuple(in_specs), "out_specs": tuple(out_specs)}
    )


def _all_axes_spec(params, aval: ShapedArray) -> PartitionSpec:
    """The spec that carries a shard's value out of the body: its first axis is split over all axes it varies over."""
    over = params["newly_manual_axes"] & aval.vma if params["check_vma"] else _copied_over(params)
    axes = tuple(n for n in params["mesh"].axis_names if n in over)
    mat = aval.mat
    return P(*([axes] if axes else []), unreduced=mat.unreduced, reduced=mat.reduced)


def _copied_over(params) -> frozenset:
    """Without varying-axes types: the axes over which an argument with no split along them is replicated."""
    return params["newly_manual_axes"] - examples_over()


# ---------------------------------------------------------------- rules


def _jvp(primals, tangents, **params):
    nonzero = tuple(type(t) is not Zero for t in tangents)
    with inside(params):
        closed, nonzero_out = jvp_jaxpr(params["jaxpr"], nonzero, False)
    specs = params["in_specs"]
    in_specs = [*specs, *(s for s, nz in zip(specs, nonzero, strict=True) if nz)]
    outs_specs = params["out_specs"]
    out_specs = [*outs_specs, *(s for s, nz in zip(outs_specs, nonzero_out, strict=True) if nz)]
    outs = _rebind([*primals, *(t for t in tangents if type(t) is not Zero)], params, closed, in_specs, out_specs)
    n = len(nonzero_out)
    rest = iter(outs[n:])
    return outs[:n], [next(rest) if nz else Zero.of_primal(p) for p, nz in zip(outs[:n], nonzero_out, strict=True)]


def _linearize(trace, primals, tangents, params):
    nonzero = tuple(type(t) is not Zero for t in tangents)
    with inside(params):
        split = linearize_jaxpr(params["jaxpr"], nonzero)
        n = len(split.nonzero_out)
        if params["jaxpr"].is_high:
            split = with_parts_as_residuals(split, n)
        primal, linear = with_ranked_residuals(split.primal, split.linear, n, split.forwarded)
    res_avals = primal.out_avals[n:]
    res_specs = [_all_axes_spec(params, a) for a in res_avals]
    # JAX's order: residuals first, then results.
    reordered = primal.jaxpr.replace(outvars=primal.jaxpr.outvars[n:] + primal.jaxpr.outvars[:n])
    outs = _rebind(
        primals, params, ClosedJaxpr(reordered, primal.consts), params["in_specs"], [*res_specs, *params["out_specs"]]
    )
    returned, primal_out = iter(outs[: len(res_specs)]), outs[len(res_specs) :]
    specs = iter(res_specs)
    residuals, residual_specs = [], []
    for i in split.forwarded:
        residuals.append(next(returned) if i is None else primals[i])
        residual_specs.append(next(specs) if i is None else params["in_specs"][i])
    live = [t for t in tangents if type(t) is not Zero]
    in_specs = residual_specs + [s for s, nz in zip(params["in_specs"], nonzero, strict=True) if nz]
    out_specs = [s for s, nz in zip(params["out_specs"], split.nonzero_out, strict=True) if nz]
    linear_outs = iter(
        _rebind([*residuals, *live], params, linear, in_specs, out_specs) if any(split.nonzero_out) else ()
    )
    return primal_out, [
        next(linear_outs) if nz else Zero.of_primal(p) for p, nz in zip(primal_out, split.nonzero_out, strict=True)
    ]


def _transpose(cts, *args, **params):
    linear = tuple(is_undefined_primal(x) for x in args)
    nonzero = tuple(type(ct) is not Zero for ct in cts)
    check = params["check_vma"]
    with inside(params):
        closed, nonzero_out, refs = transpose_jaxpr(params["jaxpr"], linear, nonzero)
        if refs:
            raise refs_refused(params["jaxpr"].jaxpr.debug_info)
        if not check:
            closed = _unchecked_cotangents(closed, params, linear, nonzero, nonzero_out)
    specs = params["in_specs"]
    in_specs = [s for s, lin in zip(specs, linear, strict=True) if not lin]
    in_specs += [s.to_ct_spec() for s, nz in zip(params["out_specs"], nonzero, strict=True) if nz]
    wanted = [s.to_ct_spec() for s, lin in zip(specs, linear, strict=True) if lin]
    out_specs = [s for s, nz in zip(wanted, nonzero_out, strict=True) if nz]
    values = [x for x in args if not is_undefined_primal(x)]
    outs = iter(_rebind([*values, *(ct for ct in cts if type(ct) is not Zero)], params, closed, in_specs, out_specs))
    flags = iter(nonzero_out)
    return [(next(outs) if next(flags) else Zero(x.aval)) if lin else None for x, lin in zip(args, linear, strict=True)]


def _unchecked_cotangents(closed: ClosedJaxpr, params, linear, nonzero, nonzero_out) -> ClosedJaxpr:
    """Without varying-axes types: divides the cotangent of a replicated result among the copies, and sums the
    cotangents of replicated arguments over them."""
    mesh: Mesh = params["mesh"]
    plain = sum(not lin for lin in linear)
    out_specs = [s.to_ct_spec() for s, nz in zip(params["out_specs"], nonzero, strict=True) if nz]
    in_specs = [s.to_ct_spec() for s, lin in zip(params["in_specs"], linear, strict=True) if lin]
    in_specs = [s for s, nz in zip(in_specs, nonzero_out, strict=True) if nz]

    def copies(spec) -> tuple:
        apart = {*spec.all_axes(), *spec.unreduced}
        return tuple(n for n in mesh.axis_names if n in _copied_over(params) and n not in apart)

    def fun(*args):
        cts = [
            registry["div"].bind(ct, _number(ct, math.prod(mesh.shape[a] for a in copies(s)))) if copies(s) else ct
            for ct, s in zip(args[plain:], out_specs, strict=True)
        ]
        outs = eval_jaxpr(closed.jaxpr, closed.consts, *args[:plain], *cts)
        return [
            registry["psum"].bind(o, axes=copies(s), axis_index_groups=None) if copies(s) else o
            for o, s in zip(outs, in_specs, strict=True)
        ]

    return trace_to_closed_jaxpr(fun, closed.in_avals)


def _number(like, value):
    return np.asarray(value).astype(typeof(like).dtype)[()]


def _batch(axis: AxisData, args, dims, **params):
    for what in ("in_specs", "out_specs"):
        named = any(set(axis.spmd) & set(s.all_axes()) for s in params[what])
        if named and not config.disable_vmap_shmap_error.value:
            raise ValueError(f"vmap spmd_axis_name cannot appear in shard_map {what}: {axis.spmd}, {params[what]}")
    moved = [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims, strict=True)]
    batched = tuple(d is not None for d in dims)
    closed, split = params["jaxpr"], tuple(n for n in axis.along if n in params["newly_manual_axes"])
    size = axis.size // math.prod(params["mesh"].shape[n] for n in split)
    # Inside the body, axis names refer to the mesh.
    name = None if axis.name in params["newly_manual_axes"] else axis.name
    inner = AxisData(name, size, axis.spmd, None if split else axis.split)
    with inside(params):
        if split and params["check_vma"]:
            closed = _varying_over(closed, batched, frozenset(split))
        closed, out_batched = batch_jaxpr(closed, inner.in_context(), batched, False)
    in_specs = [s.update([split, *s]) if b else s for s, b in zip(params["in_specs"], batched, strict=True)]
    out_specs = [s.update([split, *s]) if b else s for s, b in zip(params["out_specs"], out_batched, strict=True)]
    outs = _rebind(moved, params, closed, in_specs, out_specs)
    return outs, [0 if b else None for b in out_batched]


def _varying_over(closed: ClosedJaxpr, which: tuple[bool, ...], axes: frozenset) -> ClosedJaxpr:
    """The body with some arguments varying over additional axes."""
    avals = [a.update(vma=a.vma | axes) if w else a for a, w in zip(closed.in_avals, which, strict=True)]
    return trace_to_closed_jaxpr(lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs), avals)


def _dce(used: list[bool], eqn: Eqn) -> Eqn:
    closed: ClosedJaxpr = eqn.params["jaxpr"]
    jaxpr, consts, used_inputs = without_dead_code(closed.jaxpr, closed.consts, used)
    if jaxpr is closed.jaxpr:
        return eqn
    pruned = ClosedJaxpr(jaxpr, consts)
    params = {
        **eqn.params,
        "jaxpr": pruned,
        "in_specs": tuple(s for s, u in zip(eqn.params["in_specs"], used_inputs, strict=True) if u),
        "out_specs": tuple(s for s, u in zip(eqn.params["out_specs"], used, strict=True) if u),
    }
    return Eqn(
        eqn.primitive,
        [v for v, u in zip(eqn.invars, used_inputs, strict=True) if u],
        [v for v, u in zip(eqn.outvars, used, strict=True) if u],
        params,
        shard_map_p.effects(params),  # type: ignore[misc]
        eqn.source,
    )


def _keep_inside(eqn: Eqn, keeps: Callable[[Eqn], bool]) -> Twice | None:
    """A body that returns the values kept inside, split as they vary, and one that takes them."""
    params, count = eqn.params, len(eqn.outvars)
    body = keep_in_body(params["jaxpr"], keeps)
    if not body.kept:
        return None
    with inside(params):
        first, again = with_ranked_residuals(body.first, body.again, count, [None] * len(body.kept))
    avals = first.out_avals[count:]
    specs = [_all_axes_spec(params, a) for a in avals]
    mesh, over = params["mesh"], params["newly_manual_axes"]
    new = [Var(unshard_aval(mesh, s, a, over)) for s, a in zip(specs, avals, strict=True)]
    params_first = {**params, "jaxpr": first, "out_specs": (*params["out_specs"], *specs)}
    params_again = {**params, "jaxpr": again, "in_specs": (*specs, *params["in_specs"])}
    return Twice(
        eqn.replace(outvars=[*eqn.outvars, *new], params=params_first),
        eqn.replace(invars=[*new, *eqn.invars], params=params_again, effects=_outer_effects(params_again)),
        new,
    )


def _outer_effects(params):
    """Effects of the body, without references to the mesh's own axes, which are bound here. Results that are unreduced
    are summed where they leave it."""
    names = params["newly_manual_axes"]
    own = frozenset(e for e in params["jaxpr"].effects if not (isinstance(e, NamedAxisEffect) and e.name in names))
    return own | {communication} if any(s.unreduced for s in params["out_specs"]) else own


def _reference(*_args, **_params):
    raise NotImplementedError("shard_map has no NumPy reference")


class _ShardMapPrimitive(Primitive):
    """Over Explicit axes, specs of results have an entry for each array axis in programs. Outside of programs they are
    exactly the out_specs, if the body maps all axes of the mesh."""

    def bind(self, *args, **params):
        outs = super().bind(*args, **params)
        mesh = params["mesh"]
        is_full = mesh.are_all_axes_explicit and params["newly_manual_axes"] == {*mesh.axis_names}
        if state.trace is not EVAL or not is_full:
            return outs
        shardings = [NamedSharding(mesh, spec) for spec in params["out_specs"]]
        return [x if x.sharding == s else rewrap(x, x.aval, s) for x, s in zip(outs, shardings, strict=True)]


shard_map_p = _ShardMapPrimitive(
    "shard_map",
    type_rule=_type_rule,
    reference=_reference,
    lower=Partitioned("jaxpr"),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    effects=_outer_effects,
    dce=_dce,
    linearize=_linearize,
    keep_inside=_keep_inside,
    vma=lambda avals, params: None,
    keys=key_reuse.of_program("jaxpr"),
)
