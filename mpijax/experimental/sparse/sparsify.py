"""`sparsify`: functions of dense arrays for sparse ones, by a rule for each primitive that knows them.

The function is traced with dense types. Its program is then run with the sparse arrays in place: equations without a
sparse operand as they are, others by the rules below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import tree
from mpijax.core.avals import ShapeDtypeStruct
from mpijax.core.jaxpr import Eqn, bound, eval_jaxpr
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.operations import is_bcoo
from mpijax.ops.ad_ops import add_any_p
from mpijax.transforms.api import make_jaxpr
from mpijax.transforms.call import jit_p

_RULES: dict[Any, Callable] = {}


def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """`f`, written for dense arrays, as a function that takes and returns `BCOO` arrays too.

    Sums, products and other functions of sparse arrays are sparse as well; a product of a sparse with a dense array by
    `@`, `dot` or `einsum` is dense.

    Args:
      use_tracer: accepted; the function is always traced.

    Raises:
      NotImplementedError: an operation that has no rule for sparse arrays, or not for these.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.sparsify(lambda x, y: jnp.sin(-x).T @ y)(x, jnp.array([1.0, 0.0])).shape
    (2,)
    """

    @wraps(f)
    def applied(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.tree_flatten((args, kwargs), is_leaf=is_bcoo)

        def dense(leaves: list[Any]) -> Any:
            given, named = structure.unflatten(leaves)
            return f(*given, **named)

        types = [ShapeDtypeStruct(x.shape, x.dtype) if is_bcoo(x) else x for x in leaves]
        closed, shapes = make_jaxpr(dense, return_shape=True)(types)
        outs = eval_jaxpr(closed.jaxpr, closed.consts, *leaves, apply=_apply)
        return tree.tree_structure(shapes).unflatten(outs)

    return applied


def _apply(eqn: Eqn, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation some of whose operands are sparse."""
    if not any(map(is_bcoo, values)):
        return bound(eqn, values)
    rule = _RULES.get(eqn.primitive)
    if rule is None:
        raise NotImplementedError(
            f"sparse rule for {eqn.primitive.name} is not implemented (at {eqn.source}): give todense() of its sparse "
            f"operands to the function. There are rules for {', '.join(sorted(p.name for p in _RULES))}."
        )
    outs = rule(*values, **eqn.params)
    return outs if eqn.primitive.multiple_results else (outs,)


def _rule(primitive: Any) -> Callable:
    return lambda fun: _RULES.setdefault(primitive, fun)


def _on_values(primitive: Any, linear: bool, mat: Any, *args: Any, **params: Any) -> Any:
    """A function that is 0 at 0; of sums of elements at equal coordinates where it is not linear."""
    if not (linear or mat.unique_indices):
        mat = ops.bcoo_sum_duplicates(mat, nse=mat.nse)
    return mat._with(primitive.bind(mat.data, *args, **params))


for _p in (lax.neg_p, lax.real_p, lax.imag_p, lax.copy_p):
    _RULES[_p] = partial(_on_values, _p, True)
for _p in (
    lax.abs_p, lax.asin_p, lax.asinh_p, lax.atan_p, lax.atanh_p, lax.cbrt_p, lax.convert_element_type_p, lax.expm1_p,
    lax.log1p_p, lax.sign_p, lax.sin_p, lax.sinh_p, lax.sqrt_p, lax.square_p, lax.tan_p, lax.tanh_p,
):  # fmt: skip
    _RULES[_p] = partial(_on_values, _p, False)


@_rule(lax.integer_pow_p)
def _integer_pow(mat: Any, *, y: int) -> Any:
    if y <= 0:
        raise NotImplementedError(f"sparse rule for integer_pow: elements that are not stored become infinite, y={y}.")
    return _on_values(lax.integer_pow_p, False, mat, y=y)


def _same_shape(*operands: Any) -> list[Any]:
    """Sparse operands of an elementwise function, spread along the axes in which they have size 1."""
    shape = np.broadcast_shapes(*map(np.shape, operands))
    return [_broadcast(x, shape) if is_bcoo(x) and x.shape != shape else x for x in operands]


@_rule(lax.mul_p)
def _mul(x: Any, y: Any) -> Any:
    x, y = _same_shape(x, y)
    return ops.multiply(x, y) if is_bcoo(x) else ops.multiply(y, x)


@_rule(lax.div_p)
def _div(x: Any, y: Any) -> Any:
    if is_bcoo(y) or np.ndim(y):
        raise NotImplementedError("sparse rule for div: only a sparse array can be divided, and by a scalar.")
    return x._with(lax.div(x.data, jnp.broadcast_to(y, x.data.shape)))


@_rule(lax.add_p)
def _add(x: Any, y: Any) -> Any:
    x, y = _same_shape(x, y)
    return ops.add(x, y) if is_bcoo(x) else ops.add(y, x)


_RULES[add_any_p] = _add


@_rule(lax.sub_p)
def _sub(x: Any, y: Any) -> Any:
    return _add(x, -y)


@_rule(lax.transpose_p)
def _transpose(mat: Any, *, permutation: Sequence[int]) -> Any:
    return ops.bcoo_transpose(mat, permutation=permutation)


@_rule(lax.reduce_sum_p)
def _reduce_sum(mat: Any, *, axes: Sequence[int], out_sharding: Any = None) -> Any:
    return ops.bcoo_reduce_sum(mat, axes=axes)


@_rule(lax.reshape_p)
def _reshape(mat: Any, *, new_sizes: Sequence[int], dimensions: Any, sharding: Any = None) -> Any:
    return ops.bcoo_reshape(mat, new_sizes=new_sizes)


@_rule(lax.squeeze_p)
def _squeeze(mat: Any, *, dimensions: Sequence[int]) -> Any:
    return ops.bcoo_reshape(mat, new_sizes=[n for i, n in enumerate(mat.shape) if i not in dimensions])


@_rule(lax.broadcast_in_dim_p)
def _broadcast_in_dim(mat: Any, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_params: Any) -> Any:
    return _broadcast(mat, shape, broadcast_dimensions)


def _broadcast(mat: Any, shape: Sequence[int], dimensions: Sequence[int] | None = None) -> Any:
    """An element for each place along axes that are new, or were of size 1."""
    mat = ops.without_batch(mat, "broadcast_in_dim")
    source = {out: i for i, out in enumerate(dimensions or range(len(shape))) if mat.shape[i] == shape[out]}
    new = [axis for axis in range(len(shape)) if axis not in source]
    times = math.prod(shape[axis] for axis in new)
    places = np.indices([shape[axis] for axis in new]).reshape(len(new), times)
    inside = (mat.indices < np.array(mat.shape)).all(axis=-1)
    columns = [
        jnp.repeat(mat.indices[:, source[axis]], times)
        if axis in source
        else jnp.tile(jnp.asarray(places[new.index(axis)], mat.indices.dtype), mat.nse)
        for axis in range(len(shape))
    ]
    data = jnp.repeat(jnp.where(inside, mat.data, 0), times)
    return ops.new_bcoo(data, jnp.stack(columns, axis=-1), shape)


@_rule(lax.concatenate_p)
def _concatenate(*operands: Any, dimension: int) -> Any:
    if not all(map(is_bcoo, operands)):
        raise NotImplementedError("sparse rule for concatenate: all operands must be sparse, or none.")
    return ops.bcoo_concatenate(operands, dimension=dimension)


@_rule(lax.dot_general_p)
def _dot_general(x: Any, y: Any, *, dimension_numbers: Any, preferred_element_type: Any = None, **_params: Any) -> Any:
    return ops.bcoo_dot_general(
        x, y, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
    )


@_rule(jit_p)
def _jit(*values: Any, jaxpr: Any, **_params: Any) -> Any:
    return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *values, apply=_apply)
