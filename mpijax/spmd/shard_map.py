"""`shard_map`: runs one program per shard, with collectives over the mesh.

The body is traced once with the types of one shard. These types record the mesh axes over which a value varies from
shard to shard; results that out_specs call replicated are checked against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from mpijax.core.base.errors import ConcretizationTypeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import callable_name
from mpijax.core.base.state import state
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.context import in_body, mesh_types, shard_aval
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.refs import has_views, opened
from mpijax.core.tracing.trace import EVAL
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.abstract import AbstractValue
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import NO_AXES
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.scope import varying
from mpijax.spmd.shard_map_eager import run_eagerly
from mpijax.spmd.shard_map_parts import has_hi_specs, over_parts
from mpijax.spmd.shard_map_rules import scope, shard_map_p
from mpijax.spmd.shard_specs import (
    check_fits,
    check_inferable,
    check_out,
    check_sums,
    flatten_specs,
    given_spec,
    mesh_for,
)
from mpijax.spmd.shown_blocks import text_of
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.flat import FlatFun, debug_info, parameter_names
from mpijax.transforms.ref_state import has_refs, is_ref, of_values, values_in, values_of, write_all

P = PartitionSpec


class Infer:
    """The default of `in_specs`: arguments are cut according to their own shardings."""


def shard_map(
    f: Callable | None = None,
    /,
    *,
    mesh: Any = None,
    in_specs: Any = Infer,
    out_specs: Any = Infer,
    axis_names: Any = None,
    check_vma: bool = True,
    check_rep: bool | None = None,
) -> Any:
    """Run `f` on every shard of a mesh.

    Args:
      f: a function of shards; inside, collectives refer to the mesh's axes by name.
      mesh: the mesh; by default that of the enclosing `shard_map` or of `set_mesh`. For an `AbstractMesh`, the mesh of
        the arguments is used.
      in_specs: how arguments are cut into shards: a `PartitionSpec` per argument (a pytree prefix). None is `P()`; for
        an argument that is not an `Array`, None passes it to `f` unchanged.
        Without `in_specs`, the arguments' own shardings are used; within a traced function it must be given.
      out_specs: the same for results; a result must be replicated over axes not mentioned, unless `check_vma=False`.
      axis_names: the mesh axes that `f` is mapped over, by default all that are not mapped yet. Along the others,
        arguments are whole.
      check_vma: track the axes over which values vary. Without it, gradients of replicated arguments are not summed
        automatically.

    Raises:
      TypeError: `in_specs` is missing and axes of the mesh are not of type Explicit.
      ValueError: specifications do not fit, sizes are not divisible by the mesh, or results are not replicated as
        claimed.

    >>> mesh = mpijax.make_mesh((mpijax.device_count(),), ("x",))
    >>> f = lambda x: lax.psum(jnp.sum(x), "x")
    >>> mpijax.shard_map(f, mesh=mesh, in_specs=mpijax.P("x"), out_specs=mpijax.P())(jnp.arange(4))
    Array(6, dtype=int32)
    """
    if check_rep is not None:
        check_vma = check_rep
    if f is None:
        return lambda g: shard_map(
            g, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=axis_names, check_vma=check_vma
        )
    if not callable(f):
        raise TypeError(f"shard_map requires a callable for its first argument, but got {f} of type {type(f)}.")
    if out_specs is Infer:
        raise TypeError("shard_map needs out_specs: a PartitionSpec for each result.")

    @wraps(f)
    def wrapped(*args):
        the_mesh = mesh_for(mesh, args)
        names = frozenset(axis_names or the_mesh.axis_names)
        if not names <= set(the_mesh.axis_names):
            raise ValueError(
                f"jax.shard_map requires axis_names={set(names)} to be a subset of mesh.axis_names="
                f"{set(the_mesh.axis_names)}"
            )
        if in_specs is Infer:
            check_inferable(the_mesh, names)
        mapped = NO_AXES if state.body is None else state.body[1]
        return _ShardMap(f, the_mesh, names - mapped, in_specs, out_specs, check_vma)(args)

    return wrapped


@dataclass(frozen=True)
class _ShardMap:
    """A function over a mesh. names: the mesh axes that it is mapped over."""

    f: Callable
    mesh: Mesh
    names: frozenset
    in_specs: Any
    out_specs: Any
    check_vma: bool

    def __call__(self, args: tuple) -> Any:
        if AbstractValue.any_high and has_hi_specs(self.in_specs, self.out_specs):
            return over_parts(self, args)
        leaves, in_tree = tree.tree_flatten((args, {}))
        if has_views(leaves):
            return self(opened(args))
        specs, objects = self._flat_in(leaves, in_tree)
        if objects:
            arrays = [i for i in range(len(leaves)) if i not in objects]
            of_arrays = self.over(_of_arrays(self.f, in_tree, objects), tuple(specs[i] for i in arrays), self.out_specs)
            return of_arrays(tuple(leaves[i] for i in arrays))
        avals = [typeof(x) for x in leaves]
        self._check(args, avals, specs)
        if has_refs(leaves):
            values, refs = values_in(args)
            of_refs = [s for s, x in zip(specs, leaves, strict=True) if is_ref(x)]
            out, finals = self.over(of_values(self.f, args), self.in_specs, (self.out_specs, of_refs))(values)
            write_all(refs, finals)
            return out
        return self._bound(args, leaves, in_tree, specs, avals)

    def over(self, f: Callable, in_specs: Any, out_specs: Any) -> _ShardMap:
        """Another function over the same mesh."""
        return replace(self, f=f, in_specs=in_specs, out_specs=out_specs)

    def _flat_in(self, leaves: list, in_tree: Any) -> tuple[list[PartitionSpec], dict[int, Any]]:
        """The specification of each leaf of the arguments, and the leaves that are not arrays, by position."""
        if self.in_specs is Infer:
            return [given_spec(x, self.mesh, self.names) for x in values_of(leaves)], {}
        specs = tuple(self.in_specs) if isinstance(self.in_specs, list) else self.in_specs
        flat, fixed = flatten_specs("in_specs", specs, in_tree.children()[0], self.mesh, self.names)
        return flat, {i: leaves[i] for i in fixed if not isinstance(leaves[i], (Array, Tracer))}

    def _flat_out(self, structure: Any, outside: Any) -> list[PartitionSpec]:
        """The specification of each result. outside: the mesh with the types that its axes have outside the body."""
        specs, _ = flatten_specs("out_specs", self.out_specs, structure, self.mesh, self.names)
        check_sums("out_specs", specs, outside, self.names)
        return specs

    def _check(self, args: tuple, avals: list, specs: list[PartitionSpec]) -> None:
        check_sums("in_specs", specs, mesh_types(self.mesh), self.names)
        names = partial(parameter_names, self.f, args, {})
        for i, (aval, spec) in enumerate(zip(avals, specs, strict=True)):
            check_fits(self.f, self.mesh, aval, spec, i, names)

    def _bound(self, args: tuple, leaves: list, in_tree: Any, specs: list[PartitionSpec], avals: list) -> Any:
        """The results: the body traced with the types of one shard, as one operation on all of them."""
        outside = mesh_types(self.mesh)
        inner = in_body(outside, self.names)
        local = [shard_aval(self.mesh, s, a, self.check_vma, inner) for a, s in zip(avals, specs, strict=True)]
        fun = FlatFun(self.f, in_tree)
        out_specs: list[PartitionSpec] = []
        runs_now = state.trace is EVAL and not self.mesh.is_multi_process and not state.axis_env

        def on_every_device(g):
            return replace(self.over(g, tuple(specs), P(self.mesh.axis_names)), check_vma=False)(tuple(leaves))

        def body(*shards):
            if runs_now and self.names == set(self.mesh.axis_names):
                state.trace.text_of = partial(text_of, self.mesh, on_every_device)
            outs = fun(*shards)
            body.out_tree = fun.out_tree  # type: ignore[attr-defined]
            if has_refs(outs) or not all(map(is_array, outs)):
                return outs  # tracing raises an error with the position of the result that is not an array
            out_specs[:] = self._flat_out(fun.out_tree, outside)
            return self._declared(outs, out_specs)

        try:
            with scope(self.mesh, self.names, self.check_vma):
                jaxpr, consts = trace_to_jaxpr(body, local, debug_info("shard_map", self.f, args, {}))
        except ConcretizationTypeError:
            if not runs_now:
                raise
            return run_eagerly(self.f, self.mesh, self.names, specs, self.out_specs, self.check_vma, args)
        closed, moved = hoist_tracers(jaxpr, consts, lambda c: isinstance(c, Tracer))
        outs = shard_map_p.bind(
            *values_of(moved),
            *leaves,
            jaxpr=closed,
            mesh=self.mesh,
            in_specs=(*(P() for _ in moved), *specs),
            out_specs=tuple(out_specs),
            check_vma=self.check_vma,
            newly_manual_axes=self.names,
        )
        return tree.tree_unflatten(fun.out_tree, outs)

    def _declared(self, outs: list, specs: list[PartitionSpec]) -> list:
        """The results of the body, typed as `out_specs` say."""
        if self.check_vma:
            outs = [_as_declared(out, spec) for out, spec in zip(outs, specs, strict=True)]
        for out, spec in zip(outs, specs, strict=True):
            check_out(self.f, self.mesh, typeof(out), spec, self.names if self.check_vma else NO_AXES)
        return outs


def _of_arrays(f, in_tree, objects: dict[int, Any]) -> Callable:
    """`f` as a function of those argument leaves that are arrays. objects: the other leaves, by position."""

    def of_arrays(*arrays):
        rest = iter(arrays)
        leaves = [objects[i] if i in objects else next(rest) for i in range(in_tree.num_leaves)]
        args, _ = tree.tree_unflatten(in_tree, leaves)
        return f(*args)

    of_arrays.__name__ = callable_name(f)
    return of_arrays


def _as_declared(x: Any, spec: PartitionSpec) -> Any:
    """A result, typed as out_specs say: varying over the axes that split it, and unreduced."""
    x = varying(x, spec.all_axes())
    pending = tuple(sorted(spec.unreduced - typeof(x).mat.unreduced, key=str))
    return registry["vary_unreduced_cast_p"].bind(x, axes=pending) if pending else x


def smap(f: Callable | None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: Any) -> Any:
    """`shard_map` over one axis of the mesh in context.

    Args:
      f: a function of shards.
      in_axes: the array axis of each argument that is split over `axis_name` (None: not split), a prefix pytree.
        Without it, the arguments' own shardings over an axis of type Explicit are used.
      out_axes: the same for results.
      axis_name: an axis of the mesh of `set_mesh`.

    Raises ValueError without a mesh in context, or one without that axis.

    >>> centred = mpijax.smap(lambda x: x - lax.pmean(x, "x"), in_axes=0, out_axes=0, axis_name="x")
    >>> with mpijax.set_mesh(mpijax.make_mesh((1,), ("x",))):
    ...     centred(jnp.arange(3.0))
    Array([0., 0., 0.], dtype=float32)
    """
    if f is None:
        return lambda g: smap(g, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)

    def spec(axis):
        return P() if axis is None else P(*[None] * axis, axis_name)

    def is_axis(x):
        return x is None or isinstance(x, int)

    def specs(axes):
        return tree.tree_map(spec, axes, is_leaf=is_axis)

    in_specs = Infer if in_axes is Infer else specs(in_axes)
    return shard_map(f, in_specs=in_specs, out_specs=specs(out_axes), axis_names={axis_name})


def is_array(x: Any) -> bool:
    try:
        typeof(x)
    except TypeError:
        return False
    return True


