"""Pytrees."""

from mpijax.core.trees.prefix import prefix_errors
from mpijax.core.trees.registry import is_tree_node
from mpijax.tree_util import *  # noqa: F403

__all__ = ["prefix_errors"]


class _NodeTypes:
    """The types of nodes, as a container."""

    def __contains__(self, nodetype: type) -> bool:
        return nodetype is type(None) or is_tree_node(nodetype)


_registry = _NodeTypes()
