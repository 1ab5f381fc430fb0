"""Defines `vmap` for users."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from mpijax.core.base.source import callable_name, transforming
from mpijax.core.base.state import state
from mpijax.core.sharding.context import in_types
from mpijax.core.sharding.split import Split, entry
from mpijax.core.tracing.refs import Ref, read, write
from mpijax.core.tracing.trace import current_trace
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.abstract import MappingSpec
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.transforms.batching import AxisData, batch_at, batch_flat
from mpijax.transforms.flat import FlatFun, check_arguments, debug_info, parameter_names, transformed
from mpijax.transforms.ref_state import check_aliases, is_ref
from mpijax.transforms.vmappable import Containers, is_spec, is_vmappable, some_registered


def _mapped_size(
    fun: Callable, args, kwargs, leaves, axes, axis_size: int | None, leaf_of: Sequence[int] | None
) -> int:
    """The common size of the mapped axes; raises ValueError, naming the arguments, if sizes differ.

    leaf_of: for each array the argument that contains it, if arguments are containers of several arrays.
    """
    if not leaves:
        if axis_size is not None:
            return axis_size
        raise ValueError(
            "vmap wrapped function must be passed at least one argument containing an array or axis_size must be "
            f"specified, got empty *args={args} and **kwargs={kwargs}"
        )
    mapped = [
        (i, ax, _size(x, ax))
        for i, (x, ax) in enumerate(zip(leaves, axes, strict=True))
        if ax is not None and not _is_opaque(x, ax)
    ]
    found = {s for _, _, s in mapped}
    if axis_size is not None:
        found.add(axis_size)
    if len(found) == 1:
        return found.pop()
    if not found:
        if any(ax is not None for ax in axes):
            raise ValueError("vmap: all mapped values are of types of other libraries, so axis_size must be specified.")
        raise ValueError("vmap must have at least one non-None value in in_axes or axis_size must be specified")
    names = _argument_names(fun, args, kwargs)
    names = names if leaf_of is None else [names[i] for i in leaf_of]
    lines = [] if axis_size is None else [f"  * the `axis_size` argument was {axis_size}"]
    for rank, (size, count) in enumerate(Counter(s for _, _, s in mapped).most_common()):
        i, ax = next((i, ax) for i, ax, s in mapped if s == size)
        what = f"axis {ax} of {names[i]} of type {typeof(leaves[i]).str_short(False)}"
        if count == 1:
            lines.append(f"  * one axis had size {size}: {what}")
        else:
            lines.append(f"  * {'some' if rank else 'most'} axes ({count} of them) had size {size}, e.g. {what}")
    text = ";\n".join(lines)
    raise ValueError(f"vmap got inconsistent sizes for array axes to be mapped:\n{text}")


def _is_opaque(x: Any, axis: Any) -> bool:
    """Whether only the value's type knows where examples are in it, and how many."""
    return isinstance(axis, MappingSpec) or typeof(x).is_high


def _size(x: Any, axis: int) -> int:
    shape = typeof(x).shape
    if not -len(shape) <= axis < len(shape):
        raise ValueError(
            f"vmap was requested to map its argument along axis {axis}, which implies that its rank should be at "
            f"least {axis + 1 if axis >= 0 else -axis}, but is only {len(shape)} (its shape is {shape})"
        )
    return shape[axis]


def _argument_names(fun: Callable, args, kwargs) -> list[str]:
    """For each leaf `argument x['a']`, `args[3]` for arguments without a name, `kwargs['k']`."""
    try:
        parameters = list(inspect.signature(fun).bind(*args, **kwargs).signature.parameters)
    except (TypeError, ValueError):
        parameters = []
    names = []
    for path, _ in tree.tree_flatten_with_path(tuple(args), is_leaf=is_vmappable)[0]:
        i = path[0].idx
        known = i < len(parameters)
        names.append(f"argument {parameters[i]}{tree.keystr(path[1:])}" if known else f"args{tree.keystr(path)}")
    return names + [
        f"kwargs{tree.keystr(path)}" for path, _ in tree.tree_flatten_with_path(kwargs, is_leaf=is_vmappable)[0]
    ]


def vmap(
    fun: Callable,
    in_axes: int | None | Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable | tuple[Hashable, ...] | None = None,
    sum_match: bool = False,
) -> Callable:
    """Vectorize `fun` over an axis of its arguments.

    Args:
      fun: a function of one example.
      in_axes: the batch axis of each argument (None: the same value for all examples); a pytree prefix
        of the arguments. Keyword arguments are mapped over axis 0.
      out_axes: the position of the batch axis in each result; None for results without it.
      axis_name: a name by which collectives inside `fun` refer to the axis.
      axis_size: the number of examples, if no argument has a mapped axis.
      spmd_axis_name: mesh axes that shardings and `shard_map`s inside `fun` split the batch axis over.

    Raises:
      ValueError: if sizes disagree, axes do not exist, or specifications do not match the arguments.

    >>> mpijax.vmap(jnp.dot)(jnp.ones((2, 3)), jnp.arange(6.0).reshape(2, 3))
    Array([ 3., 12.], dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes(in_axes, out_axes)

    @transformed(
        fun,
        "Vectorized version of {fun}. Takes the arguments of {fun}. Each mapped argument has one more axis, over which "
        "{fun} is mapped.",
    )
    def vmap_f(*args, **kwargs):
        call = _VmapCall(fun, in_axes, out_axes, args, kwargs)
        axis = call.axis(axis_name, axis_size, spmd_axis_name)
        return call.results(axis, *call.batched(axis))

    return vmap_f


def _check_axes(in_axes: Any, out_axes: Any) -> None:
    if not (in_axes is None or _is_axis(in_axes) or isinstance(in_axes, (int, tuple, *tree.registered_types()))):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
            f"arguments passed to the function, but got {in_axes}."
        )
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(map(_is_axis, tree.tree_leaves(axes))):
            raise TypeError(
                f"vmap {name} must be an int, None, or (nested) container with those types as leaves, but got {axes}."
            )


class _VmapCall:
    """A call of a vectorized function.

    leaves, axes: the arrays among the arguments, and the mapped axis of each (None: unmapped; the function receives it
    unchanged, whether an array or not). containers: whether a library's containers of arrays are registered.
    """

    def __init__(self, fun: Callable, in_axes: Any, out_axes: Any, args: tuple, kwargs: dict[str, Any]):
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
                f"arguments passed to the function, but got {len(in_axes)=}, {len(args)=}"
            )
        self.fun, self.out_axes, self.args, self.kwargs = fun, out_axes, args, kwargs
        self.containers = some_registered()
        leaves, in_tree = tree.tree_flatten((args, kwargs), is_leaf=is_vmappable if self.containers else None)
        axes = flatten_axes("vmap in_axes", in_tree, (in_axes, 0), kws=True)
        flat: Any = Containers(fun, in_tree, leaves, axes, out_axes) if self.containers else FlatFun(fun, in_tree)
        self.flat = flat
        self.leaves: Sequence[Any] = flat.arrays if self.containers else leaves
        self.axes: Sequence[Any] = flat.axes if self.containers else axes
        mapped = self.mapped()
        given = [self.leaves[i] for i in mapped]
        check_arguments(given, f"vmap of {callable_name(fun)}", lambda i: self.name_of(mapped[i]))

    def mapped(self) -> list[int]:
        return [i for i, ax in enumerate(self.axes) if ax is not None]

    def name_of(self, i: int) -> str:
        """The name of an array among the arguments."""
        return parameter_names(self.fun, self.args, self.kwargs)[self.flat.leaf_of[i] if self.containers else i]

    def axis(self, name: Any, axis_size: int | None, spmd_axis_name: Any) -> AxisData:
        """The batch axis."""
        leaf_of = self.flat.leaf_of if self.containers else None
        size = _mapped_size(self.fun, self.args, self.kwargs, self.leaves, self.axes, axis_size, leaf_of)
        self.dims = [None if ax is None else _from_front(x, ax) for x, ax in zip(self.leaves, self.axes, strict=True)]
        named = spmd_axis_name if isinstance(spmd_axis_name, tuple) else (spmd_axis_name,)
        split = _mapped_split(self.leaves, self.dims) if ShapedArray.any_split else None
        if split is not None:
            named = tuple(n for n in named if n not in split.mesh.shape or n in in_types((n,), split.mesh))
        spmd = () if spmd_axis_name is None or (split is not None and split.axes[0] == named) else named
        if spmd and split is not None:
            raise ValueError(
                "Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis type is allowed. Got "
                f"spmd_axis_name={spmd_axis_name} and arrays sharded on {entry(split.axes[0])}"
            )
        axis = AxisData(name, size, spmd, split)
        if self.containers:
            self.flat.size, self.flat.place = size, partial(self._placed_now, axis)
        return axis

    def _placed_now(self, axis: AxisData, x: Any, leaf: int, wanted: int | None) -> Any:
        """The batch of an array of the current trace, which a container among the results contains."""
        trace: Any = state.trace
        value, dim = trace.unpack(x)
        with current_trace(trace.parent):
            return _placed(self.fun, axis, self.flat.out_tree, leaf, value, dim, wanted)

    def batched(self, axis: AxisData) -> tuple[list[Any], list[Any]]:
        """The results for all examples, and the position of the batch axis in each."""
        refs = [i for i in self.mapped() if is_ref(self.leaves[i])]
        if not refs:
            with transforming("vmap"):
                return batch_flat(self.flat, axis, self.leaves, self.dims)
        check_aliases((), self.leaves, lambda: debug_info("vmap", self.fun, self.args, self.kwargs))
        return _batch_refs(self.flat, axis, self.leaves, self.dims, refs)

    def results(self, axis: AxisData, outs: list[Any], dims: list[Any]) -> Any:
        """The results with their batch axes where `out_axes` wants them. References become references to batches."""
        made = {i: x.aval.kind for i, x in enumerate(outs) if is_ref(x)}
        for i in made:
            outs[i], dims[i] = outs[i].home.unpack(outs[i].read_in(outs[i].home))
        flat, structure = self.flat, self.flat.out_tree
        wanted = flat.wanted if self.containers else flatten_axes("vmap out_axes", structure, self.out_axes)
        placed = [
            _placed(self.fun, axis, structure, flat.result_of[i] if self.containers else i, *each)
            for i, each in enumerate(zip(outs, dims, wanted, strict=True))
        ]
        for i, kind in made.items():
            placed[i] = Ref.of(placed[i], kind)
        return flat.result(placed) if self.containers else tree.tree_unflatten(structure, placed)


def _is_axis(leaf: Any) -> bool:
    return type(leaf) is int or isinstance(leaf, MappingSpec) or is_spec(leaf)


def _from_front(x: Any, axis: Any) -> Any:
    """An axis counted from the front; what the type of `x` alone understands as it is."""
    return axis if _is_opaque(x, axis) else axis % typeof(x).ndim


def _mapped_split(leaves: Sequence[Any], dims: Sequence[int | None]) -> Split | None:
    """The split of the mapped axes over Explicit mesh axes. Raises ValueError if they are not split alike."""
    # The type of a mutable array reference has no split.
    found = [(getattr(typeof(x), "split", None), d) for x, d in zip(leaves, dims, strict=True) if d is not None]
    each = [None if split is None else split.of_axis(d) for split, d in found]
    for split in each[1:]:
        if split != each[0]:
            specs = [None if e is None else entry(e.axes[0]) for e in (each[0], split)]
            raise ValueError(
                "Mapped away dimension of inputs passed to vmap should be sharded the same. Got inconsistent axis "
                f"specs: {specs[0]} vs {specs[1]}. Use jax.sharding.reshard on one of them."
            )
    return each[0] if each else None


def _batch_refs(flat_fun: FlatFun, axis: AxisData, leaves, dims, positions: list[int]):
    """Like `batch_flat`, but the arguments at `positions` are references, and each example gets a part of them."""
    values = list(leaves)
    for i in positions:
        values[i] = read(leaves[i])

    def with_refs(*examples):
        given = list(examples)
        for i in positions:
            given[i] = Ref.of(given[i], leaves[i].aval.kind)
        outs = flat_fun(*given)
        return [*outs, *(read(given[i]) for i in positions)]

    with transforming("vmap"):
        outs, out_dims = batch_flat(with_refs, axis, values, dims)
    n = len(outs) - len(positions)
    for i, value, dim in zip(positions, outs[n:], out_dims[n:], strict=True):
        write(leaves[i], batch_at(value, dim, dims[i], axis))
    return outs[:n], out_dims[:n]


def _placed(fun: Callable, axis: AxisData, structure, i: int, out: Any, dim: int | None, wanted: int | None) -> Any:
    """The i-th result, with its batch axis where `out_axes` requires it."""
    try:
        typeof(out)
    except TypeError:
        raise TypeError(
            f"Output from batched function {out!r} with type {type(out)} is not a valid JAX type. "
            f"{callable_name(fun)} must return arrays, numbers or pytrees of them."
        ) from None
    if wanted is None:
        if dim is not None:
            places = tree.tree_flatten_with_path(tree.tree_unflatten(structure, range(structure.num_leaves)))[0]
            named = "" if axis.name is None else f" (axis_name={axis.name})"
            raise ValueError(
                f"at vmap out_axes{tree.keystr(places[i][0])}, got axis spec None but output was batched on axis {dim}"
                f": vmap has mapped output{named} but out_axes is None. {callable_name(fun)} returned a mapped value "
                f"of type {typeof(out).str_short(False)}. Use an int in out_axes, or reduce over the mapped axis in "
                "the function."
            )
        return out
    if _is_opaque(out, wanted):
        return batch_at(out, dim, wanted, axis)
    ndim = typeof(out).ndim + (dim is None)
    if not -ndim <= wanted < ndim:
        raise ValueError(
            f"vmap out_axes: axis {wanted} is out of bounds for array of dimension {ndim}, which "
            f"{callable_name(fun)} returned"
        )
    return batch_at(out, dim, wanted % ndim, axis)
