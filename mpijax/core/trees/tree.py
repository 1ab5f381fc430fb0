"""Pytrees: nested containers treated as one value with many leaves.

Tuples, lists, dicts (in the order of sorted keys), namedtuples, None (a node without children) and registered types are
nodes. Everything else is a leaf. Subclasses do not inherit this. The traversal is compiled (``mpijax._ext.tree``);
this module has the functions built on it.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from mpijax._ext import tree as _ext
from mpijax.core.trees import keys as tree_keys
from mpijax.core.trees import prefix as tree_prefix
from mpijax.core.trees import registry as tree_registry

PyTreeDef = _ext.PyTreeDef
tree_flatten = _ext.tree_flatten
tree_unflatten = _ext.tree_unflatten
tree_leaves = _ext.tree_leaves
tree_structure = _ext.tree_structure
treedef_tuple = _ext.treedef_tuple

DictKey = tree_keys.DictKey
SequenceKey = tree_keys.SequenceKey
GetAttrKey = tree_keys.GetAttrKey
FlattenedIndexKey = tree_keys.FlattenedIndexKey
KeyEntry = tree_keys.KeyEntry
KeyPath = tree_keys.KeyPath
keystr = tree_keys.keystr

register_pytree_node = tree_registry.register_pytree_node
register_pytree_with_keys = tree_registry.register_pytree_with_keys
register_pytree_node_class = tree_registry.register_pytree_node_class
register_pytree_with_keys_class = tree_registry.register_pytree_with_keys_class
register_dataclass = tree_registry.register_dataclass
register_static = tree_registry.register_static
registered_types = tree_registry.registered_types
is_tree_node = tree_registry.is_tree_node
default_registry = tree_registry.default_registry
none_leaf_registry = tree_registry.none_leaf_registry
Partial = tree_registry.Partial

prefix_errors = tree_prefix.prefix_errors
equality_errors = tree_prefix.equality_errors
equality_errors_pytreedef = tree_prefix.equality_errors_pytreedef
broadcast_flattened_prefix_with_treedef = tree_prefix.broadcast_leaves
flatten_axes = tree_prefix.flatten_axes

IsLeaf = Callable[[Any], bool] | None
_MISSING: Any = object()


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether every element of `iterable` is a leaf.

    >>> mpijax.tree_util.all_leaves([1, 2]), mpijax.tree_util.all_leaves([1, (2, 3)])
    (True, False)
    """
    if is_leaf is None:
        return _ext.all_leaves(iterable)
    items = list(iterable)
    leaves = tree_leaves(items, is_leaf)
    return len(leaves) == len(items) and all(item is leaf for item, leaf in zip(items, leaves))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of the immediate children.

    >>> mpijax.tree_util.treedef_children(mpijax.tree_util.tree_structure({"a": 0, "b": (0, 0)}))
    [PyTreeDef(*), PyTreeDef((*, *))]
    """
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure has a single node: a leaf, or an empty container.

    >>> mpijax.tree_util.treedef_is_leaf(mpijax.tree_util.tree_structure(3))
    True
    """
    return treedef.num_nodes == 1


def treedef_is_strict_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is that of a leaf."""
    return treedef.is_leaf


def build_tree(treedef: PyTreeDef, xs: Any) -> Any:
    """The pytree with this structure, from nested iterables of the same structure.

    >>> mpijax.tree_util.build_tree(mpijax.tree_util.tree_structure({"a": 0, "b": (0, 0)}), [1, [2, 3]])
    {'a': 1, 'b': (2, 3)}
    """
    return treedef.from_iterable_tree(xs)


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Any]:
    """(children, data) of a node; ValueError for a leaf.

    >>> mpijax.tree_util.flatten_one_level({"a": 1, "b": (2, 3)})
    ((1, (2, 3)), ('a', 'b'))
    """
    return _one_level(_ext.flatten_one_level, tree)


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[KeyEntry, Any]], Any]:
    """(pairs (key, child), data) of a node; ValueError for a leaf.

    >>> mpijax.tree_util.flatten_one_level_with_keys([5, 6])[0]
    [(SequenceKey(idx=0), 5), (SequenceKey(idx=1), 6)]
    """
    return _one_level(tree_keys.keyed_children, tree)


def _one_level(flatten: Callable, tree: Any):
    parts = flatten(tree)
    if parts is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    return parts


def _flatten_rest(name: str, treedef: PyTreeDef, tree: Any, rest: tuple, is_leaf: IsLeaf) -> list[list]:
    """For each tree in `rest`, its subtrees at the leaves of `tree`; raises ValueError where a tree does not fit."""
    flat = []
    for other in rest:
        try:
            flat.append(treedef.flatten_up_to(other))
        except Exception as error:
            explained = prefix_errors(tree, other, is_leaf)
            raise (explained[0](name) if explained else error) from None
    return flat


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Applies `f` to every leaf and returns a tree of the same structure.

    Each of `rest` has the structure of `tree`, or has it as a prefix: `f` gets its subtrees as further
    arguments.

    Raises:
      ValueError: if a tree of `rest` does not fit; the message gives the key path.

    >>> mpijax.tree_util.tree_map(lambda x, y: x + y, {"a": 1, "b": [2, 3]}, {"a": 10, "b": [20, 30]})
    {'a': 11, 'b': [22, 33]}
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    if leaves and not callable(f):
        raise TypeError(f"tree_map: the first argument must be a function, got {f!r} of type {type(f).__name__}.")
    if not rest:
        return treedef.unflatten([f(x) for x in leaves])
    others = _flatten_rest("tree_map tree", treedef, tree, rest, is_leaf)
    return treedef.unflatten([f(*xs) for xs in zip(leaves, *others)])


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """([(path, leaf), ...], structure).

    With `is_leaf_takes_path`, `is_leaf` is called with the path and the object.

    >>> leaves, structure = mpijax.tree_util.tree_flatten_with_path({"a": 1, "b": [2, 3]})
    >>> [(mpijax.tree_util.keystr(path), leaf) for path, leaf in leaves]
    [("['a']", 1), ("['b'][0]", 2), ("['b'][1]", 3)]
    """
    return tree_keys.flatten_with_path(tree, is_leaf, is_leaf_takes_path)


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """[(path, leaf), ...]; see `tree_flatten_with_path`.

    >>> [mpijax.tree_util.keystr(path) for path, leaf in mpijax.tree_util.tree_leaves_with_path({"a": [5, 6]})]
    ["['a'][0]", "['a'][1]"]
    """
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


generate_key_paths = tree_leaves_with_path


def tree_map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Like `tree_map`, with the path of each leaf as first argument of `f`.

    >>> show = lambda path, leaf: f"{mpijax.tree_util.keystr(path)}={leaf}"
    >>> mpijax.tree_util.tree_map_with_path(show, {"a": 1, "b": [2]})
    {'a': "['a']=1", 'b': ["['b'][0]=2"]}
    """
    keyed, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    plain_is_leaf = None if is_leaf_takes_path else is_leaf
    others = _flatten_rest("tree_map_with_path tree", treedef, tree, rest, plain_is_leaf)
    return treedef.unflatten([f(path, leaf, *xs) for (path, leaf), *xs in zip(keyed, *others)])


def tree_transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any
) -> Any:
    """Turns a tree of structure outer∘inner into one of structure inner∘outer.

    If `inner_treedef` is None, it is the structure of the first subtree.

    >>> outer, inner = mpijax.tree_util.tree_structure([0, 0]), mpijax.tree_util.tree_structure({"a": 0})
    >>> mpijax.tree_util.tree_transpose(outer, inner, [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    flat, treedef = tree_flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner, outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    if treedef.num_leaves != inner * outer:
        raise TypeError(f"Mismatch\n{treedef}\n != \n{outer_treedef.compose(inner_treedef)}")
    return inner_treedef.unflatten([outer_treedef.unflatten(flat[i::inner]) for i in range(inner)])


def tree_reduce(
    function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _MISSING, is_leaf: IsLeaf = None
) -> Any:
    """`functools.reduce` over the leaves.

    >>> mpijax.tree_util.tree_reduce(lambda x, y: x + y, {"a": 1, "b": [2, 3]})
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    return (
        functools.reduce(function, leaves)
        if initializer is _MISSING
        else functools.reduce(function, leaves, initializer)
    )


def tree_reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _MISSING, is_leaf: IsLeaf = None
) -> Any:
    """Reduces the leaves with an associative operation, as a balanced tree of depth log(leaves).

    >>> mpijax.tree_util.tree_reduce_associative(lambda x, y: x + y, {"a": 1, "b": [2, 3]})
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    if not leaves:
        if identity is _MISSING:
            raise TypeError("Must specify identity for parallel reduction of empty sequence.")
        return identity

    def reduce(xs):
        if len(xs) == 1:
            return xs[0]
        half = len(xs) // 2
        return operation(reduce(xs[:half]), reduce(xs[half:]))

    return reduce(leaves)


def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """``all`` of the leaves.

    >>> mpijax.tree_util.tree_all({"a": True, "b": [True, False]})
    False
    """
    return all(tree_leaves(tree, is_leaf))


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of `prefix_tree`, each repeated for the leaves of its subtree in `full_tree`.

    Raises:
      ValueError: if it is not a prefix; the message gives the key path.
    """
    leaves, treedef = tree_flatten(prefix_tree, is_leaf)
    (subtrees,) = _flatten_rest("broadcast_prefix prefix_tree", treedef, prefix_tree, (full_tree,), is_leaf)
    return [
        leaf for leaf, subtree in zip(leaves, subtrees) for _ in range(tree_structure(subtree).num_leaves)
    ]


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """The leaves of `prefix_tree` in the structure of `full_tree`.

    >>> mpijax.tree_util.tree_broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0})
    {'a': [1, 1], 'b': 2}
    """
    return tree_structure(full_tree).unflatten(broadcast_prefix(prefix_tree, full_tree, is_leaf))
