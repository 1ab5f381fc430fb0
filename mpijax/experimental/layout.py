"""``mpijax.experimental.layout``: layouts of arrays in memory and over devices."""

from typing import Any

from mpijax import missing as _missing
from mpijax.core.sharding.format import Format, Layout
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.typeof import typeof

__all__ = ["Format", "Layout", "with_layout_constraint"]


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """`x` (a pytree) with a memory layout. Returns `x` unchanged: every array is in row-major order.

    layouts: a prefix pytree of `Layout`s.

    Raises:
      ValueError: a leaf is not a `Layout`, or its number of axes is not that of the array.

    >>> from mpijax.experimental.layout import Layout, with_layout_constraint
    >>> with_layout_constraint(jnp.arange(3), Layout(major_to_minor=(0,)))
    Array([0, 1, 2], dtype=int32)
    """
    leaves, structure = tree.tree_flatten(x)
    flat = flatten_axes("with_layout_constraint layouts", structure, layouts)
    if any(not isinstance(layout, Layout) for layout in flat):
        raise ValueError(
            f"layouts passed to `with_layout_constraint` must be of type `Layout`. Got {[type(a) for a in flat]}"
        )
    for leaf, layout in zip(leaves, flat, strict=True):
        shape = typeof(leaf).shape
        if len(layout.major_to_minor) != len(shape):
            raise ValueError(
                f"One of with_layout_constraint arguments is incompatible with its layout annotation {layout}: Length "
                "of major_to_minor and the rank of the value should match. Got "
                f"major_to_minor={layout.major_to_minor} and shape={shape}"
            )
    return x


def __getattr__(name: str):
    raise _missing.error(__name__, name)
