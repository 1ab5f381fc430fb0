"""`pmap`: runs a function on all devices at once, each on one element of the arguments along an axis.

Each process passes the elements for its own devices and gets their results. `pmap` is a `jit` of a `shard_map` over a
mesh with one axis.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from mpijax.core.base.source import callable_name, sources_of_function
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import broadcast_leaves, flatten_axes, prefix_errors
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.devices import devices
from mpijax.runtime.arrays.placement import device_put
from mpijax.spmd.local_views import to_global, to_local
from mpijax.spmd.shard_map import shard_map
from mpijax.transforms.batching import move_dim
from mpijax.transforms.jit import jit

_NO_NAME = "_internal_pmap_axis_name"


def pmap(
    fun: Callable,
    axis_name: Hashable | None = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
) -> Callable:
    """Run `fun` on every device, each on one element of the mapped axis of the arguments.

    The axis has one element per device of this process, so length 1 on a rank with one device. In a job of one process
    it may be shorter; then the first devices are used. Collectives over `axis_name` are over the devices of all
    processes, and every process must make the same call.

    Args:
      fun: a function of one example.
      axis_name: the name of the axis in collectives.
      in_axes: the mapped axis of each argument (None: not mapped, all devices get the whole); a prefix pytree. Keyword
        arguments are mapped over axis 0.
      out_axes: the position of the mapped axis in each result, counted from the end if negative; None for results that
        are equal on all devices.
      static_broadcasted_argnums: positions of arguments that are hashable Python values.
      devices: the devices to run on, of all processes; by default all.
      backend: "cpu" or None.
      axis_size: the expected number of devices of all processes, which is checked.
      donate_argnums: positions of arguments whose memory may be reused.

    Raises:
      ValueError: the mapped axis does not have one element per device of this process, no argument is mapped, or a
        static argument is not hashable.

    >>> mpijax.pmap(lambda x: x + 1)(jnp.zeros((mpijax.local_device_count(), 2)))
    Array([[1., 1.]], dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if devices is not None and not devices:
        raise ValueError("'devices' argument to pmap must be non-empty, or None.")
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(type(leaf) is int for leaf in tree.tree_leaves(axes)):
            raise TypeError(
                f"pmap {what} must be an int, None, or (nested) container with those types as leaves, but got {axes}."
            )
    mapped = _Pmap(
        fun, _NO_NAME if axis_name is None else axis_name, tuple(in_axes) if isinstance(in_axes, list) else in_axes,
        out_axes, _positions(static_broadcasted_argnums), devices, backend, axis_size, _positions(donate_argnums),
    )  # fmt: skip

    @wraps(fun)
    def wrapped(*args, **kwargs):
        program, leaves, _ = mapped.program_for(args, kwargs)
        return program(*leaves)

    def lower(*args, **kwargs):
        """The program lowered to loop nests, ready to compile."""
        program, leaves, structure = mapped.program_for(args, kwargs)
        return program.trace(*leaves).of_structure(structure).lower()

    wrapped.lower = lower  # type: ignore[attr-defined]
    return wrapped


def _positions(argnums) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


class _Pmap:
    """A mapped function: its programs, keyed by the structure of the arguments, their axes and the static ones."""

    def __init__(self, fun, axis_name, in_axes, out_axes, static, devices, backend, axis_size, donated) -> None:
        self.fun, self.axis_name, self.in_axes, self.out_axes = fun, axis_name, in_axes, out_axes
        self.static, self.devices, self.backend = static, devices, backend
        self.axis_size, self.donated = axis_size, donated
        self._meshes: dict[int, Mesh] = {}
        self._programs: dict[Any, Callable] = {}

    def mesh_of(self, size: int) -> Mesh:
        """The mesh for `size` elements in this process: all devices, or the first ones if this is the only process."""
        if size not in self._meshes:
            chosen = list(self.devices) if self.devices is not None else devices(self.backend)
            mesh = Mesh(np.array(chosen, dtype=object), (self.axis_name,))
            if not mesh.local_devices:
                raise ValueError(f"pmap over {chosen}: none of these devices belongs to this process")
            if self.devices is None and mesh.is_local and 0 < size < mesh.size:
                mesh = Mesh(np.array(chosen[:size], dtype=object), (self.axis_name,))
            self._meshes[size] = mesh
        return self._meshes[size]

    def program_for(self, args, kwargs) -> tuple[Any, list[Any], tree.PyTreeDef]:
        """The jitted function of flat arguments, these, and the structure of ``(args, kwargs)`` without statics."""
        statics, dynamic, in_axes = self._split(args)
        leaves, structure = tree.tree_flatten((dynamic, kwargs))
        given = self._axes_of_leaves(structure, in_axes, dynamic, kwargs)
        mesh = self._checked_mesh(leaves, given)
        axes = tuple(ax if ax is None else ax % typeof(x).ndim for x, ax in zip(leaves, given, strict=True))
        key = structure, axes, statics, mesh.size
        program = self._programs.get(key)
        if program is None:
            fun = partial(_with_statics, self.fun, dict(statics)) if statics else self.fun
            donated = self._donated(dynamic, len(args))
            program = self._programs[key] = jit(self._body(fun, mesh, structure, axes), donate_argnums=donated)
        return program, [self._on_devices(x, mesh, ax) for x, ax in zip(leaves, axes, strict=True)], structure

    def _on_devices(self, x: Any, mesh: Mesh, axis: int | None) -> Any:
        """An argument, moved from other devices of this process if necessary."""
        held = getattr(x, "_sharding", None)
        if held is None or not mesh.is_local or held._device_assignment == tuple(mesh.devices.flat):
            return x
        return device_put(x, NamedSharding(mesh, self._spec(axis)))

    @staticmethod
    def _axes_of_leaves(structure, in_axes, args, kwargs) -> list:
        """The axis of each leaf; raises ValueError if `in_axes` is not a prefix of the positional arguments."""
        axes, prefix = tree.tree_flatten((in_axes, 0), is_leaf=lambda x: x is None)
        try:
            return broadcast_leaves(axes, prefix, structure)
        except ValueError:
            first, *_ = prefix_errors((in_axes, 0), (args, kwargs))
        keywords = (
            "\n\nWhen some arguments are passed by keyword to the pmapped function, they are not included in the "
            "comparison to `in_axes`. Instead, each argument passed by keyword is mapped over its leading axis."
        )
        raise ValueError(
            f"{first('pmap in_axes')}\n\nThe 'full pytree' here is the tuple of arguments passed positionally to the "
            "pmapped function, and the value of `in_axes` must be a tree prefix of that tuple. But it was not a prefix."
            f"{keywords if kwargs else ''}\n\nCheck that the value of the `in_axes` argument to `pmap` is a tree "
            "prefix of the tuple of arguments passed positionally to the pmapped function."
        )

    def _split(self, args):
        """Static arguments as pairs (position, value), the other arguments, and their axes."""
        if not self.static:
            return (), args, self.in_axes
        if max(self.static) >= len(args):
            raise ValueError(
                f"pmapped function has static_broadcasted_argnums={self.static} but was called with only {len(args)} "
                f"positional argument{'s' if len(args) > 1 else ''}. All static broadcasted arguments must be passed "
                "positionally."
            )
        for i in self.static:
            try:
                hash(args[i])
            except TypeError:
                raise ValueError(
                    "Non-hashable static arguments are not supported, as this can lead to unexpected cache-misses. "
                    f"Static argument (index {i}) of type {type(args[i])} for function {callable_name(self.fun)} is "
                    "non-hashable."
                ) from None
        dynamic = [i for i in range(len(args)) if i not in self.static]
        axes = tuple(self.in_axes[i] for i in dynamic) if isinstance(self.in_axes, tuple) else self.in_axes
        return tuple((i, args[i]) for i in self.static), tuple(args[i] for i in dynamic), axes

    def _donated(self, dynamic, count: int) -> tuple[int, ...]:
        """Flat positions of donated arguments."""
        positions = [i for i in range(count) if i not in self.static]
        flags = [
            i in self.donated for i, a in zip(positions, dynamic, strict=True) for _ in tree.tree_leaves(a)
        ]
        return tuple(k for k, given in enumerate(flags) if given)

    def _checked_mesh(self, leaves, axes) -> Mesh:
        if all(ax is None for ax in axes):
            raise ValueError("pmap requires at least one argument with a mapped axis.")
        mapped = [(typeof(x).shape, ax) for x, ax in zip(leaves, axes, strict=True) if ax is not None]
        for shape, ax in mapped:
            if not -len(shape) <= ax < len(shape):
                raise ValueError(f"pmap: axis {ax} is out of bounds for an argument of shape {shape}")
        mesh = self.mesh_of(mapped[0][0][mapped[0][1]])
        local = len(mesh.local_devices)
        for shape, ax in mapped:
            if shape[ax] != local:
                raise ValueError(
                    f"pmap: axis {ax} of an argument of shape {shape} has size {shape[ax]}, but this process has "
                    f"{local} of the {mesh.size} devices. Pass the elements of its own devices on every process "
                    f"(x[r:r+1] on rank r of {mesh.size}), or start {shape[ax]} ranks. On one rank, use vmap."
                )
        if self.axis_size is not None and self.axis_size != mesh.size:
            raise ValueError(f"Specified axis_size {self.axis_size} doesn't match received axis_size {mesh.size}.")
        return mesh

    def _body(self, fun, mesh: Mesh, structure, axes) -> Callable:
        out_axes = self.out_axes
        in_specs = tuple(self._spec(ax) for ax in axes)
        # A negative axis becomes a position once the rank of the result is known; until then it is the first axis.
        out_specs = tree.tree_map(lambda ax: self._spec(_first(ax)), out_axes, is_leaf=lambda ax: ax is None)

        def axes_of_results(structure) -> list:
            return flatten_axes("pmap out_axes", structure, out_axes)

        def shards(*flat_args):
            args = [x if ax is None else _squeeze(x, ax) for x, ax in zip(flat_args, axes, strict=True)]
            positional, named = tree.tree_unflatten(structure, args)
            with sources_of_function(fun):
                outs, out_structure = tree.tree_flatten(fun(*positional, **named))
            placed = zip(outs, axes_of_results(out_structure), strict=True)
            return tree.tree_unflatten(out_structure, [x if ax is None else _expand(x, _first(ax)) for x, ax in placed])

        mapped = shard_map(shards, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

        def _fun(*flat_args):
            out = mapped(*(to_global(x, mesh, s) for x, s in zip(flat_args, in_specs, strict=True)))
            outs, out_structure = tree.tree_flatten(out)
            placed = zip(outs, axes_of_results(out_structure), strict=True)
            return tree.tree_unflatten(out_structure, [self._local(x, mesh, ax) for x, ax in placed])

        return _fun

    def _local(self, x: Any, mesh: Mesh, axis: int | None) -> Any:
        """This process's elements of a result, with the mapped axis at `axis`."""
        local = to_local(x, mesh, self._spec(_first(axis)))
        return _first_moved(local, axis) if axis is not None and axis < 0 else local

    def _spec(self, axis: int | None) -> PartitionSpec:
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, self.axis_name)


def _with_statics(fun, statics: dict[int, Any], *dynamic, **named):
    rest = iter(dynamic)
    count = len(statics) + len(dynamic)
    return fun(*(statics[i] if i in statics else next(rest) for i in range(count)), **named)


def _first(axis: int | None) -> int | None:
    """The axis, or 0 if it is negative."""
    return None if axis is None else max(axis, 0)


def _first_moved(x, axis: int):
    """`x` with its first axis at `axis`, which is negative."""
    ndim = typeof(x).ndim
    if axis < -ndim:
        raise ValueError(f"pmap out_axes: axis {axis} is out of bounds for a result with {ndim} axes")
    return move_dim(x, 0, axis)


def _squeeze(x, axis: int):
    return registry["squeeze"].bind(x, dimensions=(axis,))


def _expand(x, axis: int):
    shape = list(typeof(x).shape)
    shape.insert(axis, 1)
    kept = tuple(i for i in range(len(shape)) if i != axis)
    return registry["broadcast_in_dim"].bind(x, shape=tuple(shape), broadcast_dimensions=kept, sharding=None)
