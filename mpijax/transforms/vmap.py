"""`vmap` as users call it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any

from mpijax.core import tree
from mpijax.core.source import callable_name
from mpijax.core.trace import typeof
from mpijax.transforms.batching import AxisData, batch_at, batch_flat
from mpijax.transforms.flat import FlatFun, check_arguments, parameter_names


def _flatten_axes(what: str, axes: Any, structure, kws: bool = False) -> list[int | None]:
    """One axis per leaf from a prefix pytree of axes."""
    dummy = tree.tree_unflatten(structure, [object()] * structure.num_leaves)
    flat: list[int | None] = []
    try:
        tree.tree_map(
            lambda ax, sub: flat.extend([ax] * len(tree.tree_leaves(sub))),
            axes,
            dummy,
            is_leaf=lambda x: x is None,
        )
    except ValueError:
        raise ValueError(
            f"{what} specification must be a tree prefix of the corresponding value, got specification "
            f"{axes} for value tree {structure}."
        ) from None
    return flat


def _mapped_size(fun: Callable, leaves, axes, axis_size: int | None, names: Callable[[], list[str]]) -> int:
    """The common size of the mapped axes; raises ValueError, naming each argument, when they differ."""
    sizes: list[tuple[int, int]] = []
    for i, (x, ax) in enumerate(zip(leaves, axes, strict=True)):
        if ax is None:
            continue
        aval = typeof(x)
        if not -aval.ndim <= ax < aval.ndim:
            raise ValueError(
                f"vmap was requested to map its argument along axis {ax}, which implies that its rank should "
                f"be at least {ax + 1 if ax >= 0 else -ax}, but is only {aval.ndim} (its shape is "
                f"{aval.shape})"
            )
        sizes.append((i, aval.shape[ax]))
    found = {s for _, s in sizes}
    if axis_size is not None:
        found.add(axis_size)
    if len(found) == 1:
        return found.pop()
    if not found:
        raise ValueError("vmap must have at least one non-None value in in_axes or axis_size must be specified")
    arg_names = names()

    def name(i):
        return f"argument {arg_names[i]}" if i < len(arg_names) else f"leaf {i}"

    lines = "\n".join(
        f"  * axis {axes[i]} of {name(i)} of type {typeof(leaves[i]).str_short(False)} had size {s}" for i, s in sizes
    )
    given = f"\n  * axis_size={axis_size} was given" if axis_size is not None else ""
    raise ValueError(f"vmap got inconsistent sizes for array axes to be mapped:\n{lines}{given}")


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
      in_axes: which axis of each argument holds the examples (None: the same for all); a pytree prefix
        of the arguments. Keyword arguments are mapped over axis 0.
      out_axes: where that axis goes in each result; None for results without it.
      axis_name: a name by which collectives inside `fun` refer to the axis.
      axis_size: the number of examples, where no argument tells.

    Raises:
      ValueError: when sizes disagree, axes do not exist, or specifications do not fit the arguments.
    """
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple, *tree.registered_types()))):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
            f"arguments passed to the function, but got {in_axes}."
        )
    if not all(type(leaf) is int for leaf in tree.tree_leaves(in_axes)):
        raise TypeError(
            f"vmap in_axes must be an int, None, or (nested) container with those types as leaves, but got {in_axes}."
        )
    if not all(type(leaf) is int for leaf in tree.tree_leaves(out_axes)):
        raise TypeError(
            f"vmap out_axes must be an int, None, or (nested) container with those types as leaves, but got {out_axes}."
        )

    @wraps(fun)
    def vmap_f(*args, **kwargs):
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
                f"arguments passed to the function, but got {len(in_axes)=}, {len(args)=}"
            )
        leaves, in_tree = tree.tree_flatten((args, kwargs))

        def names():
            return parameter_names(fun, args, kwargs)

        check_arguments(leaves, f"vmap of {callable_name(fun)}", lambda i: names()[i])
        args_tree, kwargs_tree = in_tree.children()
        axes = _flatten_axes("vmap in_axes", in_axes, args_tree) + [0] * kwargs_tree.num_leaves
        size = _mapped_size(fun, leaves, axes, axis_size, names)
        dims = [None if ax is None else ax % typeof(x).ndim for x, ax in zip(leaves, axes, strict=True)]
        flat_fun = FlatFun(fun, in_tree)
        outs, out_dims = batch_flat(flat_fun, AxisData(axis_name, size), leaves, dims)
        wanted = _flatten_axes("vmap out_axes", out_axes, flat_fun.out_tree)
        return tree.tree_unflatten(
            flat_fun.out_tree,
            [_placed(fun, o, d, w, size) for o, d, w in zip(outs, out_dims, wanted, strict=True)],
        )

    return vmap_f


def _placed(fun: Callable, out: Any, dim: int | None, wanted: int | None, size: int) -> Any:
    """A result with its batch axis where `out_axes` wants it."""
    if wanted is None:
        if dim is not None:
            raise ValueError(
                f"at vmap out_axes, got axis spec None but output was batched on axis {dim}: what "
                f"{callable_name(fun)} returned, of type {typeof(out).str_short(False)}, differs from "
                "example to example"
            )
        return out
    ndim = typeof(out).ndim + (dim is None)
    if not -ndim <= wanted < ndim:
        raise ValueError(
            f"vmap out_axes: axis {wanted} is out of bounds for array of dimension {ndim}, which "
            f"{callable_name(fun)} returned"
        )
    return batch_at(out, dim, wanted % ndim, size)
