"""Computes whole Jacobians: derivatives along all directions at once, by `vmap` over a basis.

For a function from a pytree to a pytree of arrays, the result has the structure of the output, with the structure of
the input in place of each leaf. The shape of a block is the output leaf's shape followed by the input leaf's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.dtypes.result_type import result_type
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.autodiff import as_argnums, check_real_output, check_reverse_input, selected_arguments
from mpijax.transforms.batching import same_for_all
from mpijax.transforms.derivatives import checked_callable, jvp, vjp
from mpijax.transforms.flat import transformed
from mpijax.transforms.vmap import vmap
from mpijax.transforms.zeros import zeros


def jacfwd(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:
    """A function that returns the Jacobian of `fun` by forward mode: one pass for each input element, vectorized.

    Args:
      fun: a function of pytrees of floating-point arrays; with `has_aux` it returns `(output, aux)`.
      argnums: positional arguments to differentiate with respect to; a tuple gives a tuple of blocks.
      holomorphic: differentiate a complex function of complex arguments.

    Raises:
      TypeError: for arguments that are not real (not complex, with `holomorphic`).

    >>> mpijax.jacfwd(lambda x: jnp.stack([x[0] * x[1], x[0] ** 2]))(jnp.array([2.0, 3.0]))
    Array([[3., 2.],
           [4., 0.]], dtype=float32)
    """
    checked_callable(fun)
    argnums = as_argnums(argnums)

    @transformed(fun, f"Jacobian of {{fun}} with respect to positional argument(s) {argnums}.")
    def jacobian_f(*args, **kwargs):
        f, chosen = selected_arguments(fun, argnums, args, kwargs, "jacfwd")
        for leaf in tree.tree_leaves(chosen):
            _check_forward_input(leaf, holomorphic)

        def push(tangents):
            y, column, *aux = jvp(f, chosen, tangents, has_aux=has_aux)
            return (tree.tree_map(same_for_all, y), column, *tree.tree_map(same_for_all, aux))

        y, columns, *aux = vmap(push, out_axes=(None, -1, *[None] * has_aux))(_basis(chosen))
        for leaf in tree.tree_leaves(y):
            _check_forward_output(leaf, holomorphic)
        example = chosen[0] if isinstance(argnums, int) else chosen
        jac = tree.tree_map(lambda out, block: _split_like(example, -1, out, block), y, columns)
        return (jac, *aux) if has_aux else jac

    return jacobian_f


def _check_forward_input(x: Any, holomorphic: bool) -> None:
    dtype = typeof(x).dtype
    if dtypes.issubdtype(dtype, dtypes.extended):
        raise TypeError(f"jacfwd with input element type {dtype.name}")
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(f"jacfwd with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
    elif not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(
            "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got "
            f"{dtype.name}. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
            "non-holomorphic functions involving complex inputs or integer inputs, use jax.jvp directly."
        )


def _check_forward_output(x: Any, holomorphic: bool) -> None:
    dtype = typeof(x).dtype
    if holomorphic and not dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError(f"jacfwd with holomorphic=True requires outputs with complex dtype, but got {dtype.name}.")


def jacrev(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable:
    """A function that returns the Jacobian of `fun` by reverse mode: one pass for each output element, vectorized.

    Arguments and errors as for `jacfwd`. `allow_int` accepts integer arguments, whose blocks are zeros.

    >>> mpijax.jacrev(lambda x: x**2)(jnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    checked_callable(fun)
    argnums = as_argnums(argnums)

    @transformed(fun, f"Jacobian of {{fun}} with respect to positional argument(s) {argnums}.")
    def jacobian_f(*args, **kwargs):
        f, chosen = selected_arguments(fun, argnums, args, kwargs, "jacrev")
        for leaf in tree.tree_leaves(chosen):
            check_reverse_input("jacrev", leaf, holomorphic, allow_int)
        y, pullback, *aux = vjp(f, *chosen, has_aux=has_aux)
        for leaf in tree.tree_leaves(y):
            check_real_output("jacrev", leaf, holomorphic)
        rows = vmap(pullback)(_basis(y))
        if isinstance(argnums, int):
            example, rows = chosen[0], rows[0]
        else:
            example = chosen
        jac = tree.tree_map(lambda x, block: _split_like(y, 0, x, block), example, rows)
        jac = tree.tree_transpose(tree.tree_structure(example), tree.tree_structure(y), jac)
        return (jac, *aux) if has_aux else jac

    return jacobian_f


def jacobian(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable:
    """Another name for `jacrev`.

    >>> mpijax.jacobian(lambda x: x**2)(jnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    return jacrev(fun, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=allow_int)


def hessian(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable:
    """A function that returns the matrix of second derivatives of `fun`, by forward over reverse mode.

    >>> mpijax.hessian(lambda x: x[0] ** 2 * x[1])(jnp.array([1.0, 2.0]))
    Array([[4., 2.],
           [2., 0.]], dtype=float32)
    """
    gradient = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(gradient, argnums, has_aux=has_aux, holomorphic=holomorphic)


def _basis(example: Any) -> Any:
    """A pytree like `example`, with a new first axis on each leaf: the standard basis of the space of all leaves."""
    leaves = tree.tree_leaves(example)
    size = sum(typeof(x).size for x in leaves)
    dtype = result_type(*leaves) if leaves else np.dtype(np.float32)
    return _split_like(example, 1, None, provided.eye(size, dtype=dtype))


def _split_like(structure: Any, axis: int, like: Any, block: Any) -> Any:
    """Split `block` along `axis` into the leaves of `structure`; each leaf's shape replaces that axis.

    The parts have the dtype of `like`, or of the leaves if `like` is None.
    """
    leaves, treedef = tree.tree_flatten(structure)
    avals = [typeof(x) for x in leaves]
    shape = np.shape(block)
    axis %= len(shape)
    shapes = [shape[:axis] + a.shape + shape[axis + 1 :] for a in avals]
    parts = _split(block, [a.size for a in avals], axis)
    target = None if like is None else typeof(like)
    return tree.tree_unflatten(
        treedef,
        [_cast(_reshape(p, s), a if target is None else target) for p, s, a in zip(parts, shapes, avals, strict=True)],
    )


def _split(x: Any, sizes: list[int], axis: int) -> list[Any]:
    if len(sizes) == 1:
        return [x]
    if typeof(x).dtype == dtypes.float0:
        return np.split(x, np.cumsum(sizes[:-1]), axis)
    return provided.basic.split(x, sizes, axis)


def _reshape(x: Any, shape: tuple[int, ...]) -> Any:
    if typeof(x).shape == shape:
        return x
    if typeof(x).dtype == dtypes.float0:
        return np.reshape(x, shape)
    return provided.basic.reshaped(x, shape)


def _cast(x: Any, aval: Any) -> Any:
    """`x` in the dtype of `aval`; only the real part if that dtype is real."""
    have = typeof(x).dtype
    if have == dtypes.float0:  # blocks for integer arguments: as in JAX, of the integer dtype
        return zeros(aval.update(shape=typeof(x).shape))
    if dtypes.issubdtype(have, np.complexfloating) and not dtypes.issubdtype(aval.dtype, np.complexfloating):
        x = x.real
    want = typeof(x).update(dtype=aval.dtype, weak_type=aval.weak_type)
    if want == typeof(x):
        return x
    return provided.basic.converted(x, aval)
