"""Treedefs as protocol buffers against JAX: the bytes, what they give back, and what has no such form."""

import collections

import jax
import pytest
from jax import tree_util as oracle

from mpijax import errors
from mpijax import tree_util as ours

Point = collections.namedtuple("Point", "x y")

TREES = {
    "leaf": 1,
    "none": None,
    "empty": ((), [], {}),
    "nested": [1, [2], (3,), {"a": 4, "b": {"a": (5, None), "": [6, 7]}}],
    "many": list(range(300)),
    "text": {"ключ": 1, "k" * 200: 2},
    "named": Point(1, 2),
    "ordered": [collections.OrderedDict(a=1)],
    "numbers as keys": {1: 2},
}
READERS = {"ours": (ours, errors.JaxRuntimeError), "JAX's": (oracle, jax.errors.JaxRuntimeError)}


def written(library, tree):
    try:
        return library.tree_structure(tree).serialize_using_proto()
    except ValueError as error:
        return str(error)


def read(library, data):
    return library.PyTreeDef.deserialize_using_proto(library.default_registry, data)


@pytest.mark.parametrize("name", TREES)
def test_the_bytes_are_jaxs(name):
    tree = TREES[name]
    data = written(oracle, tree)
    assert written(ours, tree) == data
    if isinstance(data, bytes):
        assert read(ours, data) == ours.tree_structure(tree)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("data", [b"abc", b"\x0a\x04\x08", b"\xff" * 12], ids=["text", "cut off", "endless number"])
def test_other_bytes_are_refused(reader, data):
    library, error = READERS[reader]
    with pytest.raises(error, match="Could not deserialize PyTreeDefProto"):
        read(library, data)


def test_no_nodes_are_no_treedef():
    with pytest.raises(RuntimeError, match="did not yield a singleton"):
        read(ours, b"")


@pytest.mark.parametrize(
    "data",
    ["0a0408031002", "0a0210010a0a080110051a040a020000120161", "0a0210010a09080110051a030a0107120161", "0a021009"],
)
def test_nodes_that_do_not_fit_are_refused(data):
    """Three children after no node, two keys for one child, a key past the strings, an unknown type."""
    with pytest.raises((ValueError, errors.JaxRuntimeError)):
        read(ours, bytes.fromhex(data))


class Returns:
    """A node whose function returns `parts`."""

    def __init__(self, parts):
        self.parts = parts


for library in (ours, oracle):
    library.register_pytree_node(Returns, lambda node: node.parts, lambda data, children: None)


@pytest.mark.parametrize("parts", [([1, 2], 0), ((1, 2), 0), ({"a": 1}, 0), (1, 2), [[1], 2], None], ids=repr)
def test_one_level_is_what_the_function_returned(parts):
    def outcome(library):
        try:
            return library.flatten_one_level(Returns(parts))
        except ValueError as error:
            return str(error)

    assert outcome(ours) == outcome(oracle)
