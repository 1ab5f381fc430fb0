"""Types that say how values are split over Explicit mesh axes, over four devices of one process, beside the real JAX.
Run by test_local_devices.py."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import jax as real
import numpy as np
import pytest
from quickly import one_in

import mpijax as ours
from mpijax.core.base.errors import ShardingTypeError

X = np.random.default_rng(3).normal(size=(8, 2)).astype(np.float32)
W = np.random.default_rng(4).normal(size=(2, 4)).astype(np.float32)


class System:
    """One of the two systems, with the names that programs use."""

    def __init__(self, jax):
        self.jax, self.jnp, self.lax, self.P, self.sharding = jax, jax.numpy, jax.lax, jax.P, jax.sharding
        self.extend = import_module(f"{jax.__name__}.extend.core")
        kinds = jax.sharding.AxisType
        devices = np.array(jax.devices()[:4], dtype=object).reshape(2, 2)
        self.mesh = jax.sharding.Mesh(devices, ("x", "y"), axis_types=(kinds.Explicit,) * 2)
        self.mixed = jax.sharding.Mesh(devices, ("x", "y"), axis_types=(kinds.Explicit, kinds.Auto))

    def put(self, x, *spec):
        return self.jax.device_put(x, self.P(*spec))

    def types(self, *values):
        return [self.jax.typeof(v).str_short(True) for v in self.jax.tree.leaves(values)]


OURS, REAL = System(ours), System(real)


def outcome(s, f, compiled=False):
    """What a program gives: types, shardings and values of its results, or the class of its error."""
    with s.jax.set_mesh(s.mesh):
        try:
            outs = s.jax.jit(lambda: s.jax.tree.leaves(f(s)))() if compiled else s.jax.tree.leaves(f(s))
        except Exception as error:
            return type(error).__name__
        return [(s.jax.typeof(o).str_short(True), str(o.sharding.spec), np.asarray(o)) for o in outs]


def agree(f, compiled=False):
    """compiled: JAX compiles the program as a whole, in a third of the time that its operations take one by one."""
    assert_same(outcome(OURS, f), outcome(REAL, f, compiled))


def assert_same(mine, theirs):
    if isinstance(theirs, str) or isinstance(mine, str):
        assert mine == theirs
        return
    for (t, spec, value), (want_t, want_spec, want) in zip(mine, theirs, strict=True):
        assert (t, spec) == (want_t, want_spec)
        np.testing.assert_allclose(value, want, rtol=2e-5, atol=2e-5)


def of_x(f, *spec):
    """A program of one array, split over `x` by its rows unless said otherwise."""
    return lambda s: f(s, s.put(X, *(spec or ("x", None))))


def written(s, ref):
    def body(part):
        part[...] += s.lax.axis_index("x").astype("float32")

    s.jax.jit(s.jax.shard_map(body, out_specs=None))(ref)
    return ref[...]


def over_both(f):
    return lambda s: f(s, s.put(X, "x", None), s.put(W, None, "y"))


def loss(s):
    return lambda x, w: s.jnp.sum(s.jnp.tanh(x @ w) ** 2)


def by_rule(s):
    """A function with a backward rule that scales the cotangent."""
    f = s.jax.custom_vjp(lambda x, scale: s.jnp.sin(x))
    f.defvjp(lambda x, scale: (s.jnp.sin(x), (s.jnp.cos(x), scale)), lambda res, ct: (ct * res[0] * res[1], None))
    return f


PROGRAMS = {
    "put": of_x(lambda s, x: x),
    "elementwise": of_x(lambda s, x: [x + 1, s.jnp.sin(x) * x, x > 0, x + s.jnp.ones(2), s.jnp.where(x > 0, x, 0.0)]),
    "broadcast": of_x(lambda s, x: [x[:, None], x[:, :, None] * s.jnp.ones((1, 1, 3)), s.jnp.broadcast_to(x, (3, 8, 2))]),
    "reductions": of_x(lambda s, x: [x.sum(), x.sum(0), x.sum(1), x.max(1), x.mean(), s.jnp.argmax(x, axis=1)]),
    "products": over_both(lambda s, x, w: [x @ w, x @ s.jnp.ones((2, 3)), s.jnp.einsum("ij,jk->ki", x, w)]),
    "asked": of_x(lambda s, x: [
        s.jnp.dot(x.T, x, out_sharding=s.P("y")), s.jnp.einsum("ij,ik->jk", x, x, out_sharding=s.P()),
        s.jnp.matmul(x.T, x, out_sharding=s.P(None, "x")), s.jnp.zeros((4, 2), out_sharding=s.P("x")),
        s.jnp.full((4,), 3, out_sharding=s.P("y")), s.jnp.reshape(x, (4, 4), out_sharding=s.P("x")),
        x.at[np.array([0, 3])].get(out_sharding=s.P("x")), s.jnp.arange(4, out_sharding=s.P("x")),
    ]),
    "asked of groups": lambda s: [
        s.lax.ragged_dot(s.jnp.asarray(X), s.jnp.ones((2, 2, 3)), np.array([3, 5], np.int32), out_sharding=spec)
        for spec in (s.P("x", None), s.P(None, None))
    ],
    "moves": of_x(lambda s, x: [x.T, x.reshape(16), x.reshape(2, 4, 2), s.jnp.squeeze(x[None], 0), s.lax.rev(x, (1,))]),
    "joined": of_x(lambda s, x: [s.jnp.concatenate([x, x]), s.jnp.concatenate([x, x], 1), s.jnp.stack([x, x], 1)]),
    "parts": of_x(lambda s, x: [x[:, 0], x[:, 1:], s.lax.slice(x, (0, 0), (4, 2)), s.jnp.pad(x, ((0, 0), (1, 1)))]),
    "reshard": of_x(lambda s, x: [
        s.jax.reshard(x, s.P()), s.jax.reshard(x, s.P(None, "x")), s.jax.reshard(x, s.P(("x", "y"), None)),
    ]),
    "jit": over_both(lambda s, x, w: s.jax.jit(lambda x, w: (x @ w, s.jax.nn.softmax(x), x.sum(0)))(x, w)),
    "gradients": over_both(lambda s, x, w: s.jax.grad(loss(s), (0, 1))(x, w)),
    "compiled gradients": over_both(lambda s, x, w: s.jax.jit(s.jax.grad(loss(s), (0, 1)))(x, w)),
    "contracted gradients": lambda s: s.jax.grad(loss(s), (0, 1))(s.put(X, "x"), s.jnp.asarray(W)),
    "tangents": of_x(lambda s, x: s.jax.jvp(s.jnp.sin, (x,), (x,))),
    "checkpoint": of_x(lambda s, x: s.jax.grad(lambda x: s.jax.checkpoint(s.jnp.sin)(x).sum())(x)),
    "vmap": of_x(lambda s, x: [s.jax.vmap(lambda a: a * 2 + a.sum())(x), s.jax.vmap(s.jnp.sum, 1)(x)]),
    "scan": of_x(lambda s, x: s.lax.scan(lambda c, a: (c * a, a + 1), s.jnp.ones(8, out_sharding=s.P("x")), x.T)),
    "scan's gradient": of_x(lambda s, x: s.jax.grad(
        lambda x: s.lax.scan(lambda c, a: (c * a, a), s.jnp.ones(8, out_sharding=s.P("x")), x.T)[0].sum())(x)),
    "branches": of_x(lambda s, x: s.lax.cond(x.sum() > 0, lambda x: 2 * x, lambda x: -x, x)),
    "loop": of_x(lambda s, x: s.lax.fori_loop(0, 3, lambda i, c: c * 0.5 + 1, x)),
    "auto": of_x(lambda s, x: s.sharding.auto_axes(lambda a: (a.T @ a, a), out_sharding=(s.P("x"), s.P("x")))(x)),
    "body": of_x(lambda s, x: s.jax.shard_map(lambda a: a * 2, in_specs=s.P("x"), out_specs=s.P("x"))(x)),
    "like": of_x(lambda s, x: [s.jnp.zeros_like(x), s.jnp.full_like(x, 2)]),
    "set": of_x(lambda s, x: [x.at[:, 0].set(1.0), x.at[np.array([0, 1])].add(1.0, out_sharding=s.P("x"))]),
    "tiles": of_x(lambda s, x: [s.jnp.tile(x, (1, 2)), s.jnp.repeat(x, 2, axis=1)]),
    "gradients of moves": of_x(lambda s, x: [s.jax.grad(lambda x, f=f: (f(x) ** 2).sum())(x) for f in (
        lambda x: x.reshape(16), lambda x: x.T, lambda x: s.jnp.concatenate([x, x], 1),
        lambda x: s.jax.reshard(x, s.P()), lambda x: x.at[np.array([0, 1])].get(out_sharding=s.P()),
        lambda x: s.sharding.auto_axes(lambda a: a.T @ a, out_sharding=s.P())(x),
        lambda x: s.jax.shard_map(s.jnp.sin, in_specs=s.P("x"), out_specs=s.P("x"))(x),
    )]),
    "batches": lambda s: [
        s.jax.vmap(lambda a, b: a @ b)(s.put(np.ones((4, 2, 3), np.float32), "x"), s.put(np.ones((4, 3, 2), np.float32), "x")),
        s.jax.vmap(lambda a, w: a @ w, in_axes=(0, None))(s.put(X, "x"), W),
        s.jax.jacfwd(s.jnp.sin)(s.put(np.ones(4, np.float32), "x")),
    ],
    "three axes": lambda s: (lambda x: [
        x.sum((0, 2)), x.reshape(8, 8), x.reshape(2, 4, 4, 2), x.reshape(8, 4, 2, 1), s.jnp.swapaxes(x, 0, 2),
        s.jnp.einsum("bij,bkj->bik", x, x, out_sharding=s.P("x")),
    ])(s.put(np.arange(64, dtype=np.float32).reshape(8, 4, 2) / 64, "x", None, "y")),
    "examples of an image": lambda s: s.lax.conv_general_dilated(
        s.put(np.ones((4, 1, 5, 5), np.float32), "x"), s.jnp.ones((2, 1, 3, 3)), (1, 1), "SAME"),
    "casts": of_x(lambda s, x: [x.astype("int32"), s.lax.bitcast_convert_type(x, "int32"), s.jnp.round(x)]),
    "sort": of_x(lambda s, x: [s.jnp.sort(x, axis=1), s.jnp.cumsum(x, axis=1), s.lax.top_k(x, 1)]),
    "matrices": lambda s: s.jnp.linalg.inv(s.put(np.stack([np.eye(3, dtype=np.float32)] * 4), "x")),
    "samples": lambda s: s.jax.random.normal(s.jax.random.key(0), (8,), out_sharding=s.P("x")),
    "more samples": lambda s: [
        getattr(s.jax.random, name)(s.jax.random.key(0), (8,), out_sharding=s.P("x"))
        for name in ("exponential", "laplace", "logistic", "cauchy", "maxwell")
    ],
    "constraint": of_x(lambda s, x: s.lax.with_sharding_constraint(x, s.P("x"))),
    "tuples of axes": of_x(lambda s, x: [x * 2, x.sum(1), x.reshape(2, 4, 2)], ("x", "y")),
    "split": of_x(lambda s, x: s.jnp.split(x, 2, axis=1)),
    "examples whose products are sharded": lambda s: s.jax.vmap(
        lambda a, b: s.jnp.einsum("ij,jk->ik", a, b, out_sharding=s.P(None, "y")), in_axes=(0, 1), out_axes=2,
    )(s.put(np.ones((4, 2, 2), np.float32), "x", None, "y"), s.put(np.ones((2, 4, 2), np.float32), None, "x", "y")),
    "bodies of examples": of_x(lambda s, x: [
        s.jax.vmap(f, axes, spmd_axis_name=name)(x)
        for f, axes, name in [
            (s.jax.shard_map(s.jnp.sin, in_specs=s.P("y"), out_specs=s.P("y")), 0, None),
            (s.jax.shard_map(lambda a: a * 2, in_specs=s.P("y"), out_specs=s.P("y"), axis_names={"y"}), 0, None),
            (s.jax.shard_map(lambda a: s.lax.psum(a.sum(), "y"), in_specs=s.P("y"), out_specs=s.P()), 0, "x"),
            (s.jax.grad(lambda v: s.jax.shard_map(
                lambda a: s.lax.psum((a * a).sum(), "y"), in_specs=s.P("y"), out_specs=s.P())(v)), 0, None),
            (s.jax.shard_map(lambda a: a[:2] * 2, in_specs=s.P("x"), out_specs=s.P("x")), 1, None),
        ]
    ], "x", "y"),
    "a reference of which bodies get parts": lambda s: written(s, s.jax.new_ref(s.put(X, "x"))),
    "examples in Auto axes": of_x(lambda s, x: s.jax.jit(s.jax.vmap(
        s.sharding.auto_axes(lambda a: s.jnp.where(a > 0, s.jnp.ones(2), a), out_sharding=s.P())))(x)),
    "examples and what is the same for all": of_x(lambda s, x: s.jax.vmap(lambda a: (
        s.jnp.concatenate([a, s.jnp.ones(3)]), s.jnp.pad(s.jnp.ones(2), 1) + a[0], s.jnp.where(a > 0, a, s.jnp.ones(2)),
    ))(x)),
    "updates at places of examples": of_x(lambda s, x: s.jax.vmap(
        lambda a, i: s.lax.dynamic_update_slice_in_dim(a, s.jnp.zeros(1), i, 0))(x, s.put(np.arange(8) % 2, "x"))),
    "a body over one of two axes": lambda s: s.jax.jit(s.jax.shard_map(
        lambda a: s.jnp.repeat(a, 2, axis=1), out_specs=s.P("x"), axis_names={"x"},
    ))(s.put(np.ones((8, 1, 2), np.float32), "x", None, "y")),
    "a loop in such a body": lambda s: s.jax.jit(s.jax.shard_map(
        lambda a: s.lax.map(lambda b: s.jnp.sum(b * 2, axis=-1), a[0]), out_specs=s.P("x"), axis_names={"x"},
    ))(s.put(np.ones((2, 5, 2, 4), np.float32), "x", None, "y", None)),
    "a program with axes of other types, run again": of_x(lambda s, x: [s.extend.jaxpr_as_fun(
        s.jax.make_jaxpr(s.sharding.auto_axes(s.jnp.sin, axes="y", out_sharding=s.P("x")))(x))(x)]),
    "gradients through axes of other types": lambda s: (lambda x, h: [
        s.jax.jit(s.jax.grad(lambda x: (h(x) ** 2).sum()))(x),
        s.jax.vmap(s.jax.grad(lambda x: (h(x) * x).sum()))(x[None])[0],
    ])(s.put(X, "x", "y"), s.sharding.auto_axes(lambda y: s.jnp.sin(y) * y, axes="x", out_sharding=s.P("x", "y"))),
    "images split by their rows": lambda s: s.lax.conv_general_dilated(
        s.put(np.ones((4, 8, 3), np.float32), "x", "y", None), s.jnp.ones((3, 3, 2)), (1,), "SAME",
        dimension_numbers=("NWC", "WIO", "NWC")),
    "random bits": lambda s: s.lax.rng_bit_generator(s.jnp.arange(4, dtype="uint32"), (4, 2), out_sharding=s.P("x"))[1],
    "splits of matrices": lambda s: s.jax.vmap(s.jnp.linalg.slogdet)(
        s.put(np.stack([np.diag([1.0, 2, 3]).astype(np.float32)] * 4), "x")),
    "gradients by a rule of users": of_x(lambda s, x: (lambda f: [
        s.jax.grad(lambda x: f(x, 2.0).sum())(x), s.jax.jit(s.jax.grad(lambda x: (f(x, 3.0) * x).sum()))(x),
        s.jax.grad(lambda x: s.lax.scan(lambda c, a: (f(c, 2.0) * a, None), s.jnp.ones(8, out_sharding=s.P("x")), x.T)[0].sum())(x),
    ])(by_rule(s))),
    "gradients of updates by the extreme": lambda s: (lambda x, i, y: [
        s.jax.grad(lambda x, y, how=how: s.jax.vmap(lambda x, i, y: getattr(x.at[i], how)(y))(x, i, y).sum(), (0, 1))(x, y)
        for how in ("max", "min", "mul")
    ])(s.put(np.full((2, 5, 4), 0.5, np.float32), "x", None, "y"), s.put(np.array([2, 3]), "x"),
       s.put(np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4), "x", "y")),
    "one matrix for split right-hand sides": lambda s: s.jax.vmap(s.jnp.linalg.solve, (None, 0))(
        s.jnp.asarray(np.diag([1.0, 2, 4]).astype(np.float32)), s.put(np.arange(12, dtype=np.float32).reshape(4, 3), "x")),
    "positions that sort": of_x(lambda s, x: s.jnp.argsort(x, axis=1)),
    "as another": of_x(lambda s, x: s.lax.broadcast_like(np.arange(2), x)),
    "maxima of windows": lambda s: s.jax.grad(lambda x: (s.lax.reduce_window(
        x, -np.inf, s.lax.max, (1, 2), (1, 2), "SAME") ** 2).sum())(s.put(X, "x", None)),
    "views": of_x(lambda s, x: [x.view(np.complex64), s.lax.complex(x, -x).view(np.float32)]),
    "percentiles": of_x(lambda s, x: s.jnp.percentile(x, 50, axis=0, out_sharding=s.P("y"))),
    "shardings of examples": of_x(lambda s, x: s.jax.vmap(s.jax.jit(lambda a: [
        s.lax.broadcast(a, (2,), out_sharding=s.P("y", None)), s.lax.reduce_sum(a[None], (0,), out_sharding=s.P("y")),
        s.lax.reshape(a, (2, 1), out_sharding=s.P("y")), s.jnp.dot(a, s.jnp.ones((2, 4)), out_sharding=s.P("y"))]))(x)),
    "gradients of loops that keep reduced values": lambda s: s.jax.jit(s.jax.grad(lambda k: s.lax.fori_loop(
        0, 3, lambda _, c: s.lax.cond(c[0] > 9, lambda: c, lambda: s.jax.reshard(k, s.P(reduced={"x"}))),
        s.jax.reshard(k, s.P(reduced={"x"}))).sum()))(s.put(X[:, 0], "x")),
    "cases of examples": of_x(lambda s, x: s.jax.vmap(
        lambda a: s.lax.cond(a[0] > 0, lambda a, b: a + b, lambda a, b: b, a, s.jnp.ones(2)))(x)),
}  # fmt: skip

# One operation at a time, JAX gives these other shardings than it does in a compiled program, or no error.
ONE_BY_ONE = {"body", "gradients of moves", "one matrix for split right-hand sides"}

ERRORS = {
    "operands": of_x(lambda s, x: x + s.jax.reshard(x, s.P("y"))),
    "contracted": of_x(lambda s, x: x.T @ x),
    "twice": lambda s: s.put(X, "x", None) @ s.put(W, None, "x"),
    "reshape": of_x(lambda s, x: x.reshape(4, 4)),
    "an element": of_x(lambda s, x: x[0]),
    "gather": of_x(lambda s, x: x[np.array([0, 1])]),
    "scatter": of_x(lambda s, x: x.at[np.array([0, 1])].set(1.0)),
    "sort": of_x(lambda s, x: s.jnp.sort(x, axis=0)),
    "cumsum": of_x(lambda s, x: s.jnp.cumsum(x, axis=0)),
    "concatenate": of_x(lambda s, x: s.jnp.concatenate([x, s.jnp.ones((8, 2))])),
    "scan": of_x(lambda s, x: s.lax.scan(lambda c, a: (c, a), 0.0, x)),
    "carry": of_x(lambda s, x: s.lax.fori_loop(0, 3, lambda i, c: s.jax.reshard(c, s.P()), x)),
    "branches": of_x(lambda s, x: s.lax.cond(True, lambda x: x, lambda x: s.jax.reshard(x, s.P()), x)),
    "constraint": of_x(lambda s, x: s.lax.with_sharding_constraint(x, s.P("y"))),
    "vmap": of_x(lambda s, x: s.jax.vmap(lambda a, b: a + b)(x, s.jnp.ones((8, 2)))),
    "a value from outside": of_x(lambda s, x: s.sharding.auto_axes(lambda a: a + x, out_sharding=s.P())(x)),
    "cases": of_x(lambda s, x: s.jnp.where(x > 0, x, s.jax.reshard(x, s.P("y")))),
    "parts": lambda s: s.lax.split(s.put(X, "x", "y"), (1, 1), axis=1),
    "a name for examples that have one": of_x(lambda s, x: s.jax.vmap(s.jnp.sin, spmd_axis_name="y")(x)),
    "a sharding over Auto axes": of_x(lambda s, x: s.sharding.auto_axes(
        lambda a: s.jnp.dot(a, a.T, out_sharding=s.P("x")), out_sharding=s.P("x"))(x)),
    "a sharding over another mesh": of_x(lambda s, x: s.jnp.dot(
        x, x.T, out_sharding=s.sharding.NamedSharding(s.mixed, s.P("x")))),
    "no sharding": of_x(lambda s, x: s.jnp.dot(x, x.T, out_sharding="x")),
    "images split by their features": lambda s: s.lax.conv_general_dilated(
        s.put(np.ones((4, 2, 8), np.float32), None, "x"), s.jnp.ones((2, 2, 3)), (1,), "SAME"),
    "as another that is split otherwise": of_x(lambda s, x: s.lax.broadcast_like(s.put(X[0], "x"), x)),
    "the shape of a sum that is yet to be taken": of_x(
        lambda s, x: s.lax.reshape(s.jnp.ones(8), (4, 2), out_sharding=s.P(unreduced={"x"}))),
    "odd": lambda s: s.put(np.ones(5, np.float32), "x"),
    "an unknown axis": of_x(lambda s, x: s.jax.reshard(x, s.P("z"))),
    "matrices": lambda s: s.jnp.linalg.inv(s.put(np.eye(4, dtype=np.float32), "x")),
}


@pytest.mark.parametrize("name", one_in(2, PROGRAMS))
@pytest.mark.one_in(2)
def test_types_shardings_and_values(name):
    agree(PROGRAMS[name], compiled=name not in ONE_BY_ONE)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - ONE_BY_ONE))
def test_jax_gives_the_same_in_a_compiled_program(name):
    assert_same(outcome(REAL, PROGRAMS[name], compiled=True), outcome(REAL, PROGRAMS[name]))


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.one_in(2)
def test_errors(name):
    theirs = outcome(REAL, ERRORS[name])
    assert isinstance(theirs, str) and outcome(OURS, ERRORS[name]) == theirs


TEXTS = {
    "product": over_both(lambda s, x, w: s.jax.make_jaxpr(loss(s))(x, w)),
    "reshard": of_x(lambda s, x: s.jax.make_jaxpr(lambda x: s.jax.reshard(x, s.P(None, "x")) + 1)(x)),
    "vmap": of_x(lambda s, x: s.jax.make_jaxpr(s.jax.vmap(lambda a: a * 2 + a.sum()))(x)),
    "filled": lambda s: s.jax.make_jaxpr(lambda: s.jnp.zeros((8, 2), out_sharding=s.P("x")))(),
    "auto": of_x(lambda s, x: s.jax.make_jaxpr(s.sharding.auto_axes(lambda a: a.T @ a, out_sharding=s.P("x")))(x)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_jaxprs(name):
    def text(s):
        with s.jax.set_mesh(s.mesh):
            return str(TEXTS[name](s))

    assert text(OURS) == text(REAL)


def test_gradients_compute_products_in_the_sharding_of_the_cotangent():
    def products(s):
        def f(x, y):
            return s.jnp.einsum("xy,yz->xz", x, y, out_sharding=s.P("x", None)).sum()

        with s.jax.set_mesh(s.mesh):
            gradient = s.jax.make_jaxpr(s.jax.grad(f, argnums=(0, 1)))(s.put(X, "x", None), s.put(X.T, None, "x"))
            return [e.outvars[0].aval.str_short(True) for e in gradient.eqns if e.primitive.name == "dot_general"]

    assert products(OURS) == products(REAL) == ["f32[8@x,8]", "f32[8@x,2]", "f32[8@x,2]"]


def test_whole_results_name_each_axis():
    def f(s):
        w, one = s.put(W), s.put(np.float32(1))
        twice = s.jax.jit(lambda w: 2 * w)
        return [w, one, w + w, one + 1, twice(w), s.jax.jit(lambda w: (w, w.sum(), w.T @ w))(w), s.jnp.zeros(3)]

    agree(f)


def test_results_keep_the_shardings_that_jit_was_given():
    def specs(s):
        with s.jax.set_mesh(s.mesh):
            x = s.put(X, "x", None)
            asked = (s.P("x"), s.P(), s.P("x", None), None)
            outs = s.jax.jit(lambda x: (x * 2, x + 1, x * 3, x - 1), out_shardings=asked)(x)
            return [str(out.sharding.spec) for out in outs]

    assert specs(OURS) == specs(REAL) == ["P('x',)", "P()", "P('x', None)", "P('x', None)"]


CHECKED = {
    "a window": lambda s, x: s.lax.dynamic_slice(x, (s.jnp.array(1), 0), (4, 2)),
    "an update": lambda s, x: s.lax.dynamic_update_slice(x, x[:4], (s.jnp.array(3), 0)),
    "a product": lambda s, x: x @ s.jnp.asarray(W),
    "rows": lambda s, x: x.at[np.array([0, 3])].get(out_sharding=s.P()),
}


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.one_in(2)
def test_programs_of_gradients_are_well_formed(name):
    def gradient(s, x):
        with s.jax.enable_checks(True):
            return s.jax.jit(s.jax.grad(lambda x: (s.jax.jit(lambda x: CHECKED[name](s, x))(x) ** 2).sum()))(x)

    agree(of_x(gradient))


def test_axes_of_both_types():
    def seen(s):
        with s.jax.set_mesh(s.mixed):
            x = s.put(X, "x", "y")
            outs = [x, x + 1, x.sum(1), s.jax.jit(lambda x: x.T)(x)]
            free = s.lax.with_sharding_constraint(x, s.P("y"))
            both = s.jax.jit(lambda x: s.lax.with_sharding_constraint(x, s.P("y")))(s.put(X, "x"))
            assert both.sharding.is_equivalent_to(s.sharding.NamedSharding(s.mixed, s.P(("x", "y"))), 2)
            return [(s.jax.typeof(o).str_short(True), str(o.sharding.spec)) for o in outs], s.types(free, both)

    assert seen(OURS) == seen(REAL)


def test_what_needs_a_mesh_in_context():
    def seen(s):
        sharding = s.sharding.NamedSharding(s.mesh, s.P("x", "y"))
        x = s.jax.device_put(np.ones((8, 2), np.float32), sharding)
        out = s.jax.jit(lambda x: x + s.jax.random.normal(s.jax.random.key(0), (8, 2), out_sharding=sharding))(x)
        said = []
        for f in (lambda: s.jax.device_put(X, s.P("x")), lambda: s.jnp.dot(X, X.T, out_sharding=s.P("x")),
                  lambda: s.jax.set_mesh(s.mesh.update(axis_types=(s.sharding.AxisType.Manual,) * 2))):  # fmt: skip
            with pytest.raises(ValueError) as error:
                f()
            said.append(str(error.value)[:70])
        return str(out.sharding.spec), s.types(out), said[:2]

    assert seen(OURS) == seen(REAL)


def test_tiles_and_parts_along_a_split_axis_need_an_operand_that_is_whole_there():
    def seen(s):
        with s.jax.set_mesh(s.mesh):
            x = s.put(X, "x", "y")
            said = []
            for f in (lambda: s.jnp.tile(x, (1, 2)), lambda: s.jnp.unstack(x, axis=0), lambda: s.jnp.tile(x, (2, 1))):
                with pytest.raises(Exception, match="cannot be sharded") as error:
                    f()
                said.append((type(error.value).__name__, str(error.value).partition(". ")[0]))
            outs = (s.jnp.tile(x, (2, 1, 1)), s.jnp.tile(s.put(X, "x"), (1, 2)), s.jnp.unstack(s.put(X, "x"), axis=1)[0])
            return said, [str(out.sharding.spec) for out in outs]

    assert seen(OURS) == seen(REAL)


def test_rows_of_an_array_that_is_split_along_its_first_axis():
    with OURS.jax.set_mesh(OURS.mesh):
        rows = list(OURS.put(X, "x", "y"))
        np.testing.assert_array_equal(rows, X)
        assert {str(OURS.jax.typeof(row)) for row in rows} == {f"float32[{X.shape[1]}@y]"}


def test_devices_under_other_names():
    def seen(s):
        named = s.mesh.abstract_mesh.update(axis_sizes=(4, 1), axis_names=("a", "b"))

        def renamed(x):
            x = s.jnp.sin(x)
            with s.sharding.use_abstract_mesh(named):
                y = s.jax.reshard(x, s.P(("a", "b"), None)) * 2
            return s.jax.reshard(y, s.P("y", None))

        with s.jax.set_mesh(s.mesh):
            x = s.put(X, "x", None)
            outs = [s.jax.jit(renamed)(x), s.jax.jit(s.jax.grad(lambda x: renamed(x).sum()))(x)]
            return [(s.jax.typeof(o).str_short(True), str(o.sharding.spec)) for o in outs]

    assert seen(OURS) == seen(REAL)


def test_nothing_moves_where_a_sharding_names_no_axis():
    def seen(s):
        kinds = s.sharding.AxisType
        mesh = s.mesh.update(axis_types=(kinds.Auto,) * 2)
        x = s.jax.device_put(X, s.sharding.NamedSharding(mesh, s.P("x")))
        with s.jax.set_mesh(mesh):
            return [str(f(x).sharding.spec) for f in (lambda x: s.jax.reshard(x, s.P()), s.sharding.explicit_axes(
                lambda x: s.jax.reshard(x, s.P("y")), in_sharding=s.P("x")))]

    assert seen(OURS) == seen(REAL)


def test_no_mesh_in_context():
    def seen(s):
        mesh = s.sharding.get_mesh()
        with s.jax.set_mesh(s.mesh):
            return mesh.empty, mesh.axis_names, mesh.size, s.sharding.get_mesh() == s.mesh

    assert seen(OURS) == seen(REAL) == (True, (), 0, True)


def test_copies_of_meshes():
    def seen(s):
        kinds = s.sharding.AxisType
        other = s.mesh.update(axis_names=("a", "b"), axis_types=(kinds.Auto,) * 2)
        types = s.mesh.abstract_mesh.update_axis_types({"y": kinds.Auto})
        return str(other), str(types.axis_types), str(types.update(axis_sizes=(4, 1)).shape_tuple)

    assert seen(OURS) == seen(REAL)


def test_traced_without_devices():
    def seen(s):
        mesh = s.sharding.AbstractMesh((4,), ("x",), (s.sharding.AxisType.Explicit,))
        with s.sharding.use_abstract_mesh(mesh):
            struct = s.jax.ShapeDtypeStruct((8, 2), np.float32, sharding=s.sharding.NamedSharding(mesh, s.P("x")))
            out = s.jax.eval_shape(lambda x: (x.T, x.sum(1)), struct)
            return [(o.shape, str(o.sharding.spec)) for o in out], s.types(*out)

    assert seen(OURS) == seen(REAL)


def test_shardings_without_a_mesh_in_context():
    def seen(s):
        x = s.jax.device_put(X, s.sharding.NamedSharding(s.mesh, s.P("x")))
        outs = [x * 2, s.jax.jit(lambda x: x.sum(0))(x)]
        return [(s.jax.typeof(o).str_short(True), str(o.sharding.spec)) for o in outs]

    assert seen(OURS) == seen(REAL)


def test_sums_that_are_yet_to_be_taken():
    def seen(s):
        with s.jax.set_mesh(s.mesh):
            x = s.put(X, "x")
            out = s.jnp.dot(x.T, x, out_sharding=s.P(unreduced={"x"}))
            total = s.jax.reshard(out + out, s.P())
            shards = [shard.data for shard in out.addressable_shards]
            again = s.jax.make_array_from_single_device_arrays(out.shape, out.sharding, shards)
            zeros = s.jax.reshard(s.put(X), s.P(unreduced={"x", "y"}))
            placed = [s.jax.jit(lambda x: x.T)(out), again, zeros, s.jax.reshard(s.put(X), s.P(reduced={"x"}))]
            specs = [o.sharding.spec for o in placed]
            said = [
                (p.partitions, p.unreduced, p.reduced, o.is_fully_replicated, o.sharding.shard_shape(o.shape))
                for o, p in zip(placed, specs, strict=True)
            ]
            sums = [total, s.jax.reshard(again, s.P()), sum(map(np.asarray, shards[::2])), *(z.data for z in zeros.addressable_shards)]
            return s.types(out, total, *placed[:2]), (said, repr(again), str(again)), *map(np.asarray, sums)

    (*mine, said), (*theirs, expected) = ((*sums, (types, placed)) for types, placed, *sums in map(seen, [OURS, REAL]))
    assert said == expected
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def reduced_and_back(s, x, w):
    """Weights that shards have parts of, gathered; their gradients are sums over the shards' examples."""
    to_sum = s.jax.shard_map(
        lambda w: s.lax.all_gather(w, "x", tiled=True, to="reduced"), in_specs=s.P("x"), out_specs=s.P(reduced={"x"}))
    same = s.jax.shard_map(lambda w: s.lax.pcast(w, "x", to="reduced"), in_specs=s.P(), out_specs=s.P(reduced={"x"}))
    return (s.jnp.sin(x @ to_sum(w)) + x @ same(s.jax.reshard(w, s.P()))).sum()


def unreduced_and_back(s, x, w):
    taken = s.jax.shard_map(lambda z: s.lax.psum(z + z, "x"), in_specs=s.P(unreduced={"x"}), out_specs=s.P())
    partly = s.jax.shard_map(
        lambda x: s.lax.pcast(x.T @ x, "x", to="unreduced"), in_specs=s.P("x"), out_specs=s.P(unreduced={"x"}))
    product = s.jnp.dot(s.jax.reshard(w.T, s.P(None, "x")), w, out_sharding=s.P(unreduced={"x"}))
    return s.jnp.sin(taken(product)).sum() + s.jax.reshard(partly(x), s.P()).sum()


def summands_and_back(s, x, w):
    """Shards whose sum is yet to be taken, and a body that gets them as they are."""
    summands = s.jax.shard_map(lambda x: x.T @ x, in_specs=s.P("x"), out_specs=s.P(unreduced={"x"}))(x)
    taken = s.jax.shard_map(lambda z: s.lax.psum_scatter(z, "x", tiled=True), out_specs=s.P("x"))(summands)
    return s.jnp.sin(s.jax.reshard(taken, s.P()) @ s.jax.reshard(w, s.P())).sum()


def parts_and_back(s, x, w):
    """What takes elements of sums, and what fills: each leaves the sums to be taken."""
    unreduced = s.jnp.dot(s.jax.reshard(w.T, s.P(None, "x")), w, out_sharding=s.P(unreduced={"x"}))
    taken = [s.lax.slice(unreduced, (0, 0), (1, 2)), s.lax.pad(unreduced, np.float32(0), ((0, 1, 0), (0, 0, 0)))]
    taken += [s.lax.select(np.bool_(True), unreduced, unreduced + unreduced), s.lax.reduce_precision(unreduced, 8, 12)]
    same = s.jax.shard_map(lambda w: s.lax.pcast(w, "x", to="reduced"), in_specs=s.P(), out_specs=s.P(reduced={"x"}))
    scaled = s.lax.slice(same(s.jax.reshard(w, s.P())) * 2, (0, 0), (2, 1))
    return sum((s.jax.reshard(t, s.P()) ** 2).sum() for t in taken) + (x @ scaled).sum()


@pytest.mark.parametrize("f", [reduced_and_back, unreduced_and_back, summands_and_back, parts_and_back])
@pytest.mark.one_in(2)
def test_derivatives_through_sums_that_are_yet_to_be_taken(f):
    def seen(s):
        with s.jax.set_mesh(s.mesh):
            args = s.put(X, "x"), s.put(X[:, ::-1][: X.shape[1]] / 4, "x")
            value, grads = s.jax.jit(s.jax.value_and_grad(lambda x, w: f(s, x, w), (0, 1)))(*args)
            return [g.sharding.spec[0] for g in grads], np.asarray(value), *map(np.asarray, grads)

    (mine, *ours_), (theirs, *real_) = seen(OURS), seen(REAL)
    assert mine == theirs
    for a, b in zip(ours_, real_, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_an_error_says_what_to_do():
    with ours.set_mesh(OURS.mesh), pytest.raises(ShardingTypeError, match=r"Contracting dimensions.*`out_sharding`"):
        ERRORS["contracted"](OURS)


def test_types_of_a_primitive_from_outside_follow_from_its_sharding_rule():
    from mpijax.extend import core, sharding

    def sorted_rows(x, *, axis):
        return ours.numpy.sort(x, axis=axis)

    own_p = core.Primitive(
        "sorted_rows", type_rule=lambda x, *, axis: x, lower=ours.extend.lowering.Decompose(sorted_rows),
        sharding=sharding.whole_along("axis"),
    )  # fmt: skip
    halved_p = core.Primitive(
        "sum_of_rows", type_rule=lambda x, *, axes: x.update(shape=x.shape[1:]), sharding=sharding.finished_over_ranks("sum"),
        lower=ours.extend.lowering.Decompose(lambda x, *, axes: ours.numpy.sum(x, axes)),
    )  # fmt: skip
    with ours.set_mesh(OURS.mesh):
        x = OURS.put(X, "x", None)
        out = ours.jit(lambda x: own_p.bind(x, axis=1))(x)
        assert ours.typeof(out).str_short(True) == "f32[8@x,2]"
        np.testing.assert_array_equal(np.asarray(out), np.sort(X, 1))
        out = ours.jit(lambda x: halved_p.bind(x, axes=(0,)))(OURS.put(X, "x", "y"))
        assert ours.typeof(out).str_short(True) == "f32[2@y]"
        np.testing.assert_allclose(np.asarray(out), X.sum(0), rtol=1e-5)
        with pytest.raises(ShardingTypeError, match="sorted_rows needs an operand that is not split along the axis.*=0"):
            own_p.bind(x, axis=0)


def test_types_of_a_primitive_from_outside_follow_from_its_factors():
    """An outer product per row: rows and both columns pass through. Axes without a factor are whole."""
    from mpijax.extend import core, sharding

    jnp = ours.numpy
    rows = sharding.FactorRule(
        lambda s: [sharding.free((0, 0), (0,)), sharding.free((1, None), (1,)), sharding.free((None, 1), (2,))]
    )
    outer_p = core.Primitive(
        "outer", type_rule=lambda x, y: x.update(shape=(*x.shape, y.shape[1])), sharding=rows,
        lower=ours.extend.lowering.Decompose(lambda x, y: x[:, :, None] * y[:, None, :]),
    )  # fmt: skip
    middle_p = core.Primitive(
        "middle", type_rule=lambda x: x.update(shape=x.shape[:1]), sharding=sharding.FactorRule(lambda s: [sharding.free((0,), (0,))]),
        lower=ours.extend.lowering.Decompose(lambda x: jnp.sort(x, 1)[:, x.shape[1] // 2]),
    )  # fmt: skip
    with ours.set_mesh(OURS.mesh):
        x, y = OURS.put(X, "x", None), OURS.put(X[:, :1], "x", None)
        out = ours.jit(lambda x, y: outer_p.bind(x, y))(x, y)
        assert ours.typeof(out).str_short(True) == "f32[8@x,2,1]"
        np.testing.assert_array_equal(np.asarray(out), X[:, :, None] * X[:, None, :1])
        out = ours.jit(lambda x: middle_p.bind(x))(x)
        assert ours.typeof(out).str_short(True) == "f32[8@x]"
        np.testing.assert_array_equal(np.asarray(out), np.sort(X, 1)[:, X.shape[1] // 2])
        with pytest.raises(ShardingTypeError, match="outer got incompatible shardings for broadcasting"):
            outer_p.bind(x, OURS.put(X, "y", None))
        with pytest.raises(ShardingTypeError, match="middle with inputs: .* needs to move data between devices"):
            middle_p.bind(OURS.put(X, None, "y"))


def test_requested_shardings_may_name_none_for_more_axes():
    agree(of_x(lambda s, x: s.jax.jit(lambda x: s.jax.reshard(x[0], s.P("y", None)))(x), None, None))
    agree(of_x(lambda s, x: [x.at[0, 0].get(out_sharding=s.P(None)), s.jnp.zeros(4, out_sharding=s.P("x", None, None))]))
    agree(lambda s: s.jnp.einsum("ij,jk->ik", s.jnp.ones((2, 2)), s.jnp.ones((2, 2)), out_sharding=s.P("x", None, None)))


def test_in_shardings_are_no_part_of_the_type_of_an_argument_that_has_none():
    def seen(s):
        rows, found = s.sharding.NamedSharding(s.mesh, s.P("x")), []

        def f(x):
            found.extend(s.types(x))
            return x * 2, x @ x.T

        outs = s.jax.jit(f, in_shardings=rows)(X)
        given = s.jax.jit(lambda x: found.extend(s.types(x)), in_shardings=rows)
        given(s.jax.device_put(X, rows))
        return found, s.types(outs[0]), np.asarray(outs[1]).round(4).tolist()

    assert seen(OURS) == seen(REAL)


@dataclass(frozen=True)
class Scaled:
    """An array as whole numbers with a factor for each row: a value of a library's type."""

    whole: Any
    factor: Any


@cache
def scaled(s):
    """A function to `Scaled`, with a derivative of its own, and one back."""
    hijax, jnp = import_module(f"{s.jax.__name__}.experimental.hijax"), s.jnp

    @dataclass(frozen=True)
    class ScaledTy(hijax.HiType):
        shape: tuple[int, ...]
        sharding: Any

        def lo_ty(self):
            rows = self.sharding.update(spec=s.P(*self.sharding.spec[:-1]))
            return [hijax.ShapedArray(self.shape, jnp.dtype("int8"), sharding=self.sharding),
                    hijax.ShapedArray(self.shape[:-1], jnp.dtype("float32"), sharding=rows)]  # fmt: skip

        def lower_val(self, value):
            return [value.whole, value.factor]

        def raise_val(self, whole, factor):
            return Scaled(whole, factor)

        def to_tangent_aval(self):
            return hijax.ShapedArray(self.shape, jnp.dtype("float32"), sharding=self.sharding)

        def str_short(self, short_dtypes=False, mesh_axis_types=False):
            return f"scaled{self.shape}{self.sharding.spec}"

    class Of(hijax.VJPHiPrimitive):
        def __init__(self, given, made):
            self.in_avals, self.out_aval, self.params = (given,), made, {}
            super().__init__()

        def vjp_fwd(self, nonzero, x):
            return self(x), None

        def vjp_bwd_retval(self, _, ct):
            return (ct,)

    class Scale(Of):
        def expand(self, x):
            factor = jnp.max(jnp.abs(x), axis=-1) / 100
            return Scaled(jnp.round(x / factor[..., None]).astype(jnp.int8), factor)

    class Unscale(Of):
        def expand(self, x):
            return x.whole.astype("float32") * x.factor[..., None]

    hijax.register_hitype(Scaled, lambda x: ScaledTy(x.whole.shape, s.jax.typeof(x.whole).sharding))

    def unscale(x):
        kind = s.jax.typeof(x)
        return Unscale(kind, kind.to_tangent_aval())(x)

    def scale(x):
        kind = s.jax.typeof(x)
        return Scale(kind, ScaledTy(kind.shape, kind.sharding))(x)

    return scale, unscale


@pytest.mark.parametrize("compiled", [False, True])
def test_types_of_libraries(compiled):
    def f(s):
        scale, unscale = scaled(s)
        x = s.put(X, "x")
        there_and_back = lambda x: unscale(scale(x))
        run = s.jax.jit(there_and_back) if compiled else there_and_back
        total = lambda x: (run(x) ** 2).sum()
        swapped = s.lax.scan(lambda c, _: (scale(2 * unscale(c)), ()), scale(x), length=3)[0]
        return run(x), s.jax.grad(total)(x), unscale(swapped)

    assert not isinstance(outcome(REAL, f), str)
    agree(f)


def test_a_carry_of_another_type_of_a_library():
    def f(s):
        scale, _ = scaled(s)
        return s.lax.scan(lambda c, _: (scale(s.put(X, "y")), ()), scale(s.put(X, "x")), length=3)[0]

    assert outcome(OURS, f) == outcome(REAL, f) == "TypeError"
