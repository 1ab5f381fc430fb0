"""Pytrees."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from mpijax.core.trees.prefix import prefix_errors
from mpijax.core.trees.tree import PyTreeDef, default_registry, is_tree_node, tree_structure
from mpijax.tree_util import *  # noqa: F403

__all__ = ["prefix_errors"]

_LEAF = tree_structure(0)


class _RegistryEntry(NamedTuple):
    """``to_iter(node)`` is (children, data); ``from_iter(data, children)`` is the node."""

    to_iter: Callable[[Any], Any]
    from_iter: Callable[[Any, Any], Any]


def _node(nodetype: type, data, children):
    children = list(children)
    kids = [_LEAF] * len(children)
    return PyTreeDef.from_node_data_and_children(default_registry, (nodetype, data), kids).unflatten(children)


class _NodeTypes:
    """The types of nodes, as a mapping to their functions."""

    def __contains__(self, nodetype: type) -> bool:
        return nodetype is type(None) or is_tree_node(nodetype)

    def __getitem__(self, nodetype: type) -> _RegistryEntry:
        if nodetype not in self:
            raise KeyError(nodetype)
        return _RegistryEntry(default_registry.flatten_one_level, functools.partial(_node, nodetype))


_registry = _NodeTypes()
