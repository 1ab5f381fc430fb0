"""The containers of a pytree as JSON, and back.

A leaf is its number, None is null, other nodes are objects: {"dict": [[key, node], ...]}, {"list": [node, ...]},
{"tuple": [node, ...]}, and {"node": class, "children": [[key, node], ...]} for namedtuples, dataclasses and registered
classes. Only the name of a class is written, as information: it is never imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpijax.checkpointing.errors import CheckpointError
from mpijax.core.trees import keys as tree_keys

Path = tuple[Any, ...]
# Maximum nesting of containers, below Python's recursion limit.
DEPTH = 200


def encode(tree: Any) -> tuple[Any, list[tuple[Path, Any]]]:
    """(the containers as JSON, [(path, leaf), ...]). TypeError for dict keys that JSON does not support."""
    leaves: list[tuple[Path, Any]] = []

    def visit(path: Path, x: Any) -> Any:
        if x is None:
            return None
        parts = tree_keys.keyed_children(x)
        if parts is None:
            leaves.append((path, x))
            return len(leaves) - 1
        if len(path) >= DEPTH:
            raise ValueError(f"A checkpoint supports at most {DEPTH} levels of nested containers. This tree has more.")
        pairs = [(_plain(key, path), child) for key, child in parts[0]]
        children = [[key, visit((*path, key), child)] for key, child in pairs]
        kind = type(x)
        if kind is dict:
            return {"dict": children}
        if kind in (list, tuple):
            return {kind.__name__: [node for _, node in children]}
        return {"node": f"{kind.__module__}.{kind.__qualname__}", "children": children}

    return visit((), tree), leaves


def flatten(tree: Any) -> tuple[list[tuple[Path, Any]], Any]:
    """([(path, leaf), ...], treedef); paths have the form that `encode` uses."""
    pairs, treedef = tree_keys.flatten_with_path(tree)
    out = []
    for keys, leaf in pairs:
        path: Path = ()
        for key in keys:
            path = (*path, _plain(key, path))
        out.append((path, leaf))
    return out, treedef


def _plain(key: Any, path: Path) -> Any:
    """An entry of a path in JSON."""
    value = getattr(key, "_value", key)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(
        f"A checkpoint supports dict keys of type str, int, bool, float or None. The dict at {show(path)} has the key "
        f"{value!r} of type {type(value).__name__}."
    )


def show(path: Path) -> str:
    """A path for people: params/0/w; the tree itself is (the whole)."""
    return "/".join(map(str, path)) or "(the whole)"


def key_of(path: Path) -> Path:
    """A path that can be looked up: 1, True and 1.0 are different keys."""
    return tuple((type(part).__name__, part) for part in path)


def _children(node: Any) -> list[tuple[Any, Any]]:
    """[(key, node), ...] of a container; CheckpointError for anything else."""
    if isinstance(node, dict):
        if len(node) == 1:
            [(kind, parts)] = node.items()
            if kind in ("list", "tuple") and isinstance(parts, list):
                return list(enumerate(parts))
        else:
            kind, parts = "dict", node.get("children")
        pairs = isinstance(parts, list) and all(isinstance(p, list) and len(p) == 2 for p in parts)
        if kind == "dict" and pairs and all(not isinstance(key, (list, dict)) for key, _ in parts):
            return [(key, child) for key, child in parts]
    raise CheckpointError("the metadata contains an invalid tree")


def walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """(path, number) of each leaf. CheckpointError for anything that `encode` does not write."""
    if node is None:
        return
    if isinstance(node, int) and not isinstance(node, bool):
        yield path, node
        return
    if len(path) > DEPTH:
        raise CheckpointError(f"the metadata contains more than {DEPTH} levels of nested containers")
    for key, child in _children(node):
        yield from walk(child, (*path, key))


def decode(node: Any, leaves: list[Any]) -> Any:
    """The tree with these leaves: dicts, lists and tuples; containers of other classes become dicts."""
    if node is None:
        return None
    if isinstance(node, int):
        return leaves[node]
    values = [(key, decode(child, leaves)) for key, child in _children(node)]
    if "list" in node:
        return [value for _, value in values]
    return tuple(value for _, value in values) if "tuple" in node else dict(values)
