"""Bodies of `shard_map`: their mesh, what they may be given, and what is refused, beside the real JAX over four devices.

Run by test_local_devices.py.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from quickly import slow
from spmd.local_devices import OURS, REAL, V, X

BOTH = pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])


def kinds(s):
    """The types of axes within one shard_map and within two."""
    seen = []

    def inner(x):
        mesh = s.jax.sharding.get_abstract_mesh()
        seen.append((mesh.manual_axes, mesh.auto_axes, x.aval.mat.invarying(mesh), x.aval.sharding.mesh == mesh))
        return x * 2

    def outer(x):
        mesh = s.jax.sharding.get_abstract_mesh()
        seen.append((mesh.manual_axes, mesh.auto_axes, x.aval.mat.invarying(mesh), x.aval.sharding.mesh == mesh))
        return s.jax.shard_map(inner, in_specs=s.P(), out_specs=s.P())(x)

    out = s.jax.jit(s.over(outer, s.grid, s.P("i"), s.P("i"), axis_names={"i"}))(V)
    return seen, np.asarray(out).tolist()


def axis_inside_of_the_other(s):
    def outer(x):
        inner = s.jax.shard_map(lambda y: s.lax.psum(y, "j"), in_specs=s.P("j"), out_specs=s.P(), axis_names={"j"})
        return inner(x) * (1 + s.lax.axis_index("i"))

    return np.asarray(s.jax.jit(s.over(outer, s.grid, s.P("i"), s.P("i"), axis_names={"i"}))(V)).tolist()


def sharding_over_the_other_axis(s):
    f = s.over(lambda x: s.lax.with_sharding_constraint(x, s.P(None, "j")) * 2, s.grid, s.P("i"), s.P("i"),
               axis_names={"i"})  # fmt: skip
    return np.asarray(s.jax.jit(f)(X)).tolist()


def objects_as_they_are(s):
    class Plain:
        __hash__ = None  # type: ignore[assignment]

    first, pair = Plain(), (object(), object())
    seen = []

    def f(a, b, x, c):
        seen.append((a is first, b[1] is pair[1], c is None))
        return x + 1

    out = s.over(f, s.line, (None, None, s.P("i"), None), s.P("i"))(first, pair, V, None)
    return seen, np.asarray(out).tolist()


def mesh_without_devices(s):
    f = s.jax.jit(lambda x: s.over(lambda y: s.lax.psum(y, "i"), s.line.abstract_mesh, s.P("i"), s.P())(x))
    return np.asarray(f(s.put(V, s.P("i")))).tolist()


def operand_computed_outside_of_the_loop_around(s):
    def turn(y):
        return s.over(lambda x: x * 3, s.line, s.P("i"), s.P("i"))(s.jnp.asarray(V) * 2) + y

    return np.asarray(s.lax.map(turn, s.jnp.asarray(V))).tolist()


def zeros_like_what_is_not_computed(s):
    def f(x, y):
        shapes = s.jax.eval_shape(lambda x, y: (x * y, y.sum()), x, y)
        start = s.jax.tree.map(s.jnp.zeros_like, shapes)
        said = [str(shape.manual_axis_type) for shape in (*shapes, s.jax.typeof(x))]
        return s.lax.fori_loop(0, 2, lambda i, c: (c[0] + x, c[1] + 1), start), said

    seen = []
    call = lambda x, y: (lambda out, said: (seen.append(said), out)[1])(*f(x, y))
    out = s.jax.jit(s.over(call, s.line, (s.P("i"), s.P()), (s.P("i"), s.P())))(V, V[:1])
    return seen[0][0], seen[0][2], [np.asarray(x).tolist() for x in out]


@pytest.mark.parametrize(
    "f",
    [
        kinds,
        axis_inside_of_the_other,
        sharding_over_the_other_axis,
        objects_as_they_are,
        mesh_without_devices,
        operand_computed_outside_of_the_loop_around,
        zeros_like_what_is_not_computed,
    ],
)
@pytest.mark.one_in(3)
def test_as_in_jax(f):
    assert f(OURS) == f(REAL)


@pytest.mark.parametrize("spec", [("i", None), (None, ("i", "j")), ()], ids=str)
@pytest.mark.one_in(3)
def test_parts_that_devices_show(spec, capfd):
    def f(s):
        x = s.jax.device_put(np.arange(16).reshape(4, 4), s.jax.sharding.NamedSharding(s.grid, s.P(*spec)))
        show = partial(s.jax.debug.print, "{} {}", partitioned=True)
        s.jax.jit(lambda x: show(x * 2, x.sum(0)))(x)
        s.jax.jit(s.jax.vmap(lambda x: show(x, 1.0)))(x)
        s.jax.jit(lambda x: s.lax.scan(lambda c, _: (show(x, c) or c + 1, None), 0, length=2)[0])(x)
        s.jax.effects_barrier()
        return sorted(capfd.readouterr().out.replace("]\n [", "] [").splitlines())

    assert f(OURS) == f(REAL)


def varying(s, f, *specs):
    return s.over(f, s.grid, specs, s.P(("i", "j")))


def swapped(s):
    return varying(s, lambda x, y: s.lax.scan(lambda c, _: (c[::-1], ()), (x, y), (), length=2)[0], s.P("i"), s.P())(V, V)


def three_swapped(s):
    def step(c, _):
        return (c[2], c[0], c[1]), ()

    return varying(s, lambda *c: s.lax.scan(step, c, (), length=2)[0], s.P("i"), s.P(), s.P(("i", "j")))(V, V, V)


def branches(s):
    def one(x, y):
        return x

    def other(x, y):
        return y

    return varying(s, lambda x, y: s.lax.cond(True, one, other, x, y), s.P("i"), s.P("j"))(V, V)


def branch_of_a_constant(s):
    return varying(s, lambda x: s.lax.switch(1, [lambda x: x, lambda x: s.jnp.zeros(2)], x), s.P("i"))(V[:4])


def summed_cotangent(s):
    @s.jax.custom_vjp
    def f(x):
        return s.lax.psum(x, "i")

    f.defvjp(lambda x: (f(x), None), lambda _, g: (s.lax.psum(g, "i"),))
    g = s.over(lambda x: f(f(x)), s.line, s.P("i"), s.P())
    return s.jax.grad(lambda x: g(x).sum())(V)


def sharding_of_a_shard(s, names):
    sharding = s.NamedSharding(s.grid, s.P("i", "j"))
    f = s.over(lambda x: s.lax.with_sharding_constraint(x, sharding), s.grid, s.P("i"), s.P("i"), axis_names=names,
               check_vma=False)  # fmt: skip
    return s.jax.jit(f)(X)


def mesh_again(s):
    def outer(x):
        return s.over(lambda y: y, s.grid, s.P("j"), s.P("j"), axis_names={"j"})(x)

    return s.jax.jit(s.over(outer, s.grid, s.P("i"), s.P("i"), axis_names={"i"}))(V)


def examples_over(s, spec_in, spec_out):
    f = s.over(s.jnp.sin, s.grid, s.P(*spec_in), s.P(*spec_out), check_vma=False)
    return s.jax.vmap(f, spmd_axis_name="i")(X)


@BOTH
def test_specs_may_name_the_axis_of_examples_where_that_is_not_checked(s):
    f = s.over(lambda x, y: x + s.lax.all_gather(y, "i", tiled=True), s.line, (s.P(None), s.P("i")), s.P(None), check_vma=False)
    vmapped = s.jax.vmap(f, in_axes=(0, None), spmd_axis_name="i")
    with pytest.raises(ValueError, match="vmap spmd_axis_name cannot appear in"):
        vmapped(X, X[0])
    s.jax.config.update("jax_disable_vmap_shmap_error", True)
    try:
        np.testing.assert_array_equal(np.asarray(vmapped(X, X[0])), X + X[0])
    finally:
        s.jax.config.update("jax_disable_vmap_shmap_error", False)


FAILURES = [
    (swapped, TypeError, r"This might be fixed by applying `jax.lax.pcast\(..., \('i',\).*to the initial carry value"),
    (three_swapped, TypeError, r"This might be fixed by:\n  \* applying `jax.lax.pcast\(..., \('j',\).*to the initial"),
    (branches, TypeError, r"applying `jax.lax.pcast\(..., \('j',\).*to the output of true_fun"),
    (branch_of_a_constant, TypeError, "switch branches must have equal output types.*so the manual axis types do not"),
    (summed_cotangent, ValueError, "Custom VJP bwd rule must produce an output with the same type.*manual axis types"),
    (partial(sharding_of_a_shard, names={"i"}), ValueError, "manual"),
    (partial(sharding_of_a_shard, names={"i", "j"}), ValueError, "contains a manual axes.*of mesh"),
    (mesh_again, ValueError, "context mesh.*should match the mesh passed to shard_map"),
    (partial(examples_over, spec_in=("i",), spec_out=("i",)), ValueError, "spmd_axis_name cannot appear in.*in_specs"),
    (partial(examples_over, spec_in=("j",), spec_out=(("i", "j"),)), ValueError, "cannot appear in.*out_specs"),
    (lambda s: s.jax.jit(lambda x: s.lax.psum(x, "i"))(V), NameError, "please call psum under `jax.shard_map`"),
    (lambda s: s.jax.jit(lambda x: s.lax.pmax(x, "i"))(V), NameError, "please call p[a-z]* under `jax.shard_map`"),
    (lambda s: s.lax.axis_index("i"), NameError, "please call axis_index under `jax.shard_map`"),
    (lambda s: s.lax.pcast(V, "i", to="varying"), ValueError, "pvary should be called under jax.shard_map"),
    (lambda s: s.jax.shard_map(lambda x: x, in_specs=s.P(), out_specs=s.P())(V), ValueError, "context mesh cannot be"),
    (lambda s: s.over(lambda *_: None, s.grid, (None, s.P("i", "j")), None)(object(), V), ValueError, "rank"),
    (lambda s: s.over(lambda *_: None, s.grid, (s.P("i"), None), None)(V[:3], object()), ValueError, "divisible"),
    (lambda s: s.over(lambda x: x, s.grid, s.P("i"), s.P("i"), axis_names={"k"})(V), ValueError, "to be a subset of"),
]


@BOTH
@pytest.mark.parametrize(("f", "error", "text"), FAILURES)
def test_refused(s, f, error, text):
    with pytest.raises(error) as caught:
        f(s)
    assert re.search(text, str(caught.value), re.DOTALL)
