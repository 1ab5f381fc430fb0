"""``mpijax.api_util``: between functions of pytrees and functions of flat lists, for interpreters of one's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from mpijax.core.programs.debug_info import DebugInfo
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.typeof import abstractify as shaped_abstractify
from mpijax.extend.linear_util import Store, WrappedFun, transformation2, transformation_with_aux2
from mpijax.transforms import flat

__all__ = [
    "argnums_partial",
    "debug_info",
    "donation_vector",
    "flatten_axes",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "rebase_donate_argnums",
    "safe_map",
    "shaped_abstractify",
]


def debug_info(
    traced_for: str,
    fun: Callable,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
) -> DebugInfo:
    """What errors say of a function that is traced: where it is, and the names of its arguments that are not static.

    >>> mpijax.api_util.debug_info("jit", lambda x, y: x, (1, 2), {}).traced_for
    'jit'
    """
    dynamic = [a for i, a in enumerate(args) if i not in static_argnums]
    return flat.debug_info(traced_for, fun, dynamic, {k: v for k, v in kwargs.items() if k not in static_argnames})


@transformation_with_aux2
def flatten_fun(f: Callable, store: Store, in_tree: tree.PyTreeDef, *leaves: Any) -> list[Any]:
    """A function of the leaves of ``(args, kwargs)`` that returns leaves; it stores the result's structure.

    >>> from mpijax.extend import linear_util
    >>> in_tree = mpijax.tree.structure((({"a": 1, "b": 2},), {}))
    >>> f, out_tree = mpijax.api_util.flatten_fun(linear_util.wrap_init(lambda d: [d["b"], d["a"]]), in_tree)
    >>> f.call_wrapped(5, 6), out_tree()
    ([6, 5], PyTreeDef([*, *]))
    """
    args, kwargs = tree.tree_unflatten(in_tree, leaves)
    flat_out, out_tree = tree.tree_flatten(f(*args, **kwargs))
    store.store(out_tree)
    return flat_out


@transformation_with_aux2
def flatten_fun_nokwargs(f: Callable, store: Store, in_tree: tree.PyTreeDef, *leaves: Any) -> list[Any]:
    """A function of the leaves of `args` that returns leaves; it stores the result's structure.

    >>> from mpijax.extend import linear_util
    >>> in_tree = mpijax.tree.structure(({"a": 1, "b": 2},))
    >>> f, out_tree = mpijax.api_util.flatten_fun_nokwargs(linear_util.wrap_init(lambda d: d["b"]), in_tree)
    >>> f.call_wrapped(5, 6)
    [6]
    """
    flat_out, out_tree = tree.tree_flatten(f(*tree.tree_unflatten(in_tree, leaves)))
    store.store(out_tree)
    return flat_out


def argnums_partial(
    f: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any], require_static_args_hashable: bool = True
) -> tuple[WrappedFun, tuple[Any, ...]]:
    """A function of the arguments at `dyn_argnums` alone, and these arguments.

    Raises:
      ValueError: for another argument that is not hashable, unless that is not required.

    >>> from mpijax.extend import linear_util
    >>> f, dynamic = mpijax.api_util.argnums_partial(linear_util.wrap_init(lambda x, y: x - y), 1, (10, 3))
    >>> f.call_wrapped(*dynamic)
    7
    """
    dynamic = flat.normalize_argnums(dyn_argnums, len(args), "dyn_argnums")
    static = tuple((i, a) for i, a in enumerate(args) if i not in dynamic)
    for i, a in static:
        if require_static_args_hashable and getattr(type(a), "__hash__", None) is None:
            raise ValueError(
                f"Non-hashable static arguments are not supported: argument {i} of {f.__name__} is of type {type(a)}, "
                "which is non-hashable."
            )
    return _with_static(f, dynamic, static), tuple(args[i] for i in dynamic)


@transformation2
def _with_static(f: Callable, dynamic: tuple[int, ...], static: tuple, *args: Any, **kwargs: Any) -> Any:
    full = dict(static) | dict(zip(dynamic, args, strict=True))
    return f(*(full[i] for i in range(len(full))), **kwargs)


def donation_vector(
    donate_argnums: Collection[int], donate_argnames: Collection[str], in_tree: tree.PyTreeDef, kws: bool = True
) -> tuple[bool, ...]:
    """For each leaf of ``(args, kwargs)``, or of `args` without `kws`, whether its argument is donated.

    >>> mpijax.api_util.donation_vector((1,), (), mpijax.tree.structure(((1, (2, 3)), {})))
    (False, True, True)
    """
    args_tree, kwargs_tree = in_tree.children() if kws else (in_tree, None)
    flags = [i in donate_argnums for i, a in enumerate(args_tree.children()) for _ in range(a.num_leaves)]
    if kwargs_tree is not None:
        keyword = kwargs_tree.node_data()
        named = zip(keyword[1] if keyword else (), kwargs_tree.children(), strict=True)
        flags += [name in donate_argnames for name, a in named for _ in range(a.num_leaves)]
    return tuple(flags)


def rebase_donate_argnums(donate_argnums: Iterable[int], static_argnums: Iterable[int]) -> tuple[int, ...]:
    """The positions of donated arguments among those that are not static, in order.

    Raises:
      ValueError: for an argument that is both.

    >>> mpijax.api_util.rebase_donate_argnums((2,), (0,))
    (1,)
    """
    donated, static = set(donate_argnums), set(static_argnums)
    if donated & static:
        raise ValueError(
            f"`static_argnums` {sorted(static)} and `donate_argnums` {sorted(donated)} cannot intersect."
        )
    return tuple(i - sum(s < i for s in static) for i in sorted(donated))


def safe_map(f: Callable, *args: Iterable[Any]) -> list[Any]:
    """`map` as a list, over sequences of one length. Raises ValueError when lengths differ.

    >>> mpijax.api_util.safe_map(lambda x, y: x + y, [1, 2], [10, 20])
    [11, 22]
    """
    return [f(*each) for each in zip(*args, strict=True)]
