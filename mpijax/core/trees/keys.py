"""Key paths: the steps from the root of a pytree to a leaf.

A path is a tuple of entries. ``str`` of an entry is the code that follows the name of the parent. The joined strings of
a path are an expression: ``params['layers'][0].weight``.
"""

from collections.abc import Callable
from typing import Any

from mpijax._ext import tree as _ext


class _Key:
    """One step of a path. Immutable; equal to keys of the same class with an equal key."""

    __slots__ = ("_value",)
    _value: Any
    __match_args__: tuple[str, ...]
    _accepts: type | tuple[type, ...] = object

    def _set(self, value: Any) -> None:
        if not isinstance(value, self._accepts):
            raise TypeError(f"{type(self).__name__}: expected {self._accepts}, got {value!r}")
        object.__setattr__(self, "_value", value)

    def __setattr__(self, name, value):
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other):
        return self._value == other._value if type(other) is type(self) else NotImplemented

    def __hash__(self):
        return hash((type(self), self._value))

    def __repr__(self):
        return f"{type(self).__name__}({self.__match_args__[0]}={self._value!r})"

    def __reduce__(self):
        return type(self), (self._value,)


class SequenceKey(_Key):
    """The item `idx` of a list or tuple.

    >>> mpijax.tree_util.keystr((mpijax.tree_util.SequenceKey(2),))
    '[2]'
    """

    __slots__ = ()
    __match_args__ = ("idx",)
    _accepts = int

    def __init__(self, idx: int):
        self._set(idx)

    idx = property(lambda self: self._value)

    def __str__(self):
        return f"[{self._value!r}]"


class DictKey(_Key):
    """The value at `key` of a dict.

    >>> mpijax.tree_util.keystr((mpijax.tree_util.DictKey("a"),))
    "['a']"
    """

    __slots__ = ()
    __match_args__ = ("key",)

    def __init__(self, key: Any):
        self._set(key)

    key = property(lambda self: self._value)

    def __str__(self):
        return f"[{self._value!r}]"


class GetAttrKey(_Key):
    """The attribute `name` of a namedtuple, a dataclass or a similar object.

    >>> mpijax.tree_util.keystr((mpijax.tree_util.GetAttrKey("bias"),))
    '.bias'
    """

    __slots__ = ()
    __match_args__ = ("name",)
    _accepts = str

    def __init__(self, name: str):
        self._set(name)

    name = property(lambda self: self._value)

    def __str__(self):
        return f".{self._value}"


class FlattenedIndexKey(_Key):
    """Child number `key` of a node that was registered without keys for its children.

    >>> mpijax.tree_util.keystr((mpijax.tree_util.FlattenedIndexKey(1),))
    '[<flat index 1>]'
    """

    __slots__ = ()
    __match_args__ = ("key",)
    _accepts = int

    def __init__(self, key: int):
        self._set(key)

    key = property(lambda self: self._value)

    def __str__(self):
        return f"[<flat index {self._value}>]"


KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """The path as text.

    Args:
      keys: entries, of the classes above or anything with a ``str``.
      simple: print only the key of each entry. Shorter, but 0 may be an index or a key.
      separator: the text between entries.

    >>> path = (mpijax.tree_util.DictKey("foo"), mpijax.tree_util.SequenceKey(0))
    >>> mpijax.tree_util.keystr(path), mpijax.tree_util.keystr(path, simple=True, separator="/")
    ("['foo'][0]", 'foo/0')
    """
    return separator.join(str(key._value if simple and isinstance(key, _Key) else key) for key in keys)


def _keys_of(tree: Any, number: int) -> list[KeyEntry]:
    """Keys for the `number` children of a node that was registered without keys."""
    node_type = _ext.lookup(type(tree))
    if node_type is not None:
        fields = node_type.data_fields
        return [FlattenedIndexKey(i) for i in range(number)] if fields is None else [*map(GetAttrKey, fields)]
    if hasattr(tree, "_fields"):
        return [*map(GetAttrKey, tree._fields)]
    return [SequenceKey(i) for i in range(number)]


def keyed_children(tree: Any) -> tuple[list[tuple[KeyEntry, Any]], Any] | None:
    """([(key, child), ...], data) of a node; None for a leaf."""
    node_type = _ext.lookup(type(tree))
    if node_type is not None and node_type.to_iterable_with_keys is not None:
        parts = node_type.to_iterable_with_keys(tree)
        expected = (
            "The to_iterable_with_keys function for a custom PyTree node should return "
            "a (key_leaf_pairs, aux_data) tuple"
        )
        if not isinstance(parts, tuple) or len(parts) != 2:
            raise ValueError(f"{expected}, got {parts!r}")
        pairs = list(parts[0])
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ValueError(f"{expected} where each pair is (key, child), got {pair!r}")
        return pairs, parts[1]
    parts = _ext.flatten_one_level(tree)
    if parts is None:
        return None
    children, data = list(parts[0]), parts[1]
    keys = [DictKey(key) for key in data] if type(tree) is dict else _keys_of(tree, len(children))
    return list(zip(keys, children)), data


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], _ext.PyTreeDef]:
    """([(path, leaf), ...], structure); see `tree_flatten_with_path`."""
    leaves: list[tuple[KeyPath, Any]] = []

    def asks_for_leaf(path, x):
        assert is_leaf is not None
        answer = is_leaf(path, x) if is_leaf_takes_path else is_leaf(x)
        if answer is not None and not isinstance(answer, bool):
            raise ValueError(f"is_leaf predicate returned a non-boolean value {answer!r}; expected a boolean")
        return bool(answer)

    def visit(path, x):
        parts = None if is_leaf is not None and asks_for_leaf(path, x) else keyed_children(x)
        if parts is None:
            leaves.append((path, x))
            return _ext.treedef_of(None, ())
        pairs, data = parts
        return _ext.treedef_of((type(x), data), tuple(visit((*path, key), child) for key, child in pairs))

    treedef = visit((), tree)
    return leaves, treedef
