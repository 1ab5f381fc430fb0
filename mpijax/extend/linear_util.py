"""``mpijax.extend.linear_util``: functions with a stack of transformations, for user-defined interpreters.

    wrapped = wrap_init(f)
    wrapped, aux = some_transformation(wrapped, static_argument)
    out = wrapped.call_wrapped(*args)        # now aux() returns the value that the transformation stored

A transformation sees the arguments before `f` does, and the result after it; the last one added is outermost.
`transformation2` makes a transformation from a function ``(f, *static, *args, **kwargs) -> result``; `transformation`
makes one from a generator ``(*static, *args, **kwargs)`` that yields new ``(args, kwargs)``, receives the result, and
yields a new one. The `_with_aux` variants return a second value: the function form stores it in its second parameter, a
`Store`.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from mpijax.core.base import config
from mpijax.core.base.source import callable_name
from mpijax.core.programs.debug_info import DebugInfo

__all__ = [
    "Store",
    "StoreException",
    "WrappedFun",
    "cache",
    "merge_linear_aux",
    "transformation",
    "transformation2",
    "transformation_with_aux",
    "transformation_with_aux2",
    "wrap_init",
]

_EMPTY = object()


class StoreException(Exception):
    """A value was stored twice, or read before it was stored."""


class Store:
    """Holds one value.

    >>> store = mpijax.extend.linear_util.Store()
    >>> store.store(3)
    >>> store.val
    3
    """

    __slots__ = ("_val",)

    def __init__(self) -> None:
        self._val: Any = _EMPTY

    def store(self, val: Any) -> None:
        if self:
            raise StoreException("Store occupied: a wrapped function runs once")
        self._val = val

    def reset(self) -> None:
        self._val = _EMPTY

    @property
    def val(self) -> Any:
        if not self:
            raise StoreException("Store empty: call the wrapped function first")
        return self._val

    def __bool__(self) -> bool:
        return self._val is not _EMPTY


class WrappedFun:
    """A function and the transformations around it. Two are equal if they compute the same.

    Attributes:
      f: the function. transforms: pairs of transformation and its static arguments, the outermost first.
      stores: for each transformation its `Store`, or None. params: keyword arguments that `f` always gets.

    >>> type(mpijax.extend.linear_util.wrap_init(lambda x: x + 1)).__name__
    'WrappedFun'
    """

    __slots__ = ("f", "transforms", "stores", "params", "debug_info", "_call", "__weakref__")

    def __init__(self, f: Callable, call: Callable, transforms=(), stores=(), params=(), debug_info=None):
        self.f = f
        self._call = call
        self.transforms = transforms
        self.stores = stores
        self.params = params
        self.debug_info = debug_info

    @property
    def __name__(self) -> str:
        return callable_name(self.f)

    def wrap(self, transform: Callable, static: tuple, store: Store | None) -> WrappedFun:
        """Adds a transformation, and the store for its auxiliary value."""
        first = (self._call,) if store is None else (self._call, store)
        return WrappedFun(
            self.f,
            partial(transform, *first, *static),
            ((transform, static), *self.transforms),
            (store, *self.stores),
            self.params,
            self.debug_info,
        )

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call the transformed function."""
        return self._call(*args, **kwargs)

    def populate_stores(self, stores) -> None:
        """Copy the auxiliary values of an equal function that has run."""
        for mine, other in zip(self.stores, stores, strict=True):
            if mine is not None:
                mine.store(other.val)

    def _identity(self) -> tuple:
        return self.f, self.transforms, self.params

    def __hash__(self) -> int:
        return hash(self._identity())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedFun) and self._identity() == other._identity()

    def __repr__(self) -> str:
        around = "".join(f"{callable_name(t)}{static} of " for t, static in self.transforms)
        return f"<wrapped function: {around}{self.__name__}>"


def wrap_init(f: Callable, params: dict[str, Any] | None = None, *, debug_info: DebugInfo | None = None) -> WrappedFun:
    """A function without transformations; `params` are keyword arguments that it always gets.

    >>> mpijax.extend.linear_util.wrap_init(lambda x, y: x + y, {"y": 10}).call_wrapped(3)
    13
    """
    params = params or {}
    return WrappedFun(f, partial(f, **params), params=tuple(sorted(params.items())), debug_info=debug_info)


def transformation2(transform: Callable) -> Callable[..., WrappedFun]:
    """Makes a transformation of wrapped functions from ``(f, *static, *args, **kwargs) -> result``.

    >>> negated = mpijax.extend.linear_util.transformation2(lambda f, x: -f(x))
    >>> negated(mpijax.extend.linear_util.wrap_init(lambda x: x + 1)).call_wrapped(3)
    -4
    """

    @wraps(transform)
    def add(fun: WrappedFun, *static: Any) -> WrappedFun:
        return fun.wrap(transform, static, None)

    return add


def transformation_with_aux2(transform: Callable) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """Like `transformation2`, from ``(f, store, *static, *args, **kwargs) -> result``, which stores a value.

    >>> def keep_input(f, store, x):
    ...     store.store(x)
    ...     return f(x)
    >>> keeping = mpijax.extend.linear_util.transformation_with_aux2(keep_input)
    >>> f, kept = keeping(mpijax.extend.linear_util.wrap_init(lambda x: x + 1))
    >>> f.call_wrapped(3), kept()
    (4, 3)
    """

    @wraps(transform)
    def add(fun: WrappedFun, *static: Any) -> tuple[WrappedFun, Callable[[], Any]]:
        store = Store()
        return fun.wrap(transform, static, store), lambda: store.val

    return add


def transformation(generator: Callable) -> Callable[..., WrappedFun]:
    """Like `transformation2`, from a generator that yields new ``(args, kwargs)``, and then a new result.

    >>> @mpijax.extend.linear_util.transformation
    ... def negated(x):
    ...     y = yield (x,), {}
    ...     yield -y
    >>> negated(mpijax.extend.linear_util.wrap_init(lambda x: x + 1)).call_wrapped(3)
    -4
    """

    @wraps(generator)
    def transform(f: Callable, *args: Any, **kwargs: Any) -> Any:
        steps = generator(*args, **kwargs)
        new_args, new_kwargs = next(steps)
        return steps.send(f(*new_args, **new_kwargs))

    return transformation2(transform)


def transformation_with_aux(generator: Callable) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """Like `transformation`, from a generator whose last yield is a pair: the result and a value to store.

    >>> @mpijax.extend.linear_util.transformation_with_aux
    ... def negated(x):
    ...     y = yield (x,), {}
    ...     yield -y, "negated"
    >>> f, aux = negated(mpijax.extend.linear_util.wrap_init(lambda x: x + 1))
    >>> f.call_wrapped(3), aux()
    (-4, 'negated')
    """

    @wraps(generator)
    def transform(f: Callable, store: Store, *args: Any, **kwargs: Any) -> Any:
        steps = generator(*args, **kwargs)
        new_args, new_kwargs = next(steps)
        result, aux = steps.send(f(*new_args, **new_kwargs))
        store.store(aux)
        return result

    return transformation_with_aux2(transform)


def merge_linear_aux(aux1: Callable[[], Any], aux2: Callable[[], Any]) -> tuple[bool, Any]:
    """Which of two transformations has run, and its stored value: `(whether the first, value)`.

    >>> from mpijax.extend import linear_util
    >>> storing = linear_util.transformation_with_aux2(lambda f, store, x: store.store(x) or f(x))
    >>> (f, first), (g, second) = storing(linear_util.wrap_init(abs)), storing(linear_util.wrap_init(abs))
    >>> g.call_wrapped(-3), linear_util.merge_linear_aux(first, second)
    (3, (False, -3))
    """
    found = []
    for first, aux in ((True, aux1), (False, aux2)):
        try:
            found.append((first, aux()))
        except StoreException:
            continue
    if len(found) != 1:
        raise StoreException("neither store occupied" if not found else "both stores occupied")
    return found[0]


def cache(call: Callable, *, explain: Callable | None = None) -> Callable:
    """Caches `call(wrapped, *args)`, keyed by the computation of the wrapped function, the arguments, and the options.

    A cache hit copies the values that transformations stored in the cached run to the new function's stores.
    explain: called with ``(wrapped, whether its function is new, known results, key, seconds)`` after a cache miss,
    while the option `jax_explain_cache_misses` is set.

    >>> slow = mpijax.extend.linear_util.cache(lambda f, x: print("computed") or f.call_wrapped(x))
    >>> square = lambda x: x * x
    >>> slow(mpijax.extend.linear_util.wrap_init(square), 3)
    computed
    9
    >>> slow(mpijax.extend.linear_util.wrap_init(square), 3)
    9
    """
    known: weakref.WeakKeyDictionary[Callable, dict] = weakref.WeakKeyDictionary()

    @wraps(call)
    def memoized(fun: WrappedFun, *args: Any) -> Any:
        first_use = fun.f not in known
        results = known.setdefault(fun.f, {})
        key = (fun.transforms, fun.params, args, config.trace_key())
        if key in results:
            result, stores = results[key]
            fun.populate_stores(stores)
            return result
        start = time.perf_counter()
        result = call(fun, *args)
        if explain is not None and config.values.jax_explain_cache_misses:
            explain(fun, first_use, results, key, time.perf_counter() - start)
        results[key] = result, fun.stores
        return result

    memoized.cache_clear = known.clear  # type: ignore[attr-defined]
    return memoized
