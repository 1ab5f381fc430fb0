"""The pytree functions of ``mpijax.tree_util`` under short names, for ``mpijax.tree.map(...)``."""

import dataclasses as _dataclasses

from mpijax.core.trees import tree as _tree

all = _tree.tree_all
broadcast = _tree.tree_broadcast
flatten = _tree.tree_flatten
flatten_with_path = _tree.tree_flatten_with_path
leaves = _tree.tree_leaves
leaves_with_path = _tree.tree_leaves_with_path
map = _tree.tree_map
map_with_path = _tree.tree_map_with_path
reduce = _tree.tree_reduce
reduce_associative = _tree.tree_reduce_associative
structure = _tree.tree_structure
transpose = _tree.tree_transpose
unflatten = _tree.tree_unflatten


def static(**kwargs):
    """A `dataclasses.field` that `tree_util.register_dataclass` takes as static; the same arguments.

    >>> import dataclasses
    >>> @mpijax.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: object
    ...     name: str = mpijax.tree.static()
    >>> mpijax.tree.leaves(Layer(1.0, "first"))
    [1.0]
    """
    metadata = {"static": True, **(kwargs.pop("metadata", None) or {})}
    return _dataclasses.field(metadata=metadata, **kwargs)
