"""Trees as deep as memory allows: a clean error where Python cannot hold them, never a crash."""

import pytest
from quickly import one_in

from mpijax import tree_util

DEPTH = 100_000


def structure():
    treedef = tree_util.tree_structure(0)
    for _ in range(DEPTH):
        treedef = tree_util.treedef_tuple([treedef])
    return treedef


def nested():
    tree = 0
    for _ in range(DEPTH):
        tree = [tree]
    return tree


def test_structures_of_any_depth_have_a_hash_and_compare():
    one, other = structure(), structure()
    assert hash(one) == hash(other)
    assert one == other
    assert one != tree_util.treedef_tuple([other])


@pytest.mark.parametrize(
    "use",
    one_in(2, [
        lambda: str(structure()),
        lambda: structure().unflatten([1]),
        lambda: structure().compose(structure()),
        lambda: structure().walk(lambda parts, data: parts, None, [1]),
        lambda: structure().flatten_up_to(unwrapped()),
        lambda: tree_util.tree_flatten(nested()),
        lambda: tree_util.tree_map(lambda x: x, nested()),
        lambda: tree_util.tree_leaves_with_path(nested()),
    ]),
    ids=["str", "unflatten", "compose", "walk", "flatten_up_to", "flatten", "map", "paths"],
)
@pytest.mark.one_in(2)
def test_what_needs_the_stack_raises_recursion_error(use):
    with pytest.raises(RecursionError):
        use()


def unwrapped():
    tree = 0
    for _ in range(DEPTH):
        tree = (tree,)
    return tree
