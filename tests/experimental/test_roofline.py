"""Estimates beside JAX's."""

import dataclasses
import logging
import sys
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import mpijax
from mpijax.experimental import roofline as ours
from mpijax.extend.core import Primitive

if stands_in := "absl" not in sys.modules:
    sys.modules["absl"] = SimpleNamespace(logging=logging)  # JAX's roofline needs it, JAX does not
from jax.experimental import roofline as theirs

if stands_in:
    del sys.modules["absl"]


def floats(*shape):
    return np.ones(shape, np.float32)


def update(x, i, y, j):
    return x.at[i].add(y), x.at[i].max(y), x[i], j.lax.gather(
        x, i[:, None], j.lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, x.shape[1]), mode="fill"
    )


def convolution(x, k, j, **how):
    return j.lax.conv_general_dilated(x, k, **how)


CASES = {
    "unary": (lambda x, j: (j.numpy.sin(x), j.lax.erf(x), -x, j.lax.integer_pow(x, 5)), floats(3, 8)),
    "binary": (lambda x, y, j: (x + y, x * 2 < y, j.numpy.maximum(x, y)), floats(3, 8), floats(3, 8)),
    "sums": (lambda x, j: (x.sum(), x.sum(1), j.numpy.cumsum(x, 1), j.lax.cumlogsumexp(x, axis=0)), floats(3, 8)),
    "products": (lambda x, y, j: j.numpy.einsum("bij,bjk->bik", x, y), floats(2, 3, 4), floats(2, 4, 5)),
    "selection": (lambda x, y, j: j.lax.select(x > y, x, y), floats(3, 8), floats(3, 8)),
    "calls": (lambda x, j: j.jit(lambda y: x * y)(x) + j.checkpoint(j.numpy.cos)(x), floats(3)),
    "scan": (lambda x, j: j.lax.scan(lambda c, y: (c + y, c * y), x[0], x), floats(7, 4)),
    "branches": (lambda x, j: j.lax.cond(x[0] > 0, lambda y: y * 2, lambda y: y, x), floats(5)),
    "updates": (update, floats(9, 4), np.array([1, 2, 2]), floats(3, 4)),
    "keys": (lambda x, j: j.random.split(j.random.key(3), 4), floats()),
    "callback": (lambda x, j: j.pure_callback(np.sin, j.ShapeDtypeStruct(x.shape, x.dtype), x), floats(6)),
    "convolution": (
        partial(convolution, window_strides=(2, 1), padding=[(3, 1), (0, 2)], lhs_dilation=(3, 1), rhs_dilation=(1, 2)),
        floats(2, 4, 9, 8), floats(6, 4, 5, 3),
    ),
    "padding without an element": (
        partial(convolution, window_strides=(1, 3), padding=[(-1, 4), (7, 0)], lhs_dilation=(2, 4)),
        floats(1, 2, 5, 6), floats(3, 2, 4, 2),
    ),
    "groups": (
        partial(convolution, window_strides=(1,), padding="SAME", feature_group_count=2), floats(2, 4, 9), floats(6, 2, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operations(name):
    f, *args = CASES[name]
    shapes, found = ours.roofline(partial(f, j=mpijax))(*args)
    their_shapes, expected = theirs.roofline(partial(f, j=jax))(*args)
    assert [x.shape for x in mpijax.tree.leaves(shapes)] == [x.shape for x in jax.tree.leaves(their_shapes)]
    # How much is alive depends on the order of operations.
    assert {**dataclasses.asdict(found), "peak_hbm_bytes": 0} == {**dataclasses.asdict(expected), "peak_hbm_bytes": 0}
    assert found.peak_hbm_bytes > 0


def collective_product(a, b, j):
    a = j.lax.all_gather(a, "x", axis=1, tiled=True)
    return j.lax.psum_scatter(a @ b, "x", scatter_dimension=1, tiled=True)


def torus(a, j):
    a = j.lax.ppermute(a, ("x", "y"), perm=((0, 3), (3, 0), (1, 2), (2, 1), (4, 11), (11, 4)))
    a = j.lax.all_to_all(a, ("x", "y"), split_axis=0, concat_axis=1, tiled=True)
    return j.lax.psum(a, ("x", "z")), j.lax.pmax(a, "y")


BODIES = {
    "product": (collective_product, lambda P: ((P(None, "x"), P()), P("x")), (floats(8, 12), floats(12, 8))),
    "torus": (torus, lambda P: ((P(("x", "y", "z")),), P(("x", "y", "z"))), (floats(288, 2),)),
}


@pytest.mark.parametrize("name", BODIES)
def test_messages(name):
    f, specs, args = BODIES[name]
    found, expected = (
        module.roofline(
            partial(f, j=j), j.sharding.AbstractMesh((4, 3, 2), ("x", "y", "z")), *specs(j.sharding.PartitionSpec)
        )(*args)[1]
        for module, j in ((ours, mpijax), (theirs, jax))
    )
    assert found == ours.RooflineResult(**dataclasses.asdict(expected))
    assert found.ici_bytes["x"] > 0


def test_backward_pass():
    def of(module, j):
        P, mesh = j.sharding.PartitionSpec, j.sharding.AbstractMesh((2,), ("x",))
        f = module.roofline_and_grad(partial(collective_product, j=j), mesh, (P(None, "x"), P()), P("x"), pin_rhs_in_vmem=True)
        a, b = (j.ShapeDtypeStruct(s, np.float32) for s in ((8, 8), (8, 8)))
        return [dataclasses.asdict(result) for result in f(a, b)[1:]]

    found, expected = of(ours, mpijax), of(theirs, jax)
    assert found == expected


def test_a_rule_of_the_users(caplog):
    primitive = Primitive("users_own")
    primitive.def_abstract_eval(lambda x: x)
    primitive.def_impl(lambda x: x)
    with caplog.at_level(logging.WARNING):
        assert ours.roofline(primitive.bind)(floats(4))[1].unfused_flops == 0
    assert "No roofline rule for users_own" in caplog.text

    @ours.register_roofline(primitive)
    def rule(ctx, x, **params):
        return ours.RooflineResult(unfused_flops=3 * x.size)

    assert ours.roofline(primitive.bind)(floats(4))[1].unfused_flops == 12
    ours.register_standard_roofline(primitive)
    assert ours.roofline(primitive.bind)(floats(4))[1] == ours.RooflineResult(peak_hbm_bytes=16)


def test_errors():
    context = ours.RooflineRuleContext(
        name_stack=None, primitive=mpijax.lax.psum_p, avals_in=[], avals_out=[], jaxpr_eqn_ctx=None, mesh=None,
        pin_lhs_in_vmem=False, pin_rhs_in_vmem=False,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"psum over the axes \('i',\) can be estimated with a mesh only"):
        ours.rules.rule_of(mpijax.lax.psum_p)(context, axes=("i",))
    with pytest.raises(TypeError, match="Expected ShapedArray"):
        ours.RooflineShape.from_aval("f32[2]")
