"""Structural operations, products and sorting against JAX: values, derivatives, batches, text."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ops.table_structural import MISTAKES, ROWS
from quickly import one_in

from mpijax import lax
from mpijax.core.base import provided
from mpijax.core.rules import primitive as prims
from mpijax.transforms import api
from mpijax.transforms.vmap import vmap

OURS = SimpleNamespace(lax=lax, jvp=api.jvp, vjp=api.vjp, vmap=vmap, jit=api.jit, make_jaxpr=api.make_jaxpr)
JAX = SimpleNamespace(
    lax=jax.lax, jvp=jax.jvp, vjp=jax.vjp, vmap=jax.vmap, jit=jax.jit, make_jaxpr=jax.make_jaxpr
)
BATCH = 5


def value(row):
    return [("value", lambda system: lambda *xs: row.fun(system.lax, *xs), row.args)]


def derivatives(row):
    """Forward and reverse derivatives, as functions of a system."""
    if not row.derivatives:
        return []
    shapes = jax.eval_shape(lambda *xs: row.fun(jax.lax, *xs), *row.args)
    cotangents = jax.tree.map(lambda s: np.linspace(1, 2, s.size, dtype=s.dtype).reshape(s.shape), shapes)

    def forward(system):
        return lambda *xs: system.jvp(lambda *ys: row.fun(system.lax, *ys), xs, xs)

    def reverse(system):
        return lambda *xs: system.vjp(lambda *ys: row.fun(system.lax, *ys), *xs)[1](cotangents)

    return [("jvp", forward, row.args), ("vjp", reverse, row.args)]


def batches(row):
    """Vectorized over the first axes of all operands, over their second ones, and over one operand alone."""
    if not row.batched:
        return []

    def over(axes):
        return lambda system: system.vmap(lambda *xs: row.fun(system.lax, *xs), in_axes=axes)

    n = len(row.args)
    result = [("vmap", over(0), [np.stack([x] * BATCH) for x in row.args])]
    if all(np.ndim(x) for x in row.args):
        result.append(("vmap over axis 1", over(1), [np.stack([x] * BATCH, 1) for x in row.args]))
    for i in range(n if n > 1 else 0):
        axes = tuple(0 if k == i else None for k in range(n))
        args = [np.stack([x] * BATCH) if k == i else x for k, x in enumerate(row.args)]
        result.append((f"vmap over operand {i}", over(axes), args))
    return result


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree if not isinstance(tree, list) else tuple(tree))]


def assert_same(got, wanted):
    got, wanted = leaves(got), leaves(wanted)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        narrow = a.dtype.itemsize < 4 and a.dtype.kind == "V"
        a, b = (a.astype(np.float32), b.astype(np.float32)) if narrow else (a, b)
        np.testing.assert_allclose(a, b, rtol=2e-2 if narrow else 1e-5, atol=1e-6)


@pytest.mark.parametrize("row", one_in(3, ROWS), ids=str)
@pytest.mark.one_in(3)
def test_values(row):
    """Operations one by one and compiled together give what JAX gives."""
    compare(value(row))


# By default the text of all is compared, below.
@pytest.mark.parametrize("row", one_in(4, ROWS), ids=str)
@pytest.mark.one_in(3)
def test_values_of_derivatives_and_batches(row):
    compare(derivatives(row) + batches(row))


def compare(cases):
    for _, fun, args in cases:
        wanted = fun(JAX)(*args)
        assert_same(fun(OURS)(*args), wanted)
        assert_same(api.jit(fun(OURS))(*args), wanted)


@pytest.fixture
def by_references(monkeypatch):
    """Operations run by their NumPy references."""

    def evaluate(primitive, args, params):
        return primitive.reference(*(np.asarray(x) for x in args), **params)

    monkeypatch.setattr(provided, "evaluate", evaluate)


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.one_in(4)
def test_references(row, by_references):
    for _, fun, args in value(row):
        assert_same(fun(OURS)(*args), fun(JAX)(*args))


@pytest.mark.parametrize("row", one_in(3, ROWS), ids=str)
@pytest.mark.one_in(3)
def test_jaxprs(row):
    """Programs, their derivatives and their vectorized forms print as JAX's do."""
    for name, fun, args in value(row) + derivatives(row) + batches(row):
        assert str(api.make_jaxpr(fun(OURS))(*args)) == str(jax.make_jaxpr(fun(JAX))(*args)), name


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_errors(mistake):
    for system in (jax.lax, lax):
        with pytest.raises(mistake.error) as raised:
            mistake.call(system)
        assert mistake.text in str(raised.value)


def test_transposed_permuting_broadcast():
    """Cotangents come back in the operand's order of axes."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    ct = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    (got,) = api.vjp(lambda x: lax.broadcast_in_dim(x, (4, 3, 2), (2, 1)), x)[1](ct)
    np.testing.assert_array_equal(got, ct.sum(0).T)


def test_gradients_that_do_not_exist():
    x, u = np.ones((4, 3), np.float32), np.ones((2, 3), np.float32)
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    index = np.array([[1], [1]], np.int32)
    with pytest.raises(NotImplementedError, match="unique_indices=True"):
        api.jvp(lambda x, u: lax.scatter_mul(x, index, u, numbers), (x, u), (x, u))
    with pytest.raises(NotImplementedError, match="scatter_apply JVP not implemented"):
        api.jvp(lambda x: lax.scatter_apply(x, index, lax.sin, numbers, update_shape=(2, 3)), (x,), (x,))


def test_empty_arrays():
    empty = np.ones((0, 3), np.float32)
    assert lax.concatenate([empty, empty], 0).shape == (0, 3)
    assert lax.dot(empty, np.ones((3, 2), np.float32)).shape == (0, 2)
    np.testing.assert_array_equal(
        lax.dot(np.ones((2, 0), np.float32), np.ones((0, 2), np.float32)), np.zeros((2, 2))
    )
    assert lax.sort(empty, dimension=0).shape == (0, 3)
    assert lax.pad(empty, np.float32(1), [(1, 0, 0), (0, 0, 0)]).shape == (1, 3)


def test_every_primitive_has_a_row():
    modules = (
        "shapes.reshape",
        "shapes.padding",
        "shapes.creation",
        "shapes.stacking",
        "indexing.slicing",
        "indexing.dynamic",
        "indexing.gather",
        "indexing.scatter",
        "products.dot",
        "sorting.sort",
        "sorting.top_k",
        "reductions.cumulative",
    )
    found = [x for module in modules for x in vars(importlib.import_module(f"mpijax.ops.{module}")).values()]
    combining = vars(importlib.import_module("mpijax.ops.elementwise.binary")).values()  # scatters name them
    defined = {x.name for x in found if isinstance(x, prims.Primitive) and x not in combining}
    assert defined == {name for row in ROWS for name in row.primitives.split()}
