"""`vectorize`: functions of core dimensions mapped over all leading dimensions, by `vmap`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any

import numpy as np

from mpijax.core.base import config
from mpijax.core.base.warn import warn_user
from mpijax.lax import broadcast_shapes
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.shapes.reshape import expand_dims, squeeze
from mpijax.transforms.vmap import vmap

__all__ = ["vectorize"]

_NAME = r"\w+"
_ARGUMENT = rf"\((?:{_NAME}(?:,{_NAME})*)?\)"
_SIGNATURE = re.compile(rf"({_ARGUMENT}(?:,{_ARGUMENT})*)->({_ARGUMENT}(?:,{_ARGUMENT})*)")

CoreDims = tuple[str, ...]


def _parsed(signature: str) -> tuple[list[CoreDims], list[CoreDims]]:
    """`(n,m),(m)->(n)` as the core dimensions of the arguments and of the results."""
    found = _SIGNATURE.fullmatch(signature)
    if not found:
        raise ValueError(f"not a valid gufunc signature: {signature}")
    sides = ([tuple(re.findall(_NAME, a)) for a in re.findall(_ARGUMENT, side)] for side in found.groups())
    arguments, results = sides
    return arguments, results


def _note_sizes(sizes: dict[str, int], shape: Sequence[int], dims: CoreDims, context: str) -> None:
    """Read the sizes of core dimensions from the end of a shape. Raises ValueError if they differ from earlier
    sizes."""
    for dim, size in zip(dims, shape[len(shape) - len(dims) :], strict=True):
        if sizes.setdefault(dim, size) != size:
            raise ValueError(f"inconsistent size for core dimension {dim!r}: {size!r} vs {sizes[dim]!r} {context}")


def _checked(func: Callable, sizes: dict[str, int], expected: list[CoreDims], context: str) -> Callable:
    """`func` with a check that raises an error if results do not match the signature."""

    def wrapped(*args):
        out = func(*args)
        if len(expected) > 1 and not isinstance(out, tuple):
            raise TypeError(f"output must be a tuple when multiple outputs are expected, got: {out!r}\n{context}")
        shapes = [np.shape(x) for x in (out if isinstance(out, tuple) else (out,))]
        if len(shapes) != len(expected):
            raise TypeError(
                f"wrong number of output arguments: expected {len(expected)}, got {len(shapes)} {context}"
            )
        known = dict(sizes)
        for shape, dims in zip(shapes, expected, strict=True):
            if len(shape) != len(dims):
                raise ValueError(f"output shape {shape!r} does not match core dimensions {dims!r} {context}")
            _note_sizes(known, shape, dims, context)
        return out

    return wrapped


def _without(func: Callable, excluded: Collection[int | str], args: Sequence[Any], kwargs: dict[str, Any]):
    """(`func` of the arguments that are not excluded, these arguments)."""
    fixed = {i: a for i, a in enumerate(args) if i in excluded}
    named = {k: v for k, v in kwargs.items() if k in excluded}
    count = len(args)

    def partial(*rest):
        given = iter(rest)
        return func(*[fixed[i] if i in fixed else next(given) for i in range(count)], **named)

    return partial, [a for i, a in enumerate(args) if i not in fixed]


def _check_ranks(args: Sequence[Any], core: list[CoreDims], signature: str | None) -> None:
    mode = config.numpy_rank_promotion.value
    ranks = {a.ndim - len(dims) for a, dims in zip(args, core, strict=True) if a.ndim}
    if mode == "allow" or len(ranks) <= 1:
        return
    message = (
        f"operands with shapes {[a.shape for a in args]} require rank promotion for jnp.vectorize function with "
        f"signature {signature}. Set the jax_numpy_rank_promotion config option to 'allow' to disable this message."
    )
    if mode == "raise":
        raise ValueError(message)
    warn_user(message)


def vectorize(
    pyfunc: Callable, *, excluded: Collection[int | str] = frozenset(), signature: str | None = None
) -> Callable:
    """A function that broadcasts the leading dimensions of its arguments and maps `pyfunc` over them.

    Args:
      pyfunc: a function of arrays with only the core dimensions.
      excluded: positions and names of arguments that are passed unchanged. Keyword arguments that are not excluded are
        ignored, as in JAX.
      signature: names of core dimensions, such as `"(n,m),(m)->(n)"`. Default: scalars to scalars.

    Raises:
      ValueError: the signature does not parse, core dimensions disagree, or an excluded position is negative.
      TypeError: the number of arguments or results is wrong.

    >>> distance = jnp.vectorize(lambda x, y: jnp.sqrt(jnp.sum((x - y) ** 2)), signature="(n),(n)->()")
    >>> distance(jnp.array([[0.0, 0.0], [3.0, 0.0]]), jnp.array([3.0, 4.0]))
    Array([5., 4.], dtype=float32)
    """
    if any(not isinstance(e, (str, int)) for e in excluded):
        raise TypeError(f"jax.numpy.vectorize can only exclude integer or string arguments, but {excluded=!r}")
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"{excluded=!r} contains negative numbers")

    @wraps(pyfunc)
    def wrapped(*args, **kwargs) -> Any:
        context = f"on vectorized function with {excluded=!r} and {signature=!r}"
        func, rest = _without(pyfunc, excluded, args, kwargs)
        core, results = ([()] * len(rest), None) if signature is None else _parsed(signature)
        if len(rest) != len(core):
            raise TypeError(
                f"wrong number of positional arguments: expected {len(core)}, got {len(rest)} {context}"
            )
        absent = {i for i, a in enumerate(rest) if a is None}
        if any(core[i] for i in absent):
            raise ValueError(f"Cannot pass None at locations {absent} with {signature=}")
        func, rest = _without(func, absent, rest, {})
        core = [dims for i, dims in enumerate(core) if i not in absent]
        arrays = [asarray(a) for a in rest]
        sizes: dict[str, int] = {}
        for a, dims in zip(arrays, core, strict=True):
            if a.ndim < len(dims):
                raise ValueError(
                    f"input with shape {a.shape!r} does not have enough dimensions for all core dimensions {dims!r} "
                    f"{context}"
                )
            _note_sizes(sizes, a.shape, dims, context)
        _check_ranks(arrays, core, signature)
        checked = func if results is None else _checked(func, sizes, results, context)
        return _mapped(checked, arrays, [a.shape[: a.ndim - len(dims)] for a, dims in zip(arrays, core, strict=True)])

    return wrapped


def _mapped(func: Callable, arrays: list[Any], leading: list[tuple[int, ...]]) -> Any:
    """`func` mapped over leading dimensions. Dimensions of size 1 are shared instead of repeated."""
    full = broadcast_shapes(*leading)
    squeezed = [squeeze(a, tuple(i for i, d in enumerate(s) if d == 1)) for a, s in zip(arrays, leading, strict=True)]
    expand = []
    for axis in reversed(range(len(full))):
        behind = len(full) - axis
        in_axes = tuple(0 if len(s) >= behind and s[-behind] != 1 else None for s in leading)
        if all(a is None for a in in_axes):
            expand.append(axis)
        else:
            func = vmap(func, in_axes)
    out = func(*squeezed)
    if not expand:
        return out
    return tuple(expand_dims(r, expand) for r in out) if isinstance(out, tuple) else expand_dims(out, expand)
