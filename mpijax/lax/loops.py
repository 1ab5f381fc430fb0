"""Defines `scan` and `map`: loops over the leading axis of arrays."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.base import config, errors
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.tracing.refs import Ref
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.control_flow.common import Body, check_carry, chosen, merged, promote_weak, split, trace_body
from mpijax.ops.control_flow.scan import scan_p, slice_aval
from mpijax.ops.control_flow.varying import decided_over, vary
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.indexing.slicing import concatenate, index_in_dim, slice
from mpijax.ops.shapes.reshape import expand_dims, reshape
from mpijax.transforms.flat import debug_info, standing_for
from mpijax.transforms.ref_state import (
    CarriedRefs,
    check_aliases,
    has_refs,
    made_of,
    refs_in,
    state_passing,
    values_in,
    values_of,
    write_all,
)
from mpijax.transforms.vmap import vmap


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Apply a function to the slices of arrays one after the other, carrying a value.

    Equivalent to this loop, for pytrees, as one operation that is traced and compiled once:

        carry, ys = init, []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, stack(ys)

    Args:
      f: `(carry, x) -> (carry, y)`. The carry keeps its structure, shapes and dtypes.
      init: the carry of the first iteration.
      xs: arrays with a common leading axis; each iteration gets a slice. None if there are none.
      length: number of iterations, if `xs` does not determine it.
      reverse: iterate from the last slice to the first; results keep the positions of their slices.
      unroll: number of iterations in one iteration of the compiled loop; True or 0: all of them.
      _split_transpose: accepted for compatibility with JAX, without effect.

    Returns:
      The last carry, and the `y`s stacked along a new leading axis of size `length`.

    Raises:
      TypeError: if `f` is not callable, does not return a pair, or changes the carry's type.
      ValueError: if leading axes or `length` disagree, or neither gives the number of iterations.

    >>> lax.scan(lambda total, x: (total + x, total * x), 0, jnp.array([1, 2, 3]))
    (Array(6, dtype=int32), Array([0, 2, 9], dtype=int32))
    """
    if not callable(f):
        raise TypeError(f"lax.scan: f argument should be a callable, got {f!r} of type {type(f)}.")
    init_leaves, init_tree = tree.tree_flatten(init)
    xs_leaves, xs_tree = tree.tree_flatten(xs)
    init_avals = [typeof(x) for x in init_leaves]
    length = _scan_length(xs_leaves, length)
    if has_refs(init_leaves) or has_refs(xs_leaves):
        return _scan_over_refs(f, init, xs, length, reverse, unroll)
    if config.disable_jit.value:
        return _python_scan(f, init, xs, length, reverse)
    x_avals = [_sliced(typeof(x), length) for x in xs_leaves]

    def trace(avals: Sequence[ShapedArray]) -> tuple[Body, Any]:
        body = trace_body(f, [init_tree, xs_tree], [*avals, *x_avals], "scan")
        return body, _carry_tree(body)

    body, carry_tree = trace(init_avals)
    if body.written:
        return _scan_writing(f, body.written, init, xs, length, reverse, unroll)
    if carry_tree.num_leaves == len(init_leaves):
        init_leaves, changed = promote_weak(init_leaves, body.out_avals[: len(init_leaves)])
        if changed:
            init_avals = [typeof(x) for x in init_leaves]
            body, carry_tree = trace(init_avals)
        while grown := _decided_apart(body, init_avals):
            init_leaves = [vary(x, axes) for x, axes in zip(init_leaves, grown, strict=True)]
            init_avals = [typeof(x) for x in init_leaves]
            body, carry_tree = trace(init_avals)
    carry_avals = body.out_avals[: carry_tree.num_leaves]
    check_carry("scan body", f, init_tree, init_avals, carry_tree, carry_avals)
    carry, ys = _bind(body, init_leaves, xs_leaves, length, bool(reverse), _turns_at_once(unroll, length))
    return tree.tree_unflatten(body.out_tree, [*carry, *ys])


def _decided_apart(body: Body, init_avals: Sequence[ShapedArray]) -> list[frozenset]:
    """The mesh axes over which each component of the carry must vary from the start; empty if there are none.

    A component must vary if a `cond` in the body has a predicate that varies over these axes. In JAX the result of
    `cond` does not vary with its predicate, so the carry keeps its type there.
    """
    grown = [out.vma - given.vma for given, out in zip(init_avals, body.out_avals, strict=False)]
    if not any(grown) or not frozenset().union(*grown) <= decided_over(body.jaxpr.jaxpr):
        return []
    return grown


def _sliced(aval: ShapedArray, length: int) -> ShapedArray:
    """The type of a slice. Raises ValueError for an array whose leading axis is split over Explicit mesh axes."""
    if not aval.is_high and aval.leading_split is not None:
        raise ValueError(
            f"0th dimension of all xs should be replicated. Got {aval.sharding.spec}. Reshard the array with "
            "jax.sharding.reshard, or use vmap."
        )
    return slice_aval(aval, length)


def _scan_writing(f: Callable, written: Sequence[Ref], init, xs, length: int, reverse: bool, unroll) -> tuple[Any, Any]:
    """`scan` for `f` that writes to outside references: carries their values."""
    explicit = state_passing(f, written)
    iteration = made_of(explicit, _carrying, lambda fun: lambda carry, x: _pair_carried(fun()(carry[0], carry[1], x)))
    (values, carry), ys = scan(iteration, (values_of(written), init), xs, length, reverse, unroll)
    write_all(written, values)
    return carry, ys


# Bodies of scans that carry the values of references, by the function of values.
_carrying: weakref.WeakKeyDictionary[Callable, Callable] = weakref.WeakKeyDictionary()


def _pair_carried(result):
    values, (carry, y) = result
    return (values, carry), y


def _scan_over_refs(f: Callable, init: Any, xs: Any, length: int, reverse: bool, unroll) -> tuple[Any, Any]:
    """`scan` over the slices of references: stacks the final values of the slices."""
    check_aliases((), tree.tree_leaves((init, xs)), lambda: debug_info("scan", f, (init, xs), {}))
    if has_refs(tree.tree_leaves(init)):
        return _scan_carrying_refs(f, init, xs, length, reverse, unroll)
    values, refs = values_in(xs)

    def iteration(carry, x):
        slices, inner = refs_in(x, xs)
        carry, y = f(carry, slices)
        return carry, (y, values_of(inner))

    carry, (ys, finals) = scan(iteration, init, values, length, reverse, unroll)
    write_all(refs, finals)
    return carry, ys


def _scan_carrying_refs(f: Callable, init: Any, xs: Any, length: int, reverse: bool, unroll) -> tuple[Any, Any]:
    """`scan` whose carry has references in fixed places."""
    carried = CarriedRefs(init, "scan")

    def iteration(values, x):
        carry, y = f(carried.carry(values), x)
        return carried.values(carry), y

    values, ys = scan(iteration, carried.values(init), xs, length, reverse, unroll)
    return carried.carry(values), ys


def _carry_tree(body: Body) -> Any:
    """The structure of the first element of the pair that the body returns."""
    parts = tree.treedef_children(body.out_tree)
    if len(parts) != 2:
        got = tree.tree_unflatten(body.out_tree, body.out_avals)
        raise TypeError(
            f"scan body output must be a pair, got {got}. Return a pair: the new carry, and the values to stack or "
            "None."
        )
    return parts[0]


def _scan_length(xs: list[Any], length: Any) -> int:
    xs = [x for x in xs if not typeof(x).is_high]
    if not all(hasattr(x, "shape") for x in xs):
        wrong = ", ".join(str(x) for x in xs if not hasattr(x, "shape"))
        raise ValueError(
            f"scan got value with no leading axis to scan over: {wrong}. The arguments are scan(f, init, xs): each "
            "array in xs needs a leading axis."
        )
    scalars = [x for x in xs if not x.shape]
    if scalars:
        raise IndexError(
            f"scan got {len(scalars)} scalars in xs, but it iterates over the leading axis of each array. Close over "
            "values that are the same in each iteration, or add a leading axis"
        )
    lengths = [x.shape[0] for x in xs]
    if length is None:
        if not lengths:
            raise ValueError("scan got no values to scan over and `length` not provided.")
        if len(set(lengths)) > 1:
            shown = ", ".join(str(n) for n in lengths)
            raise ValueError(f"scan got values with different leading axis sizes: {shown}.")
        return lengths[0]
    if isinstance(length, Tracer) and length.concrete() is None:
        raise errors.ConcretizationTypeError(
            length,
            "The `length` argument to `scan` expects a concrete `int` value. For scan-like iteration with a "
            "dynamic length, use `while_loop` or `fori_loop`.",
        )
    length = int(length)
    if not 0 <= length < 2**63:
        raise ValueError(f"scan got `length` argument of {length}, but the number of iterations must be at least 0.")
    if any(n != length for n in lengths):
        raise ValueError(f"scan got `length` argument of {length} which disagrees with leading axis sizes {lengths}.")
    return length


def _turns_at_once(unroll: Any, length: int) -> int:
    """The parameter `unroll`: True means all iterations, False one; 0 is kept, and means all."""
    if isinstance(unroll, Tracer):
        raise errors.ConcretizationTypeError(
            unroll, "The `unroll` argument to `scan` expects a concrete `int` or `bool` value."
        )
    if isinstance(unroll, bool):
        unroll = max(length, 1) if unroll else 1
    if unroll < 0:
        raise ValueError(f"`unroll` must be a `bool` or a non-negative `int`, got {unroll}.")
    return int(unroll)


def _python_scan(f, init, xs, length: int, reverse: bool):
    """The loop in Python, for `disable_jit`."""
    if length == 0:
        raise ValueError(
            "zero-length scan is not supported in disable_jit() mode because the output type is unknown."
        )
    carry, ys = init, []
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = f(carry, tree.tree_map(lambda x, i=i: index_in_dim(x, i, keepdims=False), xs))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, tree.tree_map(lambda *parts: concatenate([expand_dims(p, (0,)) for p in parts], 0), *ys)


# ---------------------------------------------------------------- what need not go through the loop


def _bind(body: Body, init: list[Any], xs: list[Any], length: int, reverse: bool, unroll: int):
    """The last carry and the stacked results.

    A carry that every iteration returns unchanged becomes a const. An x that is returned as a y
    is not copied.
    """
    n = len(body.consts)
    closed, constant, copied = _without_forwarding(body.jaxpr, n, len(init))
    moved = chosen(init, constant)
    consts = [*moved, *body.consts]
    carried = [x for x, c in zip(init, constant, strict=True) if not c]
    outs = scan_p.bind(
        *consts, *carried, *xs,
        jaxpr=closed, length=length, num_carry=len(carried), num_consts=len(consts), reverse=reverse, unroll=unroll,
    )  # fmt: skip
    carry_out, computed = split(outs, len(carried))
    rest = iter(computed)
    ys = [next(rest) if i is None else _as_array(xs[i]) for i in copied]
    return merged(constant, moved, carry_out), ys


def _as_array(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    return convert_element_type(x, x.dtype)


@memo_on_jaxpr
def _without_forwarding(closed: ClosedJaxpr, num_consts: int, num_carry: int):
    """The body without carries and ys that are unchanged arguments.

    Returns it with those carries as leading consts, a flag for each carry, and for each y the number
    of the x that it equals, or None.
    """
    jaxpr = closed.jaxpr
    consts, carry, xs = split(jaxpr.invars, num_consts, num_carry)
    carry_out, ys = split(jaxpr.outvars, num_carry)
    constant = [a is b for a, b in zip(carry, carry_out, strict=True)]
    position = {v: i for i, v in enumerate(xs)}
    copied = [position.get(v) for v in ys]
    changing = [not c for c in constant]
    pruned = jaxpr.replace(
        invars=[*chosen(carry, constant), *consts, *chosen(carry, changing), *xs],
        outvars=[*chosen(carry_out, changing), *(v for v, i in zip(ys, copied, strict=True) if i is None)],
    )
    return ClosedJaxpr(pruned, closed.consts), constant, copied


# ---------------------------------------------------------------- map


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Apply a function to the slices of arrays one after the other, and stack the results.

    Args:
      f: a function of a slice along the leading axis of each array in `xs`.
      xs: arrays with a common leading axis.
      batch_size: vectorize over this many slices in each iteration; the remainder is processed
        separately. 0: all at once, as in `vmap`.

    Returns:
      Results with a new leading axis of the same size as that of `xs`.

    >>> lax.map(lambda x: x**2, jnp.arange(4))
    Array([0, 1, 4, 9], dtype=int32)
    """
    if batch_size is None:
        return scan(standing_for(lambda _, x: ((), f(x)), "map", lambda: f, lambda _, x: (x,)), (), xs)[1]
    leaves, structure = tree.tree_flatten(xs)
    length = _scan_length(leaves, None)
    if batch_size < 0:
        raise ValueError(f"lax.map: batch_size must not be negative, got {batch_size}")
    if batch_size == 0:
        return vmap(f)(xs)
    whole, left = divmod(length, batch_size)
    if not whole:
        return vmap(f)(xs)
    batched, rest = [], []
    for x in leaves:
        full = _rows(x, 0, length - left) if left else x
        batched.append(reshape(full, (whole, batch_size, *x.shape[1:])))
        if left:
            rest.append(_rows(x, length - left, length))
    _, ys = scan(lambda _, x: ((), vmap(f)(x)), (), tree.tree_unflatten(structure, batched))
    if not left:
        return tree.tree_map(_joined, ys)
    last = vmap(f)(tree.tree_unflatten(structure, rest))
    return tree.tree_map(lambda y, z: concatenate([_joined(y), z], 0), ys, last)


def _rows(x: Any, start: int, stop: int) -> Any:
    return slice(x, (start, *(0,) * (x.ndim - 1)), (stop, *x.shape[1:]))


def _joined(x: Any) -> Any:
    """Merges the two leading axes."""
    return reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
