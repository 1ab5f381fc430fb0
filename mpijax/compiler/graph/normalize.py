"""Replaces operations by simpler ones where their parameters are known when compiling.

Indexing at known positions becomes cheaper: gathers become slices, scatters static updates.

`x.at[1:-1, 1:-1].set(y)` is traced, as in JAX, to a scatter whose indices are an array made of literals. This module
evaluates such arrays, so the window is a static part of the result, as in a pad or concatenation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax import lax
from mpijax.core.rules import shape_rules
from mpijax.core.rules.index_maps import Elements, Index, boxed
from mpijax.core.rules.lowering import Elementwise, Meaning, Structural, Window, Writes
from mpijax.core.rules.primitive import Primitive, Unsupported

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Value

# Larger arrays (in elements) are not evaluated when compiling.
LARGEST = 64


def _static_update_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    def outside() -> Any:
        return r.read(0, index)

    def inside(source: Index) -> Any:
        new = r.read(1, source)
        return new if params["combine"] is None else r.op(params["combine"], outside(), new)

    return boxed(r, index, params["start"], avals[1].shape, outside, inside)


static_update_p = Primitive(
    "static_update",
    type_rule=Unsupported("only the compiler makes this primitive"),
    reference=Unsupported("only the compiler makes this primitive"),
    lower=Structural(_static_update_element, writes=Writes.WINDOW),
    jvp=Unsupported("only the compiler makes this primitive"),
    transpose=Unsupported("only the compiler makes this primitive"),
    batch=Unsupported("only the compiler makes this primitive"),
    sharding=shape_rules.static_update,
    register=False,
)
"""`operand` with `window` written at `start`, or combined with the old elements by the primitive `combine`.

`window` has as many axes as `operand` and lies within it.
"""


def known(v: Value) -> np.ndarray | None:
    """The contents of a small array computed from literals alone; else None."""
    stack = [v]
    while stack:
        w = stack[-1]
        parts = _made_of(w)
        first = next((u for u in parts or () if u.holds is None or u.holds is ...), None)
        if first is not None and first.holds is ...:
            stack.append(first)
            continue
        w.holds = None if parts is None or first is not None else _evaluated(w, [u.holds for u in parts])
        stack.pop()
    return v.holds


def _made_of(v: Value) -> list[Value] | None:
    """The values from which the contents of `v` can be computed; None if they cannot."""
    if v.scalar is not None:
        return []
    if v.outside is not None:
        return [v.outside]
    node = v.producer
    if node is None or v.size > LARGEST or not isinstance(v.aval.dtype, np.dtype) or node.primitive.multiple_results:
        return None
    lower = node.primitive.lower
    if not isinstance(lower, (Elementwise, Structural)) or isinstance(node.primitive.reference, Unsupported):
        return None
    return node.inputs


def _evaluated(v: Value, parts: list) -> np.ndarray:
    """The contents of a value, given the contents of `_made_of` it."""
    if v.scalar is not None:
        return np.asarray(v.scalar)
    if v.outside is not None:
        return parts[0]
    node = v.producer
    assert node is not None  # `_made_of` gives parts only for literals, captures and nodes
    return np.asarray(node.primitive.reference(*parts, **node.params), v.element).reshape(v.shape)


def operands(builder: Any, primitive, inputs: list) -> list:
    """The operands of an elementwise operation, or equivalent ones.

    The derivative of relu reads `x > 0`. If `max(x, 0)` is computed anyway, this reads it instead; x can then be freed.
    """
    if primitive.lower.meaning is not Meaning.GREATER or inputs[1].scalar is None or inputs[1].scalar != 0:
        return inputs
    largest = builder.done(lax.max_p, {}, inputs, [inputs[0].aval])
    return inputs if largest is None else [largest[0], inputs[1]]


def known_count(builder: Any, primitive, params, inputs, avals) -> list | None:
    """The result of an elementwise operation if it is one integer or bool that is known when compiling; else None."""
    converts = primitive.lower.meaning is Meaning.CONVERSION
    exact = _is_count(avals) or (converts and _is_count([v.aval for v in inputs]))
    if exact and all(v.scalar is not None for v in inputs):
        return [builder.literal(primitive.reference(*[v.scalar for v in inputs], **params), avals[0])]
    return None


def _is_count(avals) -> bool:
    """Whether the only value is one integer or bool: operations that make it, and its conversion, fold exactly."""
    dtype = avals[0].dtype
    return len(avals) == 1 and avals[0].shape == () and isinstance(dtype, np.dtype) and dtype.kind in "iub"


def simplified(builder: Any, primitive, params, inputs, avals, source) -> list | None:
    """The result of an operation whose window is known when compiling, as a slice or static update; else None."""
    lower = primitive.lower
    if lower.window is None:
        return None
    found = lower.window(params, [_shape(builder, v) for v in inputs], lambda k: known(inputs[k]))
    if found is None:
        return None
    if not lower.in_place:
        return [_reshaped(builder, _slice(builder, inputs[0], found, source), avals[0].shape, source)]
    operand, new = inputs[0], inputs[found.new]
    if found.start is None or 0 in _shape(builder, new):
        return [operand]
    part = _reshaped(builder, new, found.sizes, source)
    update = {"start": found.start, "combine": lower.combine}
    return [_pure(builder, static_update_p, update, [operand, part], avals[0], source)]


def _pure(builder, primitive, params, inputs, aval, source):
    [out] = builder.pure(primitive, params, inputs, [aval], source)
    return out


def _shape(builder, v) -> tuple[int, ...]:
    """The shape of the whole array, also if `v` is a shard of it."""
    return builder.global_aval(v).shape


def _slice(builder, v, window: Window, source):
    limits = tuple(s + n for s, n in zip(window.start or (), window.sizes, strict=True))
    params = {"start_indices": window.start, "limit_indices": limits, "strides": None}
    return _pure(builder, lax.slice_p, params, [v], v.aval.update(shape=tuple(window.sizes)), source)


def _reshaped(builder, v, shape, source):
    if _shape(builder, v) == tuple(shape):
        return v
    params = {"new_sizes": tuple(shape), "dimensions": None, "sharding": None}
    return _pure(builder, lax.reshape_p, params, [v], v.aval.update(shape=tuple(shape)), source)
