"""Every elementwise primitive and reduction by its row: values, types, derivatives, batching, Jaxprs."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest
from jaxprs import check_all
from ops.table_elementwise import ROWS, Row

import mpijax
from mpijax import lax
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.typeof import typeof

MODULES = """
    ad_ops elementwise.binary elementwise.bitwise elementwise.compare elementwise.convert elementwise.power
    elementwise.select elementwise.special elementwise.transcendental elementwise.unary reductions.arg_extremes
    reductions.reduce reductions.standard
""".split()
# Programs are compiled from the first, and the second only says where a value is made; no function applies them.
INTERNAL = {"bitcast_same_width", "stage"}


def _ids(rows: list[Row]) -> list[str]:
    names = [r.name for r in rows]
    return [f"{n}-{names[:i].count(n)}" for i, n in enumerate(names)]


def rows(condition=lambda row: True):
    chosen = [r for r in ROWS if condition(r)]
    return pytest.mark.parametrize("row", chosen, ids=_ids(chosen))


def test_every_primitive_has_a_row():
    defined = {
        p.name
        for module in MODULES
        for p in vars(importlib.import_module(f"mpijax.ops.{module}")).values()
        if isinstance(p, Primitive) and p.name != "reshape"
    }
    assert defined - INTERNAL == {r.name for r in ROWS}


def wide(x) -> np.ndarray:
    """For comparisons."""
    x = np.asarray(x)
    return x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind in "fV" else x


def assert_close(got, want, rtol: float | None):
    got, want = mpijax.tree.leaves(got), mpijax.tree.leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert np.shape(g) == np.shape(w) and np.asarray(g).dtype == np.asarray(w).dtype
        if rtol is None:
            np.testing.assert_array_equal(wide(g), wide(w))
        else:
            narrow = (
                {2: 2 * float(mpijax.numpy.finfo(g.dtype).eps)}
                if g.dtype.itemsize == 2 and g.dtype.kind in "fV"
                else {}
            )
            np.testing.assert_allclose(wide(g), wide(w), rtol=narrow.get(g.dtype.itemsize, rtol), atol=rtol)


def by_reference(row: Row, dtype: str, operands):
    """The function evaluated in NumPy, one primitive after another."""
    closed = mpijax.make_jaxpr(row.make(lax))(*operands)
    env = dict(zip(closed.jaxpr.invars, operands, strict=True))
    read = lambda v: np.asarray(v.val, v.aval.dtype) if hasattr(v, "val") else env[v]
    for eqn in closed.jaxpr.eqns:
        outs = eqn.primitive.reference(*map(read, eqn.invars), **eqn.params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True))
    return [read(v) for v in closed.jaxpr.outvars]


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
@rows()
@pytest.mark.one_in(2)
def test_values(row: Row, every):
    """Eager and compiled results are the same bits, and those of NumPy."""
    for dtype in row.dtypes[::every]:
        operands = row.operands(dtype)
        fun = row.make(lax)
        eager = mpijax.tree.leaves(fun(*operands))
        jitted = mpijax.tree.leaves(mpijax.jit(fun)(*operands))
        types = mpijax.make_jaxpr(fun)(*operands).out_avals
        for e, j, t in zip(eager, jitted, types, strict=True):
            np.testing.assert_array_equal(wide(e), wide(j))
            assert typeof(e).strip_weak_type() == typeof(j).strip_weak_type() == t.strip_weak_type()
        assert_close(eager, by_reference(row, dtype, operands), row.rtol)


def forms(row: Row, dtype: str):
    """What is done with a function, and to which operands."""
    operands = row.operands(dtype)
    pair = row.operands(dtype, 2)

    def plain(J):
        return row.make(J.lax)

    def batched(J):
        return J.vmap(row.make(J.lax))

    def batched_last(J):
        return J.vmap(row.make(J.lax), in_axes=len(row.shape))

    yield "plain", plain, operands
    yield "vmap", batched, pair
    yield "vmap-last", batched_last, [np.moveaxis(x, 0, -1) for x in pair]
    if len(operands) > 1:
        yield (
            "vmap-one",
            lambda J: J.vmap(row.make(J.lax), in_axes=(None, *[0] * (len(pair) - 1))),
            [operands[0], *pair[1:]],
        )
    smooth = [i for i, x in enumerate(operands) if x.dtype.kind in "fcV"]
    if row.order and smooth and row.make(lax)(*operands).dtype.kind in "fcV":

        def along(J):
            def fun(tangents, *xs):
                def partial(*some):
                    filled = list(xs)
                    for i, x in zip(smooth, some, strict=True):
                        filled[i] = x
                    return row.make(J.lax)(*filled)

                return J.jvp(partial, [xs[i] for i in smooth], tangents)

            return fun

        def pulled(J):
            def fun(ct, *xs):
                def partial(*some):
                    filled = list(xs)
                    for i, x in zip(smooth, some, strict=True):
                        filled[i] = x
                    return row.make(J.lax)(*filled)

                return J.vjp(partial, *[xs[i] for i in smooth])[1](ct)

            return fun

        out = row.make(lax)(*operands)
        yield "jvp", along, [[operands[i] for i in smooth], *operands]
        yield "vjp", pulled, [np.ones(out.shape, out.dtype), *operands]


@rows(lambda row: row.text)
@pytest.mark.one_in(4)
def test_jaxprs(row: Row):
    """Plain, batched and differentiated, the text is JAX's."""
    dtypes = [d for d in row.dtypes if d in ("float32", "complex64")] or row.dtypes[:1]
    check_all([(f"{row.name} {label}", make, args) for d in dtypes for label, make, args in forms(row, d)])


# By default the text of all derivatives is compared, above.
@pytest.mark.parametrize("dtype", ["float32", pytest.param("complex64", marks=pytest.mark.slow)])
@rows(lambda row: row.order)
@pytest.mark.one_in(4)
def test_derivatives(row: Row, dtype):
    """Forward and reverse mode compute JAX's derivatives."""
    if dtype in row.dtypes:
        for label, make, args in forms(row, dtype):
            if label in ("jvp", "vjp"):
                got, want = mpijax.jit(make(mpijax))(*args), jax.jit(make(jax))(*args)
                assert_close(
                    [np.asarray(x) for x in mpijax.tree.leaves(got)],
                    [np.asarray(x) for x in jax.tree.leaves(want)],
                    3e-5,
                )


@rows()
@pytest.mark.one_in(4)
def test_batches(row: Row):
    """vmap is the loop over examples."""
    dtype = row.dtypes[0]
    pair = row.operands(dtype, 2)
    fun = row.make(lax)
    got = mpijax.tree.leaves(mpijax.vmap(fun)(*pair))
    loop = [mpijax.tree.leaves(fun(*(x[i] for x in pair))) for i in range(2)]
    for k, g in enumerate(got):
        want = np.stack([np.asarray(one[k]) for one in loop])
        np.testing.assert_allclose(wide(g), wide(want), rtol=1e-6) if row.name.startswith("reduce") else (
            np.testing.assert_array_equal(wide(g), wide(want))
        )
