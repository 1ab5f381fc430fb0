"""Explains where and why one pytree is not a prefix of another, or differs from it in structure."""

import difflib
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from mpijax._ext import tree as _ext
from mpijax.core.trees.keys import KeyPath, keyed_children, keystr

Failure = Callable[[str], ValueError]


def _is_single_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None) -> bool:
    return _ext.tree_structure(tree, is_leaf).is_leaf


def _level(tree: Any) -> tuple[list, list, Any]:
    """(keys, children, data) of a node."""
    parts = keyed_children(tree)
    assert parts is not None, "not a node"
    pairs, data = parts
    return [key for key, _ in pairs], [child for _, child in pairs], data


def _show(keys) -> str:
    return " ".join(str(getattr(key, "_value", key)) for key in keys)


def _difference(keys1: list, keys2: list) -> list | None:
    """Keys that only one list has; None if they cannot be compared."""
    try:
        return sorted(set(keys1) ^ set(keys2), key=[*keys1, *keys2].index)
    except TypeError:
        return None


def _failure(what: str, path: KeyPath, details: str) -> Failure:
    """A function that makes the error from the caller's name for the tree."""
    return lambda name: ValueError(
        f"pytree structure error: {what} at key path\n    {name}{keystr(path)}\n"
        f"At that key path, the prefix pytree {name} has a subtree of type{details}"
    )


def _count_failure(path: KeyPath, prefix: Any, keys: list, full_keys: list) -> Failure:
    difference = _difference(keys, full_keys)
    return _failure(
        "different numbers of pytree children",
        path,
        f"\n    {type(prefix)}\nwith {len(keys)} child keys\n    {_show(keys)}\n"
        "but at the same key path the full pytree has a subtree of the same type but with "
        f"{len(full_keys)} child keys\n    {_show(full_keys)}\n"
        + (
            ""
            if difference is None
            else f"so the symmetric difference on key sets is\n    {_show(difference)}"
        ),
    )


def _metadata_failure(path: KeyPath, prefix: Any, data: Any, full_data: Any) -> Failure:
    lines = difflib.ndiff(str(data).splitlines(), str(full_data).splitlines())
    return _failure(
        "different pytree metadata",
        path,
        f"\n    {type(prefix)}\nwith metadata\n    {data}\n"
        "but at the same key path the full pytree has a subtree of the same type but with metadata\n"
        f"    {full_data}\n"
        "so the diff in the metadata at these pytree nodes is\n" + textwrap.indent("\n".join(lines), "    "),
    )


def _failures(
    path: KeyPath, prefix: Any, full: Any, is_leaf: Callable[[Any], bool] | None
) -> Iterator[Failure]:
    if _is_single_leaf(prefix, is_leaf):
        return
    if type(prefix) is not type(full):
        yield _failure(
            "different types",
            path,
            f"\n    {type(prefix)}\n"
            f"but at the same key path the full pytree has a subtree of different type\n    {type(full)}.",
        )
        return
    keys, children, data = _level(prefix)
    full_keys, full_children, full_data = _level(full)
    if isinstance(prefix, (list, tuple)) and len(prefix) != len(full):
        name = type(prefix).__name__
        yield _failure(
            f"different lengths of {name}",
            path,
            f" {name} of length {len(prefix)}, but the full pytree has a subtree of the same type "
            f"but of length {len(full)}.",
        )
    elif len(keys) != len(full_keys):
        yield _count_failure(path, prefix, keys, full_keys)
    elif data != full_data:
        yield _metadata_failure(path, prefix, data, full_data)
    else:
        for key, child, full_child in zip(keys, children, full_children):
            yield from _failures((*path, key), child, full_child, is_leaf)


def prefix_errors(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[Callable[[str], ValueError]]:
    """One entry for each position where `prefix_tree` is not a prefix of `full_tree`.

    Each entry is a function from the caller's name for the tree to the error.
    """
    return list(_failures((), prefix_tree, full_tree, is_leaf))


def equality_errors(
    tree1: Any, tree2: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Iterator[tuple[KeyPath, str, str, str]]:
    """The positions where two structures differ: (path, what tree1 has, what tree2 has, explanation)."""
    yield from _differences((), tree1, tree2, is_leaf)


def _children_differ(t1: Any, t2: Any, keys1: list, keys2: list) -> tuple[str, str, str]:
    difference = _difference(keys1, keys2)
    shown = " ".join(repr(getattr(key, "_value", key)) for key in difference or ())
    counts = [
        f"{type(t)} with {len(k)} child{'ren' if len(k) > 1 else ''}" for t, k in ((t1, keys1), (t2, keys2))
    ]
    suffix = f", with the symmetric difference of key sets: {{{shown}}}" if shown else ""
    return counts[0], counts[1], f"the numbers of children do not match{suffix}"


def _differences(path: KeyPath, t1: Any, t2: Any, is_leaf) -> Iterator[tuple[KeyPath, str, str, str]]:
    if _is_single_leaf(t1, is_leaf) and _is_single_leaf(t2, is_leaf):
        return
    if type(t1) is not type(t2):
        yield path, str(type(t1)), str(type(t2)), "their Python types differ"
        return
    keys1, children1, data1 = _level(t1)
    keys2, children2, data2 = _level(t2)
    if isinstance(t1, (list, tuple)) and len(t1) != len(t2):
        name = type(t1).__name__
        yield path, f"{name} of length {len(t1)}", f"{name} of length {len(t2)}", "the lengths do not match"
    elif len(keys1) != len(keys2):
        yield path, *_children_differ(t1, t2, keys1, keys2)
    elif data1 != data2:
        described = [f"{type(t1)} with pytree metadata {data}" for data in (data1, data2)]
        yield path, described[0], described[1], "the pytree node metadata does not match"
    else:
        for key, child1, child2 in zip(keys1, children1, children2):
            yield from _differences((*path, key), child1, child2, is_leaf)


class _LeafMeta(type):
    def __repr__(cls):
        return "pytree leaf"


class _Leaf(metaclass=_LeafMeta):
    """Placeholder for a leaf whose value is unknown. Its type also prints as "pytree leaf"."""

    def __repr__(self):
        return "pytree leaf"


def _with_leaves(treedef: _ext.PyTreeDef) -> Any:
    return treedef.unflatten([_Leaf()] * treedef.num_leaves)


def equality_errors_pytreedef(
    treedef1: _ext.PyTreeDef, treedef2: _ext.PyTreeDef
) -> Iterator[tuple[KeyPath, str, str, str]]:
    """`equality_errors` for structures."""
    return equality_errors(_with_leaves(treedef1), _with_leaves(treedef2))


def broadcast_leaves(prefix_leaves: list, prefix: _ext.PyTreeDef, full: _ext.PyTreeDef) -> list:
    """The leaf in `prefix_leaves` for each leaf of `full`; `prefix` must be a prefix of `full`.

    Raises:
      ValueError: if it is not, without details: a good message needs the trees themselves.
    """
    out: list = []
    remaining = iter(prefix_leaves)

    def visit(prefix, full):
        if prefix.is_leaf:
            out.extend([next(remaining)] * full.num_leaves)
            return
        if prefix.node_data() != full.node_data():
            raise ValueError(f"expected {full.node_data()}, got {prefix.node_data()}")
        for child, full_child in zip(prefix.children(), full.children(), strict=True):
            visit(child, full_child)

    visit(prefix, full)
    return out


def flatten_axes(
    name: str, treedef: _ext.PyTreeDef, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False
) -> list:
    """The entries of `axis_tree`, one for each leaf of `treedef`.

    `axis_tree` is a prefix of `treedef`; None is a leaf in it.

    Args:
      name: the caller's name for `axis_tree`, for messages.
      kws: both trees are pairs (positional, keyword arguments); messages mention the positional ones.
      tupled_args: `axis_tree` belongs to an argument list, so a forgotten tuple is a likely mistake.

    Raises:
      ValueError: if it is not a prefix; the message lists the positions.

    >>> mpijax.api_util.flatten_axes("in_axes", mpijax.tree.structure((1, (2, 3))), (0, None))
    [0, None, None]
    """
    leaves, axis_treedef = _ext.tree_flatten_none_is_leaf(axis_tree)
    try:
        return broadcast_leaves(leaves, axis_treedef, treedef)
    except ValueError:
        pass
    if kws:
        treedef, axis_tree = treedef.children()[0], axis_tree[0]
    hint = ""
    if tupled_args:
        hint = (
            f" Note that {name} that are non-trivial pytrees should always be wrapped in a tuple "
            "representing the argument list."
        )
        if (
            treedef.node_data() == (tuple, None)
            and len(treedef.children()) == 1
            and _fits(treedef, (axis_tree,))
        ):
            hint += (
                f" In particular, you're passing in a single argument which means that {name} might need "
                "to be wrapped in a singleton tuple."
            )
    errors = prefix_errors(axis_tree, _with_leaves(treedef))
    details = "\n  ".join(str(error(name)) for error in errors)
    raise ValueError(
        f"{name} specification must be a tree prefix of the corresponding value; {hint}\n"
        f"  Mismatch details ({len(errors)} found):\n  {details}"
    )


def is_prefix(axis_tree: Any, of: Any) -> bool:
    """Whether a pytree, in which None is a leaf, is a prefix of another one."""
    return _fits(_ext.tree_flatten(of)[1], axis_tree)


def _fits(treedef: _ext.PyTreeDef, axis_tree: Any) -> bool:
    leaves, axis_treedef = _ext.tree_flatten_none_is_leaf(axis_tree)
    try:
        broadcast_leaves(leaves, axis_treedef, treedef)
    except ValueError:
        return False
    return True
