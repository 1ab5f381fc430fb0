"""Serializes pytree structures. User-registered node types need a name, and functions that serialize their data."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mpijax._ext import tree as _ext
from mpijax.core.trees import tree

_BUILT_IN: dict[type, str] = {tuple: "tuple", list: "list", dict: "dict", type(None): "none"}
_BY_NAME = {name: kind for kind, name in _BUILT_IN.items()}


class _Registration(NamedTuple):
    kind: type
    name: str
    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], Any]
    from_children: Callable[[Any, Sequence[Any]], Any]


_by_type: dict[type, _Registration] = {}
_by_name: dict[str, _Registration] = {}


def register_pytree_node_serialization(
    nodetype: type,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> type:
    """Define how nodes of a type are serialized in the arguments or results of an exported function.

    Args:
      nodetype: a type registered with `tree_util.register_pytree_node`.
      serialized_name: the type's name in the file; the loading process must register the same name.
      serialize_auxdata, deserialize_auxdata: convert the node's `aux_data` to bytes and back.
      from_children: ``(aux_data, children) -> node``; by default the registered unflatten function.

    Raises:
      ValueError: if the type or the name is already registered, or the type is not a pytree node.

    >>> class Box:
    ...     def __init__(self, content):
    ...         self.content = content
    >>> mpijax.tree_util.register_pytree_node(Box, lambda box: ((box.content,), None), lambda aux, cs: Box(*cs))
    >>> as_bytes = {"serialize_auxdata": lambda aux: b"", "deserialize_auxdata": lambda data: None}
    >>> mpijax.export.register_pytree_node_serialization(Box, serialized_name="example.Box", **as_bytes).__name__
    'Box'
    >>> blob = mpijax.export.export(mpijax.jit(lambda box: box.content))(Box(1)).serialize()
    >>> mpijax.export.deserialize(blob).call(Box(3))
    Array(3, dtype=int32)
    """
    if nodetype in _by_type:
        raise ValueError(
            f"Duplicate serialization registration for type `{nodetype}`: it is registered as "
            f"{_by_type[nodetype].name!r}"
        )
    if serialized_name in _by_name:
        raise ValueError(
            f"Duplicate serialization registration for serialized_name `{serialized_name}`: it stands for "
            f"`{_by_name[serialized_name].kind}`"
        )
    if from_children is None:
        node = _ext.lookup(nodetype)
        if node is None:
            raise ValueError(
                "If `from_children` is not present, you must call mpijax.tree_util.register_pytree_node first, for "
                f"`{nodetype}`"
            )
        from_children = node.from_iterable
    found = _Registration(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata, from_children)
    _by_type[nodetype] = _by_name[serialized_name] = found
    return nodetype


def register_namedtuple_serialization(nodetype: type, *, serialized_name: str) -> type:
    """Define the serialized name of a named tuple in the arguments or results of an exported function.

    Raises:
      ValueError: if the type is not a named tuple, or is already registered.

    >>> import collections
    >>> Pair = collections.namedtuple("Pair", "left right")
    >>> Pair = mpijax.export.register_namedtuple_serialization(Pair, serialized_name="example.Pair")
    >>> blob = mpijax.export.export(mpijax.jit(lambda pair: pair.left + pair.right))(Pair(1, 2)).serialize()
    >>> mpijax.export.deserialize(blob).call(Pair(3, 4))
    Array(7, dtype=int32)
    """
    if not (isinstance(nodetype, type) and issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")):
        raise ValueError(
            f"{nodetype!r} is not a named tuple. Use mpijax.export.register_pytree_node_serialization for other types"
        )
    fields: tuple[str, ...] = nodetype._fields
    return register_pytree_node_serialization(
        nodetype,
        serialized_name=serialized_name,
        serialize_auxdata=lambda _: json.dumps(fields).encode(),
        deserialize_auxdata=lambda data: json.loads(data.decode()),
        from_children=lambda keys, children: nodetype(**dict(zip(keys, children, strict=True))),
    )


def _ordered_keys(keys) -> bytes:
    if not all(isinstance(k, str) for k in keys):
        raise NotImplementedError(f"an OrderedDict can only be serialised if its keys are strings, got {tuple(keys)}")
    return json.dumps(list(keys)).encode()


register_pytree_node_serialization(
    collections.OrderedDict,
    serialized_name="collections.OrderedDict",
    serialize_auxdata=_ordered_keys,
    deserialize_auxdata=lambda data: tuple(json.loads(data.decode())),
)


def write_structure(structure: tree.PyTreeDef, write: Callable[[Any], Any]) -> Any:
    """A structure as plain data; `write` serializes the keys of dicts.

    Raises ValueError for a node of an unregistered type.
    """
    node = structure.node_data()
    if node is None:
        return "*"
    kind, data = node
    children = [write_structure(c, write) for c in structure.children()]
    if kind in _BUILT_IN:
        return [_BUILT_IN[kind], write(data), *children]
    registered = _by_type.get(kind)
    if registered is None:
        way = "register_namedtuple_serialization" if hasattr(kind, "_fields") else "register_pytree_node_serialization"
        raise ValueError(
            f"Cannot serialize a pytree node of unregistered type {kind} in the arguments or the result of the "
            f"exported function. Register the type with mpijax.export.{way}"
        )
    return ["node", [registered.name, bytes(registered.to_bytes(data)).hex()], *children]


def read_structure(written: Any, read: Callable[[Any], Any], leaves: Iterable[Any]) -> tree.PyTreeDef:
    """The structure that `write_structure` wrote. Raises ValueError for an unregistered name.

    Functions of registered types get the types of the leaves, in `leaves`, in place of the leaves.
    """
    return _read_structure(written, read, iter(leaves))[0]


def _read_structure(
    written: Any, read: Callable[[Any], Any], leaves: Iterator[Any]
) -> tuple[tree.PyTreeDef, list[Any]]:
    """A structure, and its part of `leaves`."""
    if written == "*":
        return tree.tree_structure(0), [next(leaves, None)]
    name, data, *rest = written
    read_children = [_read_structure(c, read, leaves) for c in rest]
    children = tuple(child for child, _ in read_children)
    own_leaves = [leaf for _, part in read_children for leaf in part]
    if name in _BY_NAME:
        kind, own = _BY_NAME[name], read(data)
        keys = len(own) if kind is dict else 0 if kind is type(None) else len(children)
        if keys != len(children):
            raise ValueError(f"a {name} has {keys} keys but {len(children)} entries")
        return _ext.treedef_of((kind, own), children), own_leaves
    name, text = data
    registered = _by_name.get(name)
    if registered is None:
        raise ValueError(
            f"the exported function has a pytree node named {name!r}. Register its type under that name, as in the "
            "process that exported it"
        )
    values = [child.unflatten(part) for child, part in read_children]
    node = registered.from_children(registered.from_bytes(bytes.fromhex(text)), values)
    return tree.tree_structure(node), own_leaves
