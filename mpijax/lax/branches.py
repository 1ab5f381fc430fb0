"""Defines `cond`, `switch` and `platform_dependent`: run one of several functions, selected at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpijax.core.base import config
from mpijax.core.base.source import callable_location
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.tracing.refs import has_views, opened
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.ops.control_flow.common import Body, listed, mismatch, pcast_to, remedy, same_type, trace_body
from mpijax.ops.control_flow.cond import cond_p
from mpijax.ops.control_flow.platform import platform_index_p
from mpijax.ops.control_flow.signatures import forwarded, join_consts, with_outputs
from mpijax.ops.control_flow.varying import vary_jaxpr
from mpijax.ops.elementwise.compare import ne
from mpijax.ops.elementwise.convert import convert_element_type, stage
from mpijax.ops.elementwise.select import clamp
from mpijax.transforms.flat import argument_types, debug_info
from mpijax.transforms.ref_state import (
    check_aliases,
    has_refs,
    of_values,
    state_passing,
    values_in,
    values_of,
    write_all,
)

_NO_OPERAND = object()


def cond(pred, true_fun: Callable, false_fun: Callable, *operands, operand: Any = _NO_OPERAND) -> Any:
    """`true_fun(*operands)` if `pred`, else `false_fun(*operands)`; runs only the selected function.

    Both functions are traced. Under `vmap` with a batched `pred`, both run, and the results are selected.
    Under `shard_map` with a `pred` that varies over a mesh axis, neither function may communicate over that
    axis.

    Args:
      pred: a scalar; a number is true unless it is 0.
      true_fun, false_fun: functions of `operands`, which are pytrees of arrays; their results have the same
        structure, shapes and dtypes.
      operand: replaces the positional operands, for older programs with one operand.

    Raises:
      TypeError: if `pred` is not a scalar number, or the results differ; the message says where.
      ValueError: if ranks that take different branches would communicate.

    >>> halve_or_grow = lambda x: lax.cond(x % 2 == 0, lambda: x // 2, lambda: 3 * x + 1)
    >>> halve_or_grow(6), halve_or_grow(5)
    (Array(3, dtype=int32, weak_type=True), Array(16, dtype=int32, weak_type=True))
    """
    if not (callable(true_fun) and callable(false_fun)):
        if callable(false_fun) and len(operands) == 2 and callable(operands[1]):
            # The older form cond(pred, x_true, true_fun, x_false, false_fun).
            x_true, f_true, x_false, f_false = true_fun, false_fun, *operands
            return cond(pred, lambda x, _: f_true(x), lambda _, x: f_false(x), x_true, x_false)
        raise TypeError(
            f"lax.cond: true_fun and false_fun arguments should be callable, but are {true_fun!r} and {false_fun!r}."
        )
    operands = _operands(operands, operand)
    pred = _predicate(pred)
    if config.disable_jit.value and _is_concrete(pred):
        return true_fun(*operands) if pred else false_fun(*operands)
    labels = [("false_fun", false_fun), ("true_fun", true_fun)]
    return _choose("cond", lambda: convert_element_type(pred, np.int32), labels, [1, 0], operands)


def switch(index, branches: Sequence[Callable], *operands, operand: Any = _NO_OPERAND) -> Any:
    """`branches[index](*operands)`, with `index` clamped to the valid range; runs only the selected function.

    All branches are traced, and return the same structure, shapes and dtypes; see `cond`.

    Raises:
      TypeError: if `index` is not an integer scalar, or results differ.
      ValueError: if there are no branches.

    >>> lax.switch(2, [lambda x: x, lambda x: x + 1, lambda x: x**2], jnp.array([3, 4]))
    Array([ 9, 16], dtype=int32)
    """
    if not all(callable(branch) for branch in branches):
        raise TypeError("lax.switch: branches argument should be a sequence of callables.")
    operands = _operands(operands, operand)
    if np.ndim(index) != 0:
        raise TypeError(f"Branch index must be scalar, got {index} of shape {np.shape(index)}.")
    try:
        dtype = typeof(index).dtype
    except TypeError as error:
        raise TypeError(f"Index type must be an integer, got {index}.") from error
    if dtype.kind not in "iu":
        raise TypeError(f"Index type must be an integer, got {index} as {dtype}")
    branches = tuple(branches)
    if not branches:
        raise ValueError("Empty branch sequence: lax.switch needs at least one branch.")
    if len(branches) == 1:
        return branches[0](*operands)
    index = clamp(np.int32(0), convert_element_type(index, np.int32), np.int32(len(branches) - 1))
    return _switch(index, branches, operands)


def platform_dependent(*args: Any, default: Callable | None = None, **per_platform: Callable) -> Any:
    """The result of the function for the platform on which the program runs, which is always `cpu`.

    Args:
      args: pytrees of arrays, passed to the function.
      per_platform: functions by platform name: `cpu`, `cuda`, `rocm`, `tpu`.
      default: the function for all other platforms.

    Raises:
      TypeError: if a branch is not a function.
      ValueError: for the platform "gpu", which is not a valid name.
      NotImplementedError: if there is neither a function for `cpu` nor a default.

    >>> lax.platform_dependent(jnp.arange(3), cpu=lambda x: x + 1, default=lambda x: x)
    Array([1, 2, 3], dtype=int32)
    """
    platforms: list[tuple[str, ...] | None] = []
    branches: list[Callable] = []
    for name, branch in per_platform.items():
        if not callable(branch):
            raise TypeError(f"lax.platform_dependent: the '{name}' branch must be a callable.")
        if name == "gpu":
            raise ValueError("Use 'cuda' or 'rocm' for lax.platform_dependent.")
        if branch in branches:
            i = branches.index(branch)
            platforms[i] = (*(platforms[i] or ()), name)
        else:
            platforms.append((name,))
            branches.append(branch)
    if default is not None:
        if not callable(default):
            raise TypeError("lax.platform_dependent: the 'default' branch must be a callable.")
        platforms.append(None)
        branches.append(default)
    index = platform_index_p.bind(platforms=tuple(platforms))
    if _is_concrete(index):
        return branches[int(index)](*args)
    return _switch(index, branches, args, branches_platforms=tuple(platforms))


# ---------------------------------------------------------------- arguments


def _operands(operands: tuple, operand: Any) -> tuple:
    if operand is _NO_OPERAND:
        return operands
    if operands:
        raise TypeError(
            "if 'operand' keyword is passed then no positional operands can be passed, got "
            f"operand={operand!r} and positional operands {operands}"
        )
    return (operand,)


def _predicate(pred: Any) -> Any:
    """The predicate as a bool scalar; raises TypeError for an invalid one."""
    if pred is None:
        raise TypeError("cond predicate is None")
    if isinstance(pred, Sequence):
        raise TypeError(f"Pred must be a scalar, got {pred} of type {type(pred)}")
    if np.ndim(pred) != 0:
        raise TypeError(f"Pred must be a scalar, got {pred} of shape {np.shape(pred)}.")
    try:
        dtype = typeof(pred).dtype
    except TypeError as error:
        raise TypeError(f"Pred type must be either boolean or number, got {pred}.") from error
    if dtype.kind == "b":
        return pred
    if dtype.kind not in "iuf":
        raise TypeError(f"Pred type must be either boolean or number, got {dtype}.")
    return ne(pred, typeof(pred).dtype.type(0)) if isinstance(pred, Tracer) else pred != 0


def _is_concrete(x: Any) -> bool:
    return not isinstance(x, Tracer) or x.concrete() is not None


# ---------------------------------------------------------------- binding


def _switch(index, branches: Sequence[Callable], operands: tuple, **params) -> Any:
    if config.disable_jit.value and _is_concrete(index):
        return branches[int(index)](*operands)
    # JAX's names of the branches.
    labels = [(f"branch{i}" if i else "branch 0", branch) for i, branch in enumerate(branches)]
    return _choose("switch", lambda: index, labels, range(len(branches)), operands, **params)


def _choose(
    name: str, index: Callable, labels, order: Sequence[int], operands: tuple, passed: Sequence[Any] = (), **params
) -> Any:
    """Trace the functions of `labels` in the given order, and bind `cond` with them as branches.

    passed: the user's leaves, where `operands` contains the values of references; branches must not close over these
    leaves.
    """
    leaves, in_tree = tree.tree_flatten(operands)
    if has_views(leaves):
        return _choose(name, index, labels, order, opened(operands), passed, **params)
    if has_refs(leaves):
        return _choose_with_refs(name, index, labels, order, operands, **params)
    types = argument_types(leaves)
    bodies: dict[int, Body] = {}
    of_function: dict[int, Body] = {}  # one function may be several branches
    for i in order:
        branch = labels[i][1]
        bodies[i] = of_function[id(branch)] = of_function.get(id(branch)) or trace_body(
            branch, in_tree.children(), types, name
        )
    for i in order:
        check_aliases(bodies[i].refs, passed, partial(debug_info, name, labels[i][1], operands, {}))
    written = tuple(dict.fromkeys(ref for i in order for ref in bodies[i].written))
    if written:
        passing = [(label, state_passing(branch, written)) for label, branch in labels]
        values, out = _choose(name, index, passing, order, (values_of(written), *operands), passed, **params)
        write_all(written, values)
        return out
    joined, consts = join_consts([(bodies[i].jaxpr, bodies[i].consts) for i in order])
    branches = [closed for _, closed in sorted(zip(order, joined, strict=True))]
    first = bodies[order[0]]
    for i in order[1:]:
        _check_results(name, labels[order[0]], first, labels[i], bodies[i])
    branches = _join_axes(branches)
    # Results that are the same argument in all branches bypass the primitive.
    sources = [row[0] if len(set(row)) == 1 else None for row in zip(*map(forwarded, branches), strict=True)]
    keep = tuple(i is None for i in sources)
    given = [*consts, *leaves]
    outs = iter(cond_p.bind(index(), *given, branches=tuple(with_outputs(b, keep) for b in branches), **params))
    return tree.tree_unflatten(first.out_tree, [next(outs) if i is None else stage(given[i]) for i in sources])


def _choose_with_refs(name: str, index: Callable, labels, order: Sequence[int], operands: tuple, **params) -> Any:
    """`_choose` for operands with mutable array references: passes their values in and out."""
    leaves = tree.tree_leaves(operands)
    check_aliases((), leaves, lambda: debug_info(name, labels[0][1], operands, {}))
    values, refs = values_in(operands)
    branches = [(label, of_values(branch, operands)) for label, branch in labels]
    out, finals = _choose(name, index, branches, order, values, leaves, **params)
    write_all(refs, finals)
    return out


def _join_axes(branches: list[ClosedJaxpr]) -> list[ClosedJaxpr]:
    """Makes each result vary, in all branches, over the mesh axes over which it varies in any branch."""
    axes = [frozenset().union(*(a.vma for a in row)) for row in zip(*(b.out_avals for b in branches), strict=True)]
    none: list[frozenset] = [frozenset()] * len(branches[0].in_avals)
    return [vary_jaxpr(b, none, axes) for b in branches]


def _check_results(name: str, label1, body1: Body, label2, body2: Body) -> None:
    """Raise TypeError, with the differing leaves, unless two branches return the same types."""
    (name1, fun1), (name2, fun2) = label1, label2
    functions = f"{name1} is {callable_location(fun1)}\n{name2} is {callable_location(fun2)}\n\n"
    if body1.out_tree != body2.out_tree:
        differences = [
            f"{name1} output{_at(path)} is a {one} but {name2} output{_at(path)} is a {two}, so {why}"
            for path, one, two, why in tree.equality_errors_pytreedef(body1.out_tree, body2.out_tree)
        ]
        if not differences:
            return
        raise TypeError(
            f"{name} branch outputs must have the same pytree structure, but they differ:\n\n{functions}"
            f"{_lines(differences)}\nRevise {name1} and/or {name2} so that they have the same pytree structure."
        )
    if all(map(same_type, body1.out_avals, body2.out_avals)):
        return
    whole = tree.tree_unflatten(body1.out_tree, body1.out_avals)
    paths = [path for path, _ in tree.tree_flatten_with_path(whole)[0]]
    differences = [
        f"the output of {name1}{_at(path)} has type {a.str_short(False)} but the corresponding output of {name2} "
        f"has type {b.str_short(False)}{mismatch(a, b)}"
        for path, a, b in zip(paths, body1.out_avals, body2.out_avals, strict=True)
        if not same_type(a, b)
    ]
    raise TypeError(
        f"{name} branches must have equal output types but they differ.\n\n{functions}"
        f"{listed(differences)}\n{_vary_alike(name1, body1, name2, body2, paths)}"
        f"Revise {name1} and/or {name2} so that all output types match."
    )


def _vary_alike(name1: str, body1: Body, name2: str, body2: Body, paths) -> str:
    """A hint for a result that varies between shards in one branch only."""
    pairs = list(zip(paths, body1.out_avals, body2.out_avals, strict=True))
    casts = [
        f"applying {pcast_to(wanted, have)} to the output of {name}{_at(path)}"
        for path, a, b in pairs
        for name, have, wanted in ((name1, a, b), (name2, b, a))
        if wanted.vma - have.vma
    ]
    return remedy(casts)


def _lines(differences: list[str]) -> str:
    return listed(differences) if len(differences) > 1 else f"{differences[0]}.\n"


def _at(path: tuple) -> str:
    return f" at path {tree.keystr(path)}" if path else ""
