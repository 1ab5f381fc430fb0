"""Programs over several ranks in the graph: shards of arguments, communication within shard_map bodies.

Every rank builds its own graph. A global array is either whole on every rank or split, one shard a rank; a whole
array is cut for free (a slice is only an index map). Outside of bodies operations are done shard by shard where
`compiler.layouts` has a rule for them; a split array is gathered where an operation needs all of it.

An array over several devices of this one process is whole too: its layout is only what is said of it, and follows
through operations by the same rules.
"""

from __future__ import annotations

import math
from typing import Any

from mpijax.compiler import explicit, local_shards
from mpijax.compiler.layouts import Operation, Plan, Split, axes_in, local_shape, rule_of, whole
from mpijax.compiler.messages import communicate, reduction_p
from mpijax.core import effects as fx
from mpijax.core.memory_space import DEVICE, Space
from mpijax.core.primitive import registry
from mpijax.core.trace import named_axes
from mpijax.ops.collectives.one_sided import paired


def run_shards(builder, closed, params: dict[str, Any], inputs, source):
    """The body of a `shard_map` on this rank's shards."""
    from mpijax.spmd.mesh import NamedSharding  # lies above

    mesh = params["mesh"]
    if fx.one_sided in closed.effects:
        with named_axes(dict(mesh.shape)):
            closed = paired(local_shards.without_varying(closed))
    if mesh.is_local:
        return _run_local_shards(builder, closed, params, inputs, source)
    if mesh.is_multi_process and mesh.coordinates() is None:
        raise ValueError(
            f"this rank's device is not part of the mesh {mesh} that shard_map runs on; every rank that runs the "
            f"program "
            "must have a device in the mesh"
        )
    layouts = [NamedSharding(mesh, spec) for spec in params["in_specs"]]
    local = [relaid(builder, v, layout, source) for v, layout in zip(inputs, layouts, strict=True)]
    builder.meshes.append(mesh)
    first, seen = len(builder.graph.nodes), builder.seen
    builder.seen = {}
    try:
        outs = builder.inline(closed, local, source)
    finally:
        builder.meshes.pop()
        builder.seen = seen
    made = {id(v) for node in builder.graph.nodes[first:] for v in node.outputs}
    results = []
    for v, spec in zip(outs, params["out_specs"], strict=True):
        layout = NamedSharding(mesh, spec)
        if builder.meshes and not layout.is_fully_replicated:
            raise NotImplementedError(
                "a shard_map inside another must return replicated results: use one shard_map over both axes"
            )
        results.append(marked(builder, v, layout, id(v) in made, source))
    return results


def _run_local_shards(builder, closed, params: dict[str, Any], inputs, source):
    from mpijax.spmd.mesh import NamedSharding  # lies above

    first = len(builder.graph.nodes)
    outs = local_shards.run(builder, closed, params, inputs, source)
    made = {id(v) for node in builder.graph.nodes[first:] for v in node.outputs}
    layouts = (NamedSharding(params["mesh"], spec) for spec in params["out_specs"])
    return [marked(builder, v, layout, id(v) in made, source) for v, layout in zip(outs, layouts, strict=True)]


def marked(builder, v, layout, new: bool, source):
    """A value with its layout; a copy, where the value is known by another one, or is not new, outside."""
    if builder.meshes:
        return v
    known = builder.shards.get(id(v))
    split = None if layout.keeps_whole else layout
    if (known != split and (known is not None or not new)) or builder.placed.get(id(v), layout) != layout:
        v = _copied(builder, v, source)
    if split is not None:
        builder.shards[id(v)] = split
    elif v.scalar is None:
        builder.placed[id(v)] = layout
    return v


def _copied(builder, v, source):
    """A value of its own, for a layout of its own."""
    [out] = builder._node(registry["copy"], {}, [v], [v.aval], source, fx.no_effects)
    return out


# ---------------------------------------------------------------- from one layout to another


def split_of(layout, ndim: int) -> Split:
    """The mesh axes each array axis is split over ranks by, without those of size 1, which split nothing."""
    return whole((0,) * ndim) if layout.keeps_whole else _named_split(layout, ndim)


def _named_split(layout, ndim: int) -> Split:
    sizes = layout.mesh.shape
    return tuple(tuple(a for a in axes if sizes[a] > 1) for axes in layout.spec.split(ndim))


def global_aval(builder, v):
    """The type of the whole array of which `v` may be a shard."""
    layout = builder.shards.get(id(v)) if not builder.meshes else None
    if layout is None:
        return v.aval
    sizes = layout.mesh.shape
    split = split_of(layout, v.aval.ndim)
    shape = tuple(n * math.prod(sizes[a] for a in axes) for n, axes in zip(v.aval.shape, split, strict=True))
    return v.aval.update(shape=shape)


def relaid(builder, v, layout, source):
    """This rank's shard of a value in another layout."""
    have = builder.shards.get(id(v)) if not builder.meshes else None
    want = split_of(layout, v.aval.ndim)
    if have is not None and have.mesh != layout.mesh:
        v, have = gathered(builder, v, have, source), None
    if v.scalar is not None:
        return v
    held = whole(v.aval.shape) if have is None else split_of(have, v.aval.ndim)
    return _Move(builder, layout.mesh, source).move(v, held, want)


def gathered(builder, v, layout, source):
    """The whole of an array of which every rank has a shard. Communicates one allgather per split axis."""
    return _Move(builder, layout.mesh, source).move(v, split_of(layout, v.aval.ndim), whole(v.aval.shape))


def laid_out(builder, eqn, v, source):
    """A value in a layout that the program asks for."""
    kind, layout = eqn.primitive.lower.kind, eqn.params[eqn.primitive.lower.param]
    if kind == "reshard":
        return explicit.resharded(builder, v, layout, eqn.params["concrete_mesh"], source)
    if kind == "constraint":
        return _constrained(builder, v, layout, source)
    if builder.meshes:
        raise NotImplementedError("pmap and arrays of one host within the body of a shard_map: call them outside of it")
    if kind == "from_local":
        whole_here = builder.whole(v, source)
        return marked(builder, whole_here, layout, False, source)
    shard = relaid(builder, v, layout, source)
    return _copied(builder, shard, source) if id(shard) in builder.shards else shard


def _constrained(builder, v, layout, source):
    """A value laid out as `with_sharding_constraint` says; within bodies there is nothing to lay out."""
    if builder.meshes:
        return v
    if isinstance(layout, Space):
        layout = _in_memory(builder.shards.get(id(v)) or builder.placed.get(id(v)), layout.kind)
        return v if layout is None else marked(builder, v, layout, False, source)
    if not hasattr(layout, "mesh"):  # one device
        return marked(builder, builder.whole(v, source), layout, False, source)
    if layout.mesh is layout.mesh.abstract_mesh:
        devices = explicit.devices_known(builder, layout.mesh)
        if devices is None:
            return v
        layout = layout.update(mesh=devices)
    first = len(builder.graph.nodes)
    split = _possible(builder, v, layout)
    if layout.spec.unconstrained_dims or split != _named_split(layout, len(split)):
        layout = layout_of(layout.mesh, split)
    out = relaid(builder, v, layout, source)
    made = {id(o) for node in builder.graph.nodes[first:] for o in node.outputs}
    return marked(builder, out, layout, id(out) in made, source)


def _in_memory(held, kind: str | None):
    """A layout in another kind of memory; None where that changes nothing."""
    from mpijax.runtime.devices import local_devices  # these lie above
    from mpijax.spmd.mesh import SingleDeviceSharding

    if kind is None or (held is None and kind == DEVICE):
        return None
    return (held or SingleDeviceSharding(local_devices()[0])).with_memory_kind(kind)


def _possible(builder, v, layout) -> Split:
    """What a constraint asks for, where it goes: free axes stay split as they are, odd ones stay whole."""
    shape, sizes = global_aval(builder, v).shape, layout.mesh.shape
    have = builder.shards.get(id(v)) or builder.placed.get(id(v))
    held = whole(shape) if getattr(have, "mesh", None) != layout.mesh else _named_split(have, len(shape))
    free, named = layout.spec.unconstrained_dims, set(layout.spec.all_axes())
    return tuple(
        (held[d] if not named & set(held[d]) else ()) if d in free
        else axes if n % math.prod(sizes[a] for a in axes) == 0 else ()
        for d, (n, axes) in enumerate(zip(shape, _named_split(layout, len(shape)), strict=True))
    )  # fmt: skip


class _Move:
    """Shards from one split to another over a mesh, with as little communication as the two have in common."""

    def __init__(self, builder, mesh, source):
        self.builder, self.mesh, self.source = builder, mesh, source
        self.sizes = mesh.shape

    def move(self, v, have: Split, want: Split):
        if have == want:
            return v
        key = (id(v), self.mesh, want)
        if key not in self.builder.moved:
            self.builder.moved[key] = self._moved(v, have, want)
        return self.builder.moved[key]

    def _moved(self, v, have: Split, want: Split):
        common = [_common(h, w) for h, w in zip(have, want, strict=True)]
        gone = [h[len(c) :] for h, c in zip(have, common, strict=True)]
        new = [w[len(c) :] for w, c in zip(want, common, strict=True)]
        v = self._exchange(v, gone, new)
        # What is cut first need not be gathered; along an axis that is to be gathered, blocks would get mixed.
        free = [() if g else n for g, n in zip(gone, new, strict=True)]
        early = [() if set(n) & set(axes_in(tuple(gone))) else n for n in free]
        v = self._cut(v, early)
        for dim, axes in enumerate(gone):
            if axes:
                v = self._gather(v, dim, axes)
        return self._cut(v, [() if e else n for e, n in zip(early, new, strict=True)])

    def _exchange(self, v, gone, new):
        """Axes that one array axis gives up and another one takes over: every rank sends to every other."""
        for a, axes in enumerate(gone):
            for b, wanted in enumerate(new):
                if axes and axes == wanted and not gone[b] and not new[a]:
                    v = self._send(v, "all_to_all", a, b, axes)
                    gone[a] = new[b] = axes = ()
        return v

    def _send(self, v, name: str, a: int, b: int, axes):
        count, shape = self._count(axes), list(v.aval.shape)
        shape[a] *= count
        shape[b] //= count
        params = {"split_axis": b, "concat_axis": a, "axis_name": axes, "axis_index_groups": None, "tiled": True}
        return self._communicate(v, name, params, shape)

    def _gather(self, v, dim: int, axes):
        count, shape = self._count(axes), list(v.aval.shape)
        shape[dim] *= count
        params = {
            "all_gather_dimension": dim, "axis_name": axes, "axis_index_groups": None, "axis_size": count,
            "tiled": True,
        }  # fmt: skip
        return self._communicate(v, "all_gather", params, shape)

    def _communicate(self, v, name: str, params, shape):
        primitive, aval = registry[name], v.aval.update(shape=tuple(shape))
        self.builder.meshes.append(self.mesh)
        try:
            effects = primitive.effects(params)  # type: ignore[misc]
            [out] = communicate(self.builder, primitive, params, [v], [aval], self.source, effects)
        finally:
            self.builder.meshes.pop()
        return out

    def _cut(self, v, new):
        """This rank's part, along axes to be split over those in `new`."""
        shape = list(v.aval.shape)
        starts = [0] * len(shape)
        for dim, axes in enumerate(new):
            if axes:
                shape[dim] //= self._count(axes)
                starts[dim] = self._block(axes) * shape[dim]
        if tuple(shape) == v.aval.shape:
            return v
        limits = tuple(a + n for a, n in zip(starts, shape, strict=True))
        params = {"start_indices": tuple(starts), "limit_indices": limits, "strides": None}
        aval = v.aval.update(shape=tuple(shape))
        return self.builder._node(registry["slice"], params, [v], [aval], self.source, fx.no_effects)[0]

    def _count(self, axes) -> int:
        return math.prod(self.sizes[a] for a in axes)

    def _block(self, axes) -> int:
        """This rank's number among the parts, in row-major order of `axes`."""
        at = self.mesh.coordinates()
        if at is None:
            raise ValueError(
                f"this rank's device is not part of {self.mesh}, over which an array is laid out; every rank that runs "
                "the program must have a device in the mesh"
            )
        places = dict(zip(self.mesh.axis_names, at, strict=True))
        block = 0
        for a in axes:
            block = block * self.sizes[a] + places[a]
        return block


def _common(have: tuple, want: tuple) -> tuple:
    k = 0
    while k < min(len(have), len(want)) and have[k] == want[k]:
        k += 1
    return have[:k]


# ---------------------------------------------------------------- operations on shards


def spread(builder, eqn, inputs, avals, source):
    """An operation outside of shard_map bodies, done shard by shard; None where it needs whole operands."""
    layouts = [builder.shards.get(id(v)) for v in inputs]
    mesh = next((x.mesh for x in layouts if x is not None), None)
    rule = rule_of(eqn.primitive)
    if mesh is None or rule is None or fx.pins(eqn.effects):
        return None
    plan = rule(_seen_by_rules(builder, eqn, inputs, avals, layouts, mesh))
    if plan is None:
        return None
    first = len(builder.graph.nodes)
    operands = [
        relaid(builder, v, layout_of(mesh, split), source) for v, split in zip(inputs, plan.operands, strict=True)
    ]
    local = [
        a.update(shape=local_shape(a.shape, split, mesh.shape)) for a, split in zip(avals, plan.results, strict=True)
    ]
    outs = builder._node(eqn.primitive, plan.params, operands, local, source, eqn.effects)
    if plan.over:
        outs = [_combined(builder, outs[0], plan, mesh, source)]
    made = {id(o) for node in builder.graph.nodes[first:] for o in node.outputs}
    shapes = [global_aval(builder, v).shape for v in inputs]
    results = _named_alike(mesh, plan, shapes, layouts, avals)
    return [marked(builder, o, layout, id(o) in made, source) for o, layout in zip(outs, results, strict=True)]


def followed(builder, eqn, inputs, outs, source) -> list:
    """The results of an operation on values over devices of this process, laid out as its operands are."""
    known = (builder.placed.get(id(v)) for v in inputs)
    layouts = [x if x is not None and x.is_fully_addressable else None for x in known]
    first = next((x for x in layouts if x is not None), None)
    if first is None:
        return outs
    avals = [v.aval for v in eqn.outvars]

    def labelled(out, layout):
        known = id(out) in builder.placed or id(out) in builder.shards or out.scalar is not None
        if layout.memory_kind != first.memory_kind:
            layout = layout.with_memory_kind(first.memory_kind)
        return out if known else marked(builder, out, layout, True, source)

    return list(map(labelled, outs, _layouts_of_results(builder, eqn, inputs, avals, layouts, first)))


def _layouts_of_results(builder, eqn, inputs, avals, layouts, first) -> list:
    if not hasattr(first, "mesh"):
        return [first] * len(avals)
    mesh, rule = first.mesh, rule_of(eqn.primitive)
    over_mesh = [x if hasattr(x, "mesh") else None for x in layouts]
    plan = rule(_seen_by_rules(builder, eqn, inputs, avals, over_mesh, mesh)) if rule is not None else None
    if plan is not None:
        return _named_alike(mesh, plan, [v.aval.shape for v in inputs], over_mesh, avals)
    of_shape = {v.aval.shape: x for v, x in zip(inputs, over_mesh, strict=True) if x is not None}
    return [of_shape.get(a.shape) or layout_of(mesh, whole(a.shape)) for a in avals]


def _named_alike(mesh, plan: Plan, shapes, layouts, avals) -> list:
    """Layouts of results; where an operand of the same shape is split alike, by the names that its layout has."""
    known = {
        (shape, _named_split(x, len(shape))): x
        for shape, x in zip(reversed(shapes), reversed(layouts), strict=True)
        if x is not None and x.mesh == mesh
    }
    return [known.get((a.shape, s)) or layout_of(mesh, s) for a, s in zip(avals, plan.results, strict=True)]


def _seen_by_rules(builder, eqn, inputs, avals, layouts, mesh) -> Operation:
    shapes = [global_aval(builder, v).shape for v in inputs]
    splits = [
        whole(shape) if x is None or x.mesh != mesh else _named_split(x, len(shape))
        for x, shape in zip(layouts, shapes, strict=True)
    ]
    return Operation(eqn.params, shapes, [a.shape for a in avals], splits, mesh.shape)


def layout_of(mesh, split: Split):
    """A layout found here: over Auto axes only, its specification ends with the last array axis that is split."""
    from mpijax.spmd.mesh import NamedSharding  # lies above
    from mpijax.spmd.partition_spec import PartitionSpec

    parts = list(split)
    while parts and not parts[-1] and not mesh.is_explicit:
        parts.pop()
    return NamedSharding(mesh, PartitionSpec(*parts))


def _combined(builder, v, plan: Plan, mesh, source):
    """The ranks' partial results as one. Communicates one allreduce."""
    primitive = reduction_p(plan.op)
    params = {"axes": plan.over, "axis_index_groups": None}
    effects = registry["psum"].effects(params)  # type: ignore[misc]
    builder.meshes.append(mesh)
    try:
        [out] = communicate(builder, primitive, params, [v], [v.aval], source, effects)
    finally:
        builder.meshes.pop()
    return out
