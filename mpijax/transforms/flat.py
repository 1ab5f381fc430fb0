"""Converts functions of pytrees to functions of flat lists, and names arguments for messages."""

from __future__ import annotations

import functools
import inspect
import reprlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpijax.core.base.source import callable_location, callable_name
from mpijax.core.programs.debug_info import DebugInfo
from mpijax.core.trees import tree
from mpijax.core.types.abstract import AbstractValue
from mpijax.core.types.typeof import typeof


def named_like(fun: Callable) -> Callable[[Callable], Callable]:
    """Like `functools.wraps(fun)`, but skips attributes of unusual types, which callable objects may have."""
    fit = [a for a in functools.WRAPPER_ASSIGNMENTS if isinstance(getattr(fun, a, ""), str | dict | tuple)]
    return functools.wraps(fun, fit)


def transformed(fun: Callable, text: str) -> Callable[[Callable], Callable]:
    """Like `functools.wraps(fun)`, for a function with another meaning: its docstring starts with `text`.

    text: contains `{fun}` for the function's name.
    """

    def wrap(new: Callable) -> Callable:
        new = named_like(fun)(new)
        original = getattr(fun, "__doc__", None)
        new.__doc__ = text.format(fun=callable_name(fun)) + (
            f"\n\nOriginal documentation:\n\n{original}" if original else ""
        )
        return new

    return wrap


class FlatFun:
    """`fun` as a function of flat leaves; stores the structure of the last result."""

    __slots__ = ("fun", "in_tree", "out_tree", "has_aux", "aux")

    out_tree: tree.PyTreeDef  # unset before the first call

    def __init__(self, fun: Callable, in_tree, has_aux: bool = False):
        self.fun = fun
        self.in_tree = in_tree
        self.has_aux = has_aux
        self.aux: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = tree.tree_unflatten(self.in_tree, leaves)
        out = self.fun(*args, **kwargs)
        if self.has_aux:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(
                    "expected function with aux output to return a two-element tuple, but got type "
                    f"{type(out)} with value {out!r}"
                )
            out, self.aux = out
        flat, self.out_tree = tree.tree_flatten(out)
        return flat

    def release_aux(self, value_of: Callable[[Any], Any]) -> None:
        """Replace the leaves of the auxiliary output when the trace that created them ends."""
        if self.has_aux:
            self.aux = tree.tree_map(value_of, self.aux)


def parameter_names(fun: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """A name such as `x['a'][0]` for each leaf of the arguments, from the function's signature."""
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except (TypeError, ValueError):
        pairs = [(f"args[{i}]", a) for i, a in enumerate(args)] + [(f"kwargs[{k!r}]", v) for k, v in kwargs.items()]
    else:
        pairs = []
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                pairs += [(f"{name}[{i}]", v) for i, v in enumerate(value)]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                pairs += [(f"{name}[{k!r}]", v) for k, v in value.items()]
            else:
                pairs.append((name, value))
    return [name + tree.keystr(path) for name, value in pairs for path, _ in tree.tree_flatten_with_path(value)[0]]


class StandsFor(NamedTuple):
    """How messages describe one of mpijax's functions that calls a user's function; its attribute `stands_for`."""

    transformation: str
    function: Callable[[], Callable]
    arguments: Callable[..., tuple]


def standing_for(fun: Callable, transformation: str, function: Callable[[], Callable], arguments: Callable) -> Callable:
    """`fun`, which messages describe as the function that `function()` returns.

    That function is called with `arguments(*args)`, where `args` are the arguments of `fun`.
    """
    fun.stands_for = StandsFor(transformation, function, arguments)  # type: ignore[attr-defined]
    return fun


def _names_of_users(made: StandsFor, args: Sequence[Any]) -> list[str]:
    """The user's names for numbered arguments of a function; "" for an argument without a name."""
    given = made.arguments(*args)
    names = dict(zip(tree.tree_leaves(given), parameter_names(made.function(), given, {}), strict=True))
    return [names.get(i, "") for i in tree.tree_leaves(args)]


def debug_info(transformation: str, fun: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> DebugInfo:
    """The description of a traced function for error messages."""
    # Keep only the structure: a traced program must not keep the arrays alive that it was traced with.
    return debug_info_of(transformation, fun, tree.tree_structure((tuple(args), kwargs)))


def debug_info_of(transformation: str, fun: Callable, structure: tree.PyTreeDef) -> DebugInfo:
    """The description of a traced function whose arguments have this structure, which is that of `(args, kwargs)`."""
    made = getattr(fun, "stands_for", None)
    if not isinstance(made, StandsFor):
        made = None
    function = _weak_reference(fun)

    def names() -> list[str]:
        try:
            args, kwargs = tree.tree_unflatten(structure, range(structure.num_leaves))
        except Exception:  # a user's pytree class that accepts only arrays
            return []
        return parameter_names(function(), args, kwargs) if made is None else _names_of_users(made, args)

    if made is not None:
        return DebugInfo(made.transformation, callable_location(made.function()), names, None)
    return DebugInfo(transformation, callable_location(fun), names, None)


def _weak_reference(fun: Callable) -> Callable[[], Any]:
    """A function that returns `fun` as long as other code references it."""
    try:
        return weakref.WeakMethod(fun) if inspect.ismethod(fun) else weakref.ref(fun)
    except TypeError:  # some callable objects of extension modules
        return lambda: fun


def check_arguments(leaves: Sequence[Any], where: str, name: Callable[[int], str]) -> None:
    """Raise an error that names the leaf: TypeError if it is not an array, OverflowError if it is too large an int."""
    for i, x in enumerate(leaves):
        try:
            typeof(x)
        except OverflowError as error:
            raise OverflowError(
                f"An overflow was encountered while parsing an argument to {where}, whose argument path is {name(i)}. "
                f"{error}. Pass an array of a larger dtype, or set jax_enable_x64."
            ) from None
        except TypeError:
            raise TypeError(
                f"Error interpreting argument to {where} as an abstract array. The problematic value is of "
                f"type {type(x)} and was passed to the function at path {name(i)}: Argument {reprlib.repr(x)} "
                f"of type {type(x)} is not a valid JAX type. Arguments must be arrays, numbers or pytrees of them. "
                "Pass anything else to jit as a static argument (static_argnums or static_argnames), or close over it."
            ) from None


def argument_types(leaves: Sequence[Any], type_of: Callable[[Any], Any] = typeof) -> list[Any]:
    """The types of arguments; of values of libraries that change, with what is known of them here."""
    avals = [type_of(x) for x in leaves]
    if not AbstractValue.any_high:
        return avals
    return [a.with_state(x) if a.has_qdd else a for a, x in zip(avals, leaves, strict=True)]


def normalize_argnums(argnums: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Argument numbers as a tuple of non-negative ints; raises ValueError if one is out of range."""
    listed = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for i in listed:
        if not -count <= i < count:
            raise ValueError(
                "Positional argument indices must have value greater than or equal to -len(args) and less "
                f"than len(args), but {what} got value {i} for len(args) == {count}."
            )
    return tuple(i % count for i in listed)
