"""Shared parts of loops and branches: tracing a body, comparing types by leaf, splitting lists of operands."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import sources_of_function
from mpijax.core.dtypes.result_type import result_type
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.trace import scope_key
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.flat import FlatFun, debug_info_of
from mpijax.transforms.ref_state import is_ref, may_be_kept, values_of
from mpijax.transforms.zeros import Zero


@dataclass(frozen=True)
class Body:
    """A traced function of pytrees: a Jaxpr without constants.

    Attributes:
      jaxpr: takes the values of `consts`, then the flat arguments.
      consts: the arrays and tracers that the function closes over.
      out_tree: structure of the result.
      written: the outside mutable array references that the function writes. Their new values are additional
        results of the Jaxpr: trace `state_passing(fun, written)` instead.
      refs: the outside references that it reads or writes.
    """

    jaxpr: ClosedJaxpr
    consts: list[Any]
    out_tree: Any
    written: tuple[Any, ...] = ()
    refs: tuple[Any, ...] = ()

    @property
    def out_avals(self) -> list[ShapedArray]:
        return self.jaxpr.out_avals


# Per function: a function that is used twice is traced once, so both uses share one Jaxpr object.
_bodies: weakref.WeakKeyDictionary[Callable, dict] = weakref.WeakKeyDictionary()


def trace_body(fun: Callable, args: Sequence[tree.PyTreeDef], leaves: Sequence[ShapedArray], name: str) -> Body:
    """Trace `fun` of arguments with these structures, whose leaves have these types.

    User-defined nodes are made of tracers only: their classes may compute with what they get.

    Arrays and tracers that `fun` closes over become leading arguments. `name` is the operation in error
    messages: `scan`, `cond`, `while_loop` ...
    """
    in_tree = tree.treedef_tuple((tree.treedef_tuple(args), tree.tree_structure({})))
    key = (in_tree, tuple(leaves), *scope_key())
    try:
        known = _bodies.setdefault(fun, {})
    except TypeError:  # `fun` is not hashable, or has no weak references
        known = {}
    found = known.get(key)
    if found is None:
        flat = FlatFun(fun, in_tree)
        written: list[Any] = []
        with sources_of_function(fun):
            jaxpr, consts = trace_to_jaxpr(flat, leaves, debug_info_of(name, fun, in_tree), written)
        used = tuple({*filter(is_ref, consts), *written})
        found = Body(*hoist_tracers(jaxpr, consts, lambda _: True), flat.out_tree, tuple(written), used)
        if may_be_kept(found.consts) and not any(a.has_qdd for a in found.jaxpr.in_avals):
            known[key] = found
    return replace(found, consts=values_of(found.consts))


def same_type(a: ShapedArray, b: ShapedArray) -> bool:
    """Whether two types agree in shape, dtype, varying axes and split; ignores weak types."""
    return a.form == b.form and a.vma == b.vma and a.split == b.split


def promote_weak(values: Sequence[Any], wanted: Sequence[ShapedArray]) -> tuple[list[Any], bool]:
    """Convert weakly typed values to match `wanted`. Also returns whether any value was converted."""
    promoted = [_promoted(x, want) for x, want in zip(values, wanted, strict=True)]
    return promoted, any(p is not x for p, x in zip(promoted, values, strict=True))


def _promoted(x: Any, want: ShapedArray) -> Any:
    have = typeof(x)
    if not have.weak_type or same_type(have, want):
        return x
    return registry["convert_element_type"].bind(x, new_dtype=result_type(x, want), weak_type=False)


# ---------------------------------------------------------------- errors, leaf by leaf


def mismatch(a: ShapedArray, b: ShapedArray) -> str:
    """How two types differ, as the end of a sentence; nothing for types of libraries."""
    if a.is_high or b.is_high:
        return ""
    found = [
        text
        for differs, text in (
            (a.dtype != b.dtype, "the dtypes do not match"),
            (a.shape != b.shape, "the shapes do not match"),
            (a.vma != b.vma, "the manual axis types do not match"),
        )
        if differs
    ]
    return f", so {', and '.join(found)}" if found else ""


def listed(items: Sequence[str]) -> str:
    """One sentence, or a list with one line per item."""
    if len(items) == 1:
        return f"{items[0][0].upper()}{items[0][1:]}.\n"
    return "\n".join(f"  * {item};" for item in items[:-1]) + f"\n  * {items[-1]}.\n"


def _component(fun: Callable) -> Callable[[tuple], str]:
    """Names a leaf of the carry by the function's first parameter."""
    try:
        parameter = next(iter(inspect.signature(fun).parameters), None)
    except (TypeError, ValueError):
        parameter = None
    if parameter is not None:
        return lambda path: f"the input carry{' component' if path else ''} {parameter}{tree.keystr(path)}"
    return lambda path: f"the input carry at path {tree.keystr(path)}" if path else "the input carry"


def check_carry(
    what: str,
    fun: Callable,
    in_tree: Any,
    in_avals: Sequence[ShapedArray],
    out_tree: Any,
    out_avals: Sequence[ShapedArray],
) -> None:
    """Raise TypeError unless `fun` returns the carry with the structure and types that it takes.

    `what` is the function in the message: `scan body`, `body_fun` ...
    """
    component = _component(fun)
    if in_tree != out_tree:
        _refuse_structure(what, component, in_tree, out_tree)
    if all(map(same_type, in_avals, out_avals)):
        return
    paths = [path for path, _ in tree.tree_flatten_with_path(tree.tree_unflatten(in_tree, in_avals))[0]]
    triples = [t for t in zip(paths, in_avals, out_avals, strict=True) if not same_type(t[1], t[2])]
    differences = [
        f"{component(path)} has type {a.str_short(False)} but the corresponding output carry component has "
        f"type {b.str_short(False)}{mismatch(a, b)}"
        for path, a, b in triples
    ]
    raise TypeError(
        f"{what} function carry input and carry output must have equal types, but they differ:\n\n"
        f"{listed(differences)}\n{_vary_first(component, triples)}"
        "Revise the function so that all output types match the corresponding input types."
    )


def _refuse_structure(what: str, component, in_tree, out_tree) -> None:
    differences = [
        f"{component(path)} is a {one} but the corresponding component of the carry output is a {other}, so {why}"
        for path, one, other, why in tree.equality_errors_pytreedef(in_tree, out_tree)
    ]
    if not differences:
        return  # only auxiliary data of nodes differs
    raise TypeError(
        f"{what} function carry input and carry output must have the same pytree structure, but they differ:\n\n"
        f"{listed(differences)}\n"
        "Revise the function so that the carry output has the same pytree structure as the carry input."
    )


def _vary_first(component, triples) -> str:
    """A hint for a carry that is initially the same on all ranks, but does not stay the same."""
    casts = [
        f"applying {pcast_to(b, a)} to the initial carry value corresponding to {component(path)}"
        for path, a, b in triples
        if b.vma - a.vma
    ]
    return remedy(casts)


def pcast_to(wanted: ShapedArray, have: ShapedArray) -> str:
    """The call that makes a value of type `have` vary like `wanted`."""
    return f"`jax.lax.pcast(..., {tuple(sorted(wanted.vma - have.vma, key=str))}, to='varying')`"


def remedy(casts: Sequence[str]) -> str:
    """The hints as a paragraph of an error."""
    if not casts:
        return ""
    if len(casts) == 1:
        return f"This might be fixed by {casts[0]}.\n\n"
    return f"This might be fixed by:\n{listed(casts)}\n"


# ---------------------------------------------------------------- lists of operands


def split(items: Sequence[Any], *sizes: int) -> list[list[Any]]:
    """Consecutive parts of the given sizes, then the rest."""
    parts, start = [], 0
    for size in sizes:
        parts.append(list(items[start : start + size]))
        start += size
    return [*parts, list(items[start:])]


def chosen(items: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """The items whose flag is set."""
    return [x for x, flag in zip(items, flags, strict=True) if flag]


def merged(flags: Iterable[bool], with_flag: Iterable[Any], without: Iterable[Any]) -> list[Any]:
    """The inverse of `chosen`: merges the items with and without a flag into one list."""
    yes, no = iter(with_flag), iter(without)
    return [next(yes) if flag else next(no) for flag in flags]


def nonzero_flags(tangents: Iterable[Any]) -> list[bool]:
    """Which tangents are not symbolic zeros."""
    return [type(t) is not Zero for t in tangents]
