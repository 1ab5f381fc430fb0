"""Registers new types of pytree nodes.

There is one registry, of exact types: a subclass of a registered type is a leaf unless it is registered itself.
"""

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from mpijax._ext import tree as _ext
from mpijax.core.trees.keys import DictKey, flatten_with_path, keyed_children

Class = TypeVar("Class", bound=type[Any])

is_tree_node = _ext.is_node_type
registered_types = _ext.registered_types


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Registers a type as a pytree node.

    Args:
      nodetype: the type.
      flatten_func: ``object -> (children, aux_data)``. The children are pytrees; `aux_data` is part of the
        structure: it must be comparable with ``==``, and should be hashable.
      unflatten_func: ``(aux_data, children) -> object``. The children may be anything, not only arrays.
      flatten_with_keys_func: like `flatten_func`, with pairs (key, child) instead of children.

    Raises:
      ValueError: if the type is already a node.

    >>> class Pair:
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    >>> flatten = lambda pair: ((pair.left, pair.right), None)
    >>> mpijax.tree_util.register_pytree_node(Pair, flatten, lambda aux, children: Pair(*children))
    >>> mpijax.tree_util.tree_leaves(Pair(1, [2, 3]))
    [1, 2, 3]
    """
    if not isinstance(nodetype, type):
        raise TypeError(f"register_pytree_node: expected a type, got {nodetype!r}")
    if not callable(flatten_func) or not callable(unflatten_func):
        raise TypeError(
            f"register_pytree_node: expected two functions, got {flatten_func!r} and {unflatten_func!r}"
        )
    _ext.register(_ext.NodeType(nodetype, flatten_func, unflatten_func, flatten_with_keys_func))


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """`register_pytree_node` for a type whose children have names.

    Args:
      flatten_with_keys: ``object -> (pairs (key, child), aux_data)``; a key is a `DictKey`, `GetAttrKey`, ...
        or any object whose ``str`` is the code that accesses the child.
      flatten_func: the same without keys, if that is faster.

    >>> class Named:
    ...     def __init__(self, value):
    ...         self.value = value
    >>> flatten = lambda named: (((mpijax.tree_util.GetAttrKey("value"), named.value),), None)
    >>> mpijax.tree_util.register_pytree_with_keys(Named, flatten, lambda aux, children: Named(*children))
    >>> mpijax.tree_util.keystr(mpijax.tree_util.tree_leaves_with_path(Named(3))[0][0])
    '.value'
    """

    def without_keys(tree):
        pairs, data = flatten_with_keys(tree)
        return [child for _, child in pairs], data

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: Class) -> Class:
    """Decorator: registers a class by its ``tree_flatten()`` and ``tree_unflatten(aux_data, children)``.

    >>> @mpijax.tree_util.register_pytree_node_class
    ... class Box:
    ...     def __init__(self, content):
    ...         self.content = content
    ...     def tree_flatten(self):
    ...         return (self.content,), None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux_data, children):
    ...         return cls(*children)
    >>> mpijax.tree_util.tree_map(lambda x: 10 * x, Box(7)).content
    70
    """
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: Class) -> Class:
    """Decorator: like `register_pytree_node_class`, with a method ``tree_flatten_with_keys()``.

    >>> @mpijax.tree_util.register_pytree_with_keys_class
    ... class Cell:
    ...     def __init__(self, value):
    ...         self.value = value
    ...     def tree_flatten_with_keys(self):
    ...         return ((mpijax.tree_util.GetAttrKey("value"), self.value),), None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux_data, children):
    ...         return cls(*children)
    >>> mpijax.tree_util.keystr(mpijax.tree_util.tree_leaves_with_path(Cell(3))[0][0])
    '.value'
    """
    flatten = operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(
        cls, operator.methodcaller("tree_flatten_with_keys"), cls.tree_unflatten, flatten
    )
    return cls


def _split_fields(nodetype: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the data and of the static fields of a dataclass."""
    fields = dataclasses.fields(nodetype)
    data = tuple(f.name for f in fields if not f.metadata.get("static", False))
    return data, tuple(f.name for f in fields if f.metadata.get("static", False))


def _check_fields(nodetype: type, data: Sequence[str], meta: Sequence[str], drop: Sequence[str]) -> None:
    """Check that every field of the constructor is named exactly once."""
    if dataclasses.is_dataclass(nodetype):
        named = {*data, *meta}
        wanted = {f.name for f in dataclasses.fields(nodetype) if f.init} - set(drop)
        problems = []
        if missing := wanted - named:
            problems.append(f" Missing fields: {missing}. Add them to drop_fields to suppress this error.")
        if unexpected := named - wanted:
            problems.append(f" Unexpected fields: {unexpected}.")
        if problems:
            raise ValueError(
                "data_fields and meta_fields must include all dataclass fields with ``init=True`` "
                "and only them." + "".join(problems)
            )
    if both := set(data) & set(meta):
        raise ValueError(f"data_fields and meta_fields must not overlap. Overlapping fields: {both}.")


def register_dataclass(
    nodetype: Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Class:
    """Registers a dataclass or a similar class; usable as a decorator.

    Args:
      data_fields: names of the attributes that are children.
      meta_fields: names of the attributes that are part of the structure. A dataclass may omit both: fields with
        ``metadata=dict(static=True)`` (see ``tree.static``) are static, the others are data.
      drop_fields: fields of the dataclass to omit; unflattening gives them their defaults.

    >>> import dataclasses
    >>> @mpijax.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: object
    ...     name: str = dataclasses.field(metadata={"static": True})
    >>> mpijax.tree_util.tree_leaves(Layer(jnp.zeros(2), "first"))
    [Array([0., 0.], dtype=float32)]
    """
    if data_fields is None and meta_fields is None and dataclasses.is_dataclass(nodetype):
        data_fields, meta_fields = _split_fields(nodetype)
    if data_fields is None and meta_fields is None:
        raise TypeError(
            "register_dataclass: data_fields and meta_fields are required when nodetype is not a dataclass."
            f" Got nodetype={nodetype!r}."
        )
    if data_fields is None or meta_fields is None:
        raise TypeError(
            "register_dataclass: data_fields and meta_fields must both be specified when either is specified."
            f" Got data_fields={data_fields!r} meta_fields={meta_fields!r}."
        )
    _check_fields(nodetype, data_fields, meta_fields, drop_fields)
    _ext.register(_ext.NodeType(nodetype, None, None, None, tuple(data_fields), tuple(meta_fields)))
    return nodetype


def register_static(cls: Class) -> Class:
    """Decorator: objects of this hashable class become nodes without leaves, which ``jit`` treats as static.

    >>> @mpijax.tree_util.register_static
    ... class Mode(str):
    ...     pass
    >>> mpijax.jit(lambda mode, x: x + 1 if mode == "up" else x - 1)(Mode("up"), jnp.arange(3))
    Array([1, 2, 3], dtype=int32)
    """
    register_pytree_with_keys(cls, lambda obj: ((), obj), lambda obj, _: obj)
    return cls


class PyTreeRegistry:
    """The registry as an object. `none_is_leaf` selects whether None is a leaf or a node without children."""

    def __init__(self, name: str, none_is_leaf: bool):
        self.__name__ = name
        self.flatten = _ext.tree_flatten_none_is_leaf if none_is_leaf else _ext.tree_flatten

    flatten_one_level = staticmethod(_ext.flatten_one_level)
    flatten_one_level_with_keys = staticmethod(keyed_children)
    is_node = staticmethod(_ext.is_node_type)

    @staticmethod
    def flatten_with_path(tree, leaf_predicate=None):
        return flatten_with_path(tree, leaf_predicate, is_leaf_takes_path=True)

    def __repr__(self):
        return f"<pytree registry {self.__name__}>"

    def __reduce__(self):
        return self.__name__  # pickled by name: each registry is a module global


default_registry = PyTreeRegistry("default_registry", none_is_leaf=False)
none_leaf_registry = PyTreeRegistry("none_leaf_registry", none_is_leaf=True)


class _HiddenPartial:
    """Hides that a callable is a `functools.partial`: the outer constructor would merge the two."""

    def __init__(self, fun: Callable):
        self.fun = fun

    def __call__(self, *args, **kwargs):
        return self.fun(*args, **kwargs)

    def __hash__(self):
        return hash(self.fun)

    def __eq__(self, other):
        return self.fun == (other.fun if isinstance(other, _HiddenPartial) else other)

    def __repr__(self):
        return f"_HashableCallableShim({self.fun!r})"


class Partial(functools.partial):
    """A `functools.partial` that is a pytree: its bound arguments are children, its function is static.

    Use it to pass a function with its data through ``jit``, ``grad``, ... ``Partial(f)`` makes any function
    a valid argument. Tracing traces all bound arguments.

    >>> scale = mpijax.tree_util.Partial(jnp.multiply, jnp.float32(3))
    >>> mpijax.jit(lambda f, x: f(x) + 1)(scale, jnp.arange(3.0))
    Array([1., 4., 7.], dtype=float32)
    """

    __module__ = "mpijax.tree_util"

    def __new__(cls, func, /, *args, **kwargs):
        if not isinstance(func, functools.partial):
            return super().__new__(cls, func, *args, **kwargs)
        opaque: Any = _HiddenPartial(func)
        self = super().__new__(cls, opaque, *args, **kwargs)
        # Once constructed, `opaque` shows the attributes of a partial.
        opaque.func, opaque.args, opaque.keywords = func.func, func.args, func.keywords
        return self


def _zip_strict(keys, values):
    return zip(keys, values, strict=True)


def _defaultdict_items(d: collections.defaultdict):
    keys = tuple(sorted(d))
    return tuple((DictKey(k), d[k]) for k in keys), (d.default_factory, keys)


register_pytree_node(
    Partial, lambda p: ((p.args, p.keywords), p.func), lambda func, xs: Partial(func, *xs[0], **xs[1])
)
register_pytree_with_keys(
    collections.OrderedDict,
    lambda d: (tuple((DictKey(k), x) for k, x in d.items()), tuple(d)),
    lambda keys, values: collections.OrderedDict(_zip_strict(keys, values)),
    lambda d: (tuple(d.values()), tuple(d)),
)
register_pytree_with_keys(
    collections.defaultdict,
    _defaultdict_items,
    lambda data, values: collections.defaultdict(data[0], _zip_strict(data[1], values)),
)
