"""`sparsify`: applies functions of dense arrays to sparse arrays, by a rule for each supported primitive.

`sparsify` traces the function with dense types, and then runs its program with the sparse arrays. Equations without a
sparse operand run unchanged; the others follow the rules below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.programs.jaxpr import Eqn, bound, eval_jaxpr
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.experimental.sparse import layouts, products
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.bcsr import (
    BCSR,
    bcsr_broadcast_in_dim,
    bcsr_concatenate,
    bcsr_dot_general,
    bcsr_sum_duplicates,
)
from mpijax.experimental.sparse.joining import bcoo_concatenate
from mpijax.experimental.sparse.primitives import todense_p
from mpijax.ops.ad_ops import add_any_p
from mpijax.ops.shapes.stacking import stack_p
from mpijax.transforms.api import eval_shape, make_jaxpr
from mpijax.transforms.call import jit_p
from mpijax.transforms.custom_jvp import custom_jvp_call_p
from mpijax.transforms.remat import remat_p

_RULES: dict[Any, Callable] = {}
_BCSR_RULES: dict[Any, Callable] = {}


def _is_sparse(x: Any) -> bool:
    return isinstance(x, (BCOO, BCSR))


def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """`f`, a function of dense arrays, as a function that also takes and returns `BCOO` and `BCSR` arrays.

    Sums, products and other functions of sparse arrays are sparse. A product of a sparse and a dense array by `@`,
    `dot` or `einsum` is dense.

    Args:
      use_tracer: has no effect; the function is always traced.

    Raises:
      NotImplementedError: an operation has no rule for sparse arrays, or not for these.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.sparsify(lambda x, y: jnp.sin(-x).T @ y)(x, jnp.array([1.0, 0.0])).shape
    (2,)
    """

    @wraps(f)
    def applied(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.tree_flatten((args, kwargs), is_leaf=_is_sparse)

        def dense(leaves: list[Any]) -> Any:
            given, named = structure.unflatten(leaves)
            return f(*given, **named)

        types = [ShapeDtypeStruct(x.shape, x.dtype) if _is_sparse(x) else x for x in leaves]
        closed, shapes = make_jaxpr(dense, return_shape=True)(types)
        outs = eval_jaxpr(closed.jaxpr, closed.consts, *leaves, apply=_apply)
        return tree.tree_structure(shapes).unflatten(outs)

    return applied


def _apply(eqn: Eqn, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation some of whose operands are sparse."""
    if not any(map(_is_sparse, values)):
        return bound(eqn, values)
    rules = _BCSR_RULES if any(isinstance(x, BCSR) for x in values) else _RULES
    rule = rules.get(eqn.primitive)
    if rule is None:
        raise _no_rule(eqn, rules)
    outs = rule(*values, **eqn.params)
    return outs if eqn.primitive.multiple_results else (outs,)


# Operations that are not 0 at 0.
_DENSE_RESULTS = frozenset({
    lax.acos_p, lax.acosh_p, lax.bessel_i0e_p, lax.cos_p, lax.cosh_p, lax.eq_p, lax.exp_p, lax.ge_p, lax.gt_p, lax.le_p,
    lax.log_p, lax.lt_p, lax.ne_p, lax.xor_p,
})  # fmt: skip


def _no_rule(eqn: Eqn, rules: dict[Any, Callable]) -> NotImplementedError:
    """The error for an operation without a rule, in JAX's words; the place and the way out are in a note."""
    why = " because it would result in dense output" if eqn.primitive in _DENSE_RESULTS else ""
    error = NotImplementedError(f"sparse rule for {eqn.primitive.name} is not implemented{why}.")
    error.add_note(
        f"At {eqn.source}. Call todense() on its sparse operands first. Rules exist for "
        f"{', '.join(sorted(p.name for p in rules))}."
    )
    return error


def _run(closed: Any, *values: Any) -> Sequence[Any]:
    return eval_jaxpr(closed.jaxpr, closed.consts, *values, apply=_apply)


def _rule(*primitives: Any, tables: Sequence[dict] = (_RULES,)) -> Callable:
    def add(fun: Callable) -> Callable:
        for table in tables:
            table.update(dict.fromkeys(primitives, fun))
        return fun

    return add


# ---------------------------------------------------------------- elementwise


def _on_values(primitive: Any, linear: bool, mat: Any, *args: Any, **params: Any) -> Any:
    """A function that is 0 at 0; of sums of elements at equal coordinates where it is not linear."""
    if not (linear or mat.unique_indices):
        mat = (ops.bcoo_sum_duplicates if isinstance(mat, BCOO) else bcsr_sum_duplicates)(mat, nse=mat.nse)
    return mat._with(primitive.bind(mat.data, *args, **params))


for _p in (lax.conj_p, lax.copy_p, lax.imag_p, lax.neg_p, lax.real_p):
    _RULES[_p] = _BCSR_RULES[_p] = partial(_on_values, _p, True)
for _p in (
    lax.abs_p, lax.asin_p, lax.asinh_p, lax.atan_p, lax.atanh_p, lax.bessel_i1e_p, lax.cbrt_p,
    lax.convert_element_type_p, lax.expm1_p, lax.log1p_p, lax.sign_p, lax.sin_p, lax.sinh_p, lax.sqrt_p, lax.square_p,
    lax.tan_p, lax.tanh_p,
):  # fmt: skip
    _RULES[_p] = _BCSR_RULES[_p] = partial(_on_values, _p, False)


@_rule(lax.integer_pow_p, tables=(_RULES, _BCSR_RULES))
def _integer_pow(mat: Any, *, y: int) -> Any:
    if y <= 0:
        raise NotImplementedError(
            f"sparse rule for integer_pow with non-positive exponent {y} is not implemented because it would result in "
            "dense output. If this is your intent, call todense()."
        )
    return _on_values(lax.integer_pow_p, False, mat, y=y)


@_rule(lax.mul_p)
def _mul(x: Any, y: Any) -> Any:
    x, y = (x, y) if _is_sparse(x) else (y, x)
    if _is_sparse(y) and x.indices is y.indices and x.unique_indices:
        return x._with(x.data * y.data)
    return products.multiply(x, y)


@_rule(lax.div_p)
def _div(x: Any, y: Any) -> Any:
    if _is_sparse(y):
        raise NotImplementedError(
            "Division by a sparse array is not implemented because it would result in dense output. If this is your "
            "intent, call todense()."
        )
    if not np.ndim(y):
        return x._with(lax.div(x.data, jnp.broadcast_to(y, x.data.shape)))
    return x._with(products.bcoo_multiply_dense(x, 1 / y))


@_rule(lax.add_p, add_any_p)
def _add(x: Any, y: Any) -> Any:
    return products.add(x, y) if _is_sparse(x) else products.add(y, x)


@_rule(lax.sub_p)
def _sub(x: Any, y: Any) -> Any:
    return _add(x, -y)


# ---------------------------------------------------------------- axes, parts and products

_RULES.update({
    lax.broadcast_in_dim_p: layouts.bcoo_broadcast_in_dim,
    lax.conv_general_dilated_p: products.bcoo_conv_general_dilated,
    lax.rev_p: layouts.bcoo_rev,
    lax.slice_p: layouts.bcoo_slice,
    lax.squeeze_p: layouts.bcoo_squeeze,
    lax.transpose_p: ops.bcoo_transpose,
    lax.gather_p: layouts.bcoo_gather,
    lax.dot_general_p: products.bcoo_dot_general,
    lax.reshape_p: ops.bcoo_reshape,
})  # fmt: skip
_BCSR_RULES.update({lax.broadcast_in_dim_p: bcsr_broadcast_in_dim, lax.dot_general_p: bcsr_dot_general})


@_rule(lax.dynamic_slice_p)
def _dynamic_slice(mat: Any, *start: Any, slice_sizes: Sequence[int]) -> Any:
    return layouts.bcoo_dynamic_slice(mat, start, slice_sizes)


@_rule(lax.reduce_sum_p)
def _reduce_sum(mat: Any, *, axes: Sequence[int], out_sharding: Any = None) -> Any:
    out = ops.bcoo_reduce_sum(mat, axes=axes)
    return out if out.ndim else out.data.sum(dtype=out.dtype)


def _all_sparse(what: str, operands: Sequence[Any]) -> None:
    if not all(map(_is_sparse, operands)):
        raise NotImplementedError(f"sparse rule for {what}: all operands must be sparse, or none.")


@_rule(lax.concatenate_p, tables=(_RULES, _BCSR_RULES))
def _concatenate(*operands: Any, dimension: int) -> Any:
    _all_sparse("concatenate", operands)
    joined = bcoo_concatenate if isinstance(operands[0], BCOO) else bcsr_concatenate
    return joined(operands, dimension=dimension)


@_rule(stack_p)
def _stack(*operands: Any, axis: int) -> Any:
    _all_sparse("stack", operands)
    shape = (*operands[0].shape[:axis], 1, *operands[0].shape[axis:])
    to = [d if d < axis else d + 1 for d in range(len(shape) - 1)]
    wide = [layouts.bcoo_broadcast_in_dim(x, shape=shape, broadcast_dimensions=to) for x in operands]
    return bcoo_concatenate(wide, dimension=axis)


@_rule(todense_p, tables=(_RULES, _BCSR_RULES))
def _todense(mat: Any, *, tree: Any) -> Any:
    return mat.todense()


# ---------------------------------------------------------------- calls, loops and branches


@_rule(jit_p, remat_p, tables=(_RULES, _BCSR_RULES))
def _call(*values: Any, jaxpr: Any, **_params: Any) -> Any:
    return _run(jaxpr, *values) if hasattr(jaxpr, "consts") else eval_jaxpr(jaxpr, (), *values, apply=_apply)


@_rule(custom_jvp_call_p, tables=(_RULES, _BCSR_RULES))
def _custom_jvp_call(*values: Any, call_jaxpr: Any, **_params: Any) -> Any:
    return _run(call_jaxpr, *values)


@_rule(lax.while_p)
def _while(*values: Any, cond_jaxpr: Any, cond_nconsts: int, body_jaxpr: Any, body_nconsts: int) -> Any:
    split = cond_nconsts + body_nconsts
    tested, kept, start = values[:cond_nconsts], values[cond_nconsts:split], values[split:]
    return lax.while_loop(
        lambda carry: _run(cond_jaxpr, *tested, *carry)[0], lambda carry: tuple(_run(body_jaxpr, *kept, *carry)), start
    )


@_rule(lax.cond_p)
def _cond(index: Any, *operands: Any, branches: Sequence[Any], **_params: Any) -> Any:
    sparse = [lambda *xs, b=b: tuple(_run(b, *xs)) for b in branches]
    names = ("false_fun", "true_fun") if len(sparse) == 2 else [f"branch {i}" for i in range(len(sparse))]
    first, *others = [tree.tree_structure(eval_shape(branch, *operands)) for branch in sparse]
    for name, other in zip(names[1:], others, strict=True):
        if other != first:
            raise TypeError(
                f"sparsified {name} output must have same type structure as sparsified {names[0]} output, got {other} "
                f"and {first}. Convert the result of one branch with todense() or BCOO.fromdense()."
            )
    return lax.switch(index, sparse, *operands)


@_rule(lax.scan_p)
def _scan(*values: Any, jaxpr: Any, length: int, num_carry: int, num_consts: int, reverse: bool, unroll: Any) -> Any:
    split = num_consts + num_carry
    consts, carry, xs = values[:num_consts], values[num_consts:split], values[split:]
    if any(map(_is_sparse, xs)):
        raise NotImplementedError(
            "sparse rule for scan over the elements of a sparse array is not implemented. Call todense() first."
        )

    def body(carry: Any, x: Any) -> Any:
        outs = _run(jaxpr, *consts, *carry, *x)
        return tuple(outs[:num_carry]), tuple(outs[num_carry:])

    end, ys = lax.scan(body, carry, xs, length=length, reverse=reverse, unroll=unroll)
    return [*end, *ys]


# ---------------------------------------------------------------- methods of arrays


def _refuse(self: Any, other: Any) -> Any:
    raise NotImplementedError(
        "comparisons of a sparse array, and powers and quotients by one, are not implemented because they would result "
        "in dense output. If this is your intent, call todense()."
    )


def _reshape(self: Any, *shape: Any, **options: Any) -> Any:
    """Another shape with the same elements."""
    return sparsify(lambda x: x.reshape(*shape, **options))(self)


def _sum(self: Any, axis: int | Sequence[int] | None = None, **options: Any) -> Any:
    """Sums along axes, all by default: a sparse array, or a scalar."""
    return sparsify(lambda x: x.sum(axis, **options))(self)


def _astype(self: Any, dtype: Any) -> Any:
    """Values of another dtype."""
    return self._with(self.data.astype(dtype))


def _power(self: Any, exponent: Any) -> Any:
    return sparsify(lambda x: x**exponent)(self)


def _getitem(self: Any, index: Any) -> Any:
    """Basic indexing, and one by arrays of integers, whose axes become batch axes."""
    return sparsify(lambda x: x[index])(self)


def _binary(fun: Callable) -> tuple[Callable, Callable]:
    def forward(self: Any, other: Any) -> Any:
        return _operands(fun, self, other)

    def reverse(self: Any, other: Any) -> Any:
        return _operands(fun, other, self)

    return forward, reverse


def _operands(fun: Callable, x: Any, y: Any) -> Any:
    for z in (x, y):
        if isinstance(z, JAXSparse) and not _is_sparse(z):
            raise NotImplementedError(
                f"an operation of a {type(z).__name__} with another sparse array is not supported. Use to_bcoo()."
            )
    return sparsify(fun)(*(z if _is_sparse(z) else jnp.asarray(z) for z in (x, y)))


def _add_methods(kind: type, methods: dict[str, Callable]) -> None:
    for name, method in methods.items():
        setattr(kind, name, method)


for _kind in (BCOO, BCSR):
    _forward, _reverse = _binary(jnp.matmul)
    _add_methods(_kind, {"__matmul__": _forward, "__rmatmul__": _reverse, "__getitem__": _getitem})
for _name, _fun in (("mul", jnp.multiply), ("add", jnp.add), ("sub", jnp.subtract)):
    _forward, _reverse = _binary(_fun)
    _add_methods(BCOO, {f"__{_name}__": _forward, f"__r{_name}__": _reverse})
_add_methods(BCOO, {
    "__truediv__": _binary(jnp.divide)[0], "__abs__": sparsify(jnp.abs), "__neg__": sparsify(jnp.negative),
    "__pos__": sparsify(jnp.positive), "astype": _astype, "reshape": _reshape, "sum": _sum, "__pow__": _power,
})  # fmt: skip
_dense_only = ("__rtruediv__", "__rpow__", "__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__")
_add_methods(BCOO, dict.fromkeys(_dense_only, _refuse))
