"""Replaces pending sums by arrays of their summands, before a program is partitioned.

An unreduced value is the sum of its shards. Here it becomes the array of these shards, with one more axis in front for
each mesh axis over which the sum is pending, and split over that mesh axis. So each rank stores its own summand, and
the later stages know nothing of pending sums:

- Operations that are linear in a sum run on all summands: they are batched over the axes in front.
- A product over a split axis, or a sum along one, makes each rank's part a summand.
- `reshard` adds the summands that are no longer pending. A value that becomes a sum is its own first summand; if it was
  split over the mesh axis, each shard becomes a summand in its place among zeros.
- Bodies of `shard_map` take and return summands as their shards.

Reduced axes only say something about cotangents; they disappear here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpijax.compiler.sharding.local_shards import without_varying
from mpijax.core.base import provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, bound, eval_jaxpr, map_jaxprs, nested_jaxprs
from mpijax.core.rules.lowering import ControlFlow, Flow, InlineJaxpr, Partitioned, Reshard
from mpijax.core.sharding.context import in_body, mesh_types, under
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.sharding.split import Split, entries
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import named_axes
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.gather_scatter import psum_scatter
from mpijax.ops.collectives.position import axis_index
from mpijax.ops.collectives.reductions import psum
from mpijax.ops.elementwise.select import select
from mpijax.ops.reductions.standard import reduce_sum
from mpijax.ops.rules import full_like
from mpijax.ops.shapes.creation import broadcasted_iota
from mpijax.ops.shapes.moves import shape_of
from mpijax.ops.shapes.reshape import expand_dims, reshape, squeeze, transpose
from mpijax.transforms.batching import AxisData, batch_at, batch_flat, move_dim

Names = tuple[Any, ...]


def stacked(closed: ClosedJaxpr, in_shardings: tuple) -> tuple[ClosedJaxpr, tuple]:
    """A program and the shardings of its arguments, with summands in the place of pending sums."""
    if not ShapedArray.any_split or not _has_sums(closed):
        return closed, in_shardings
    shardings = tuple(
        x.of_summands if a.pending else x for a, x in zip(closed.in_avals, in_shardings, strict=False)
    )
    return _stacked(closed), shardings


def shardings_of_sums(shardings: tuple, avals: Sequence[ShapedArray]) -> tuple:
    """The shardings of results, from those of their summands."""
    return tuple(_of_sum(x, a) if a.pending else x for x, a in zip(shardings, avals, strict=True))


def _of_sum(sharding: NamedSharding, aval: ShapedArray) -> NamedSharding:
    parts = sharding.spec.partitions[len(aval.pending) :]
    return sharding.update(spec=PartitionSpec(*parts, unreduced=frozenset(aval.pending)))


@memo_on_jaxpr
def _has_sums(closed: ClosedJaxpr) -> bool:
    jaxprs = [getattr(program, "jaxpr", program) for program in nested_jaxprs(closed)]
    eqns = [eqn for jaxpr in jaxprs for eqn in jaxpr.eqns]
    types = (v.aval for each in (*jaxprs, *eqns) for v in (*each.invars, *each.outvars))
    bodies = (eqn for eqn in eqns if isinstance(eqn.primitive.lower, Partitioned))
    return any(isinstance(a, ShapedArray) and a.pending for a in types) or any(map(_has_sums_in_specs, bodies))


def _has_sums_in_specs(eqn: Eqn) -> bool:
    specs = (*eqn.params["in_specs"], *eqn.params["out_specs"])
    return any(spec.unreduced or spec.reduced for spec in specs)


@memo_on_jaxpr
def _stacked(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program whose arguments, values and results are summands in the place of pending sums."""
    consts = [getattr(c, "_summands", c) for c in closed.consts]
    run = partial(eval_jaxpr, closed.jaxpr, consts, apply=_equation)
    return trace_to_closed_jaxpr(run, [a.of_summands() for a in closed.in_avals], closed.jaxpr.debug_info)


def _equation(eqn: Eqn, args: list[Any]) -> Sequence[Any]:
    """The results of an equation on summands."""
    lower = eqn.primitive.lower
    if isinstance(lower, Partitioned):
        return _shard_map(eqn, args)
    meshes = [x.mesh for v in (*eqn.invars, *eqn.outvars) if v.aval.pending and (x := v.aval.split) is not None]
    params = {name: _without_sums(map_jaxprs(x, _stacked)) for name, x in eqn.params.items()}
    plain = eqn.replace(params=params)
    if not meshes or not eqn.outvars:  # a check without results looks at the summands
        return bound(plain, args)
    with under(meshes[0]):
        if isinstance(lower, Reshard):
            return [_resharded(eqn, args[0])]
        if isinstance(lower, InlineJaxpr):
            taken = [a.pending for a in eqn.params[lower.param].in_avals]
            return bound(plain, _as_taken(args, eqn, meshes[0], taken))
        if isinstance(lower, ControlFlow):
            return _scan(plain, args) if lower.kind is Flow.SCAN else bound(plain, args)
        return _operation(plain, args, meshes[0])


def _without_sums(x: Any) -> Any:
    """A parameter of an equation; a sharding without unreduced and reduced axes."""
    return x.waiting(frozenset(), frozenset()) if isinstance(x, NamedSharding) else x


def _as_taken(args: Sequence[Any], eqn: Eqn, mesh: Any, taken: Sequence[Names]) -> list[Any]:
    """Operands for a program that takes sums over the axes `taken`: a number is its own first summand."""
    return [
        x if names == v.aval.pending else _first_of(x, names, mesh)
        for x, v, names in zip(args, eqn.invars, taken, strict=True)
    ]


def _scan(eqn: Eqn, args: list[Any]) -> list[Any]:
    """A loop. It turns along the first axis of xs and ys, so their summands lie along the axes after that one."""
    carried = eqn.params["num_carry"]
    first = eqn.params["num_consts"] + carried
    given, made = ([len(v.aval.pending) for v in of] for of in (eqn.invars, eqn.outvars))
    xs = [move_dim(x, k, 0) if k else x for x, k in zip(args[first:], given[first:], strict=True)]
    outs = bound(eqn, [*args[:first], *xs])
    ys = [move_dim(x, 0, k) if k else x for x, k in zip(outs[carried:], made[carried:], strict=True)]
    return [*outs[:carried], *ys]


# ---------------------------------------------------------------- operations on all summands


def _operation(eqn: Eqn, args: list[Any], mesh: Any) -> list[Any]:
    """The results of an operation, which is batched over the axes of summands."""
    wanted = [v.aval.pending for v in eqn.outvars]
    found = {a for v in (*eqn.invars, *eqn.outvars) for a in v.aval.pending}
    names = tuple(a for a in mesh.axis_names if a in found)
    operands = [_Summands.of(x, v.aval, names) for x, v in zip(args, eqn.invars, strict=True)]
    split = eqn.outvars[0].aval.split
    if "sharding" in eqn.params and eqn.params["sharding"] is None and split is not None:
        eqn = eqn.replace(params={**eqn.params, "sharding": NamedSharding(mesh, PartitionSpec(*entries(split.axes)))})
    run: Callable = partial(_bound, eqn)
    for name in reversed(names):
        axis = _axis(name, mesh)
        dims = [0 if name in x.names else None for x in operands]
        run = partial(_batched, run, axis, dims, [name in names_out for names_out in wanted])
    return run(*(x.value for x in operands))


def _bound(eqn: Eqn, *args: Any) -> list[Any]:
    return list(bound(eqn, args))


def _batched(run: Callable, axis: AxisData, dims: list[int | None], kept: list[bool], *args: Any) -> list[Any]:
    """The results of `run` on summands along one axis. kept: which results are summands; the others are added up."""
    outs, dims = batch_flat(run, axis, args, dims)
    return [_result(x, d, keep, axis) for x, d, keep in zip(outs, dims, kept, strict=True)]


def _result(x: Any, dim: int | None, kept: bool, axis: AxisData) -> Any:
    if dim is None:
        return _first_along(x, axis) if kept else x
    return batch_at(x, dim, 0, axis) if kept else reduce_sum(x, (dim,))


def _axis(name: Any, mesh: Any) -> AxisData:
    """The axis of the summands along a mesh axis."""
    return AxisData(None, mesh.shape[name], split=Split(mesh, ((name,),)))


def _first_of(x: Any, names: Names, mesh: Any) -> Any:
    """A value as the first summand over mesh axes; the others are zero."""
    for name in reversed(names):
        x = _first_along(x, _axis(name, mesh))
    return x


def _first_along(x: Any, axis: AxisData) -> Any:
    whole = batch_at(x, None, 0, axis)
    number = broadcasted_iota(np.int32, shape_of(whole), 0, out_sharding=typeof(whole).said_sharding)
    return select(number == 0, whole, full_like(whole, 0))


@dataclass(frozen=True)
class _Summands:
    """An operand with one axis in front for each of `names`."""

    value: Any
    names: Names

    @staticmethod
    def of(x: Any, aval: ShapedArray, names: Names) -> _Summands:
        """The operand `x` of type `aval`. Axes that are split over one of `names` are cut, and the parts lie in front.
        """
        if aval.pending or aval.split is None:
            return _Summands(x, aval.pending)
        mesh, split = aval.split.mesh, []
        sizes: list[int] = []
        places: dict[Any, int] = {}
        for n, axes in zip(aval.shape, aval.split.axes, strict=True):
            cut = [a for a in axes if a in names]
            if cut and axes[: len(cut)] != tuple(cut):
                raise NotImplementedError(
                    f"An axis split over {axes}, whose sum stays pending over {tuple(cut)} only. Name these mesh axes "
                    "first in the spec."
                )
            for a in cut:
                places[a] = len(sizes)
                sizes.append(mesh.shape[a])
                split.append((a,))
            sizes.append(n // math.prod(mesh.shape[a] for a in cut))
            split.append(axes[len(cut) :])
        if not places:
            return _Summands(x, ())
        lead = tuple(a for a in names if a in places)
        order = [*(places[a] for a in lead), *(d for d in range(len(sizes)) if d not in places.values())]
        apart = reshape(x, sizes, out_sharding=NamedSharding(mesh, PartitionSpec(*entries(tuple(split)))))
        return _Summands(transpose(apart, order), lead)


# ---------------------------------------------------------------- reshard


def _resharded(eqn: Eqn, x: Any) -> Any:
    """The summands of the result of `reshard`, from those of its operand."""
    [source], [result] = eqn.invars, eqn.outvars
    move = _Transition(source.aval, result.aval)
    devices = eqn.params["concrete_mesh"]

    def to(x: Any, lead: Names, axes: Sequence[Names]) -> Any:
        sharding = NamedSharding(move.mesh, PartitionSpec(*entries((*_each(lead), *axes))))
        return eqn.primitive.bind(x, dst_sharding=sharding, concrete_mesh=devices)

    if move.gone or move.new:
        x = to(x, move.before, move.start)
        body = partial(_moved, move)
        into, out = ((*_each(lead), *axes) for lead, axes in ((move.before, move.start), (move.after, move.end)))
        specs = {"in_specs": PartitionSpec(*entries(into)), "out_specs": PartitionSpec(*entries(out))}
        x = provided.shard_map(body, mesh=devices or move.mesh, check_vma=False, **specs)(x)
    return to(x, move.after, move.target)


def _each(names: Names) -> tuple[Names, ...]:
    return tuple((a,) for a in names)


class _Transition:
    """How the summands of one value become those of another one, in one `shard_map`.

    before, after: the mesh axes over which sums are pending. gone, new: those that only the operand or the result has.
    start, end: the mesh axes that split each array axis where the body begins and where it ends. placed, scattered: for
    each array axis, the new axes whose shards become summands in their place, and the axes that are gone whose sum is
    scattered along it.
    """

    def __init__(self, source: ShapedArray, target: ShapedArray):
        given = source.split or target.split
        assert given is not None
        self.mesh, whole = given.mesh, ((),) * source.ndim
        self.before, self.after = source.pending, target.pending
        self.gone = tuple(a for a in self.before if a not in self.after)
        self.new = tuple(a for a in self.after if a not in self.before)
        self.target = whole if target.split is None else target.split.axes
        self.start, self.end, self.placed, self.scattered = [], [], [], []
        for axes, wanted in zip(whole if source.split is None else source.split.axes, self.target, strict=True):
            at = next((k for k, a in enumerate(axes) if a in self.new), len(axes))
            placed = _while(axes[at:], self.new)
            scattered = _while(wanted[at:], self.gone) if wanted[:at] == axes[:at] else ()
            self.start.append((*axes[:at], *placed))
            self.end.append((*axes[:at], *scattered))
            self.placed.append(placed)
            self.scattered.append(scattered)

    def first(self) -> Names:
        """The new axes that split no array axis: only the first shard along them is a summand."""
        return tuple(a for a in self.new if not any(a in names for names in self.placed))

    def summed(self) -> Names:
        """The axes whose sum every rank needs."""
        return tuple(a for a in self.gone if not any(a in names for names in self.scattered))


def _while(axes: Names, allowed: Names) -> Names:
    """The axes up to the first that is not allowed."""
    return axes[: next((k for k, a in enumerate(axes) if a not in allowed), len(axes))]


def _moved(move: _Transition, x: Any) -> Any:
    """The body of the `shard_map` of a `_Transition`."""
    x = squeeze(x, range(len(move.before)))
    for d, names in enumerate(move.placed):
        if names:
            parts = batch_at(x, None, d, AxisData(None, math.prod(move.mesh.shape[a] for a in names)))
            number = broadcasted_iota(np.int32, shape_of(parts), d)
            parts = select(number == axis_index(names), parts, full_like(parts, 0))
            shape = shape_of(x)
            x = reshape(parts, (*shape[:d], shape_of(parts)[d] * shape[d], *shape[d + 1 :]))
    if move.first():
        x = select(axis_index(move.first()) == 0, x, full_like(x, 0))
    for d, names in enumerate(move.scattered):
        if names:
            x = psum_scatter(x, names, scatter_dimension=d, tiled=True)
    if move.summed():
        x = psum(x, move.summed())
    return expand_dims(x, range(len(move.after)))


# ---------------------------------------------------------------- bodies of shard_map


def _shard_map(eqn: Eqn, args: list[Any]) -> Sequence[Any]:
    """A `shard_map` whose body takes summands, one of each argument, and returns them."""
    params = eqn.params
    mesh, manual, param = params["mesh"], params["newly_manual_axes"], eqn.primitive.lower.param
    if not _has_sums_in_specs(eqn):
        return bound(eqn, args)
    specs = {name: params[name] for name in ("in_specs", "out_specs")}
    lead = {
        name: [tuple(a for a in mesh.axis_names if a in spec.unreduced & manual) for spec in each]
        for name, each in specs.items()
    }
    inner: ClosedJaxpr = without_varying(params[param])

    def body(*xs):
        shards = [squeeze(x, range(len(names))) for x, names in zip(xs, lead["in_specs"], strict=True)]
        outs = eval_jaxpr(inner.jaxpr, inner.consts, *shards)
        return [expand_dims(x, range(len(names))) for x, names in zip(outs, lead["out_specs"], strict=True)]

    types = [
        a.update(shape=(*(1 for _ in names), *a.shape))
        for a, names in zip(inner.in_avals, lead["in_specs"], strict=True)
    ]
    with under(mesh_types(mesh)):
        args = _as_taken(args, eqn, mesh.abstract_mesh, lead["in_specs"])
    with named_axes(dict(mesh.shape)), under(in_body(mesh.abstract_mesh, manual)):
        closed = trace_to_closed_jaxpr(body, types)
    changed = {
        name: tuple(PartitionSpec(*names, *spec.partitions) for names, spec in zip(lead[name], each, strict=True))
        for name, each in specs.items()
    }
    return bound(eqn.replace(params={**params, param: closed, "check_vma": False, **changed}), args)
