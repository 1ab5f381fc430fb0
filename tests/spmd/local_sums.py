"""Bodies of `shard_map` whose values are unreduced or reduced, over four devices of one process, beside the real JAX.

Run by test_local_devices.py.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from quickly import one_in, slow
from spmd.local_explicit import OURS, REAL, X

from mpijax.core.base.errors import ShardingTypeError

W = np.random.default_rng(5).normal(size=(2,)).astype(np.float32)
T = np.random.default_rng(6).normal(size=(4, 4)).astype(np.float32)


def seen_in(s, body, *in_specs, **specs):
    """A shard_map that records the types of the arguments and results of its body."""
    types = []

    def recorded(*args):
        outs = body(*args)
        types.append([(str(v.mat), s.jax.typeof(v).str_short(True)) for v in (*args, *s.jax.tree.leaves(outs))])
        return outs

    given = {"in_specs": in_specs} if in_specs else {}
    return s.jax.shard_map(recorded, mesh=s.mesh, **given, **specs), types


def sums(s, x, spec):
    """An array with an unreduced or reduced sharding."""
    return s.jax.reshard(s.put(x), spec)


def product(s):
    """Varying times reduced, returned unreduced."""
    f, types = seen_in(s, lambda x, w: s.lax.pcast(x * w, "x", to="unreduced"), s.P("x"), s.P(reduced={"x"}),
                       out_specs=s.P(None, None, unreduced={"x"}))  # fmt: skip
    return f, (s.put(X, "x"), sums(s, W, s.P(reduced={"x"}))), types


def declared(s):
    """A varying result that out_specs call unreduced, over two axes."""
    f, types = seen_in(s, lambda x: x.sum(0), s.P(("x", "y")), out_specs=s.P(unreduced={"x", "y"}))
    return f, (s.put(X, ("x", "y")),), types


def summed(s):
    f, types = seen_in(s, lambda u: s.lax.psum(u + u, "x"), out_specs=s.P())
    return f, (sums(s, T, s.P(unreduced={"x"})),), types


def scattered(s):
    f, types = seen_in(s, lambda u: s.lax.psum_scatter(u + u, "x", scatter_dimension=1, tiled=True), out_specs=s.P(None, "x"))
    return f, (sums(s, T, s.P(unreduced={"x"})),), types


def scattered_without_tiles(s):
    f, types = seen_in(s, lambda u: s.lax.psum_scatter(u, "x")[None], out_specs=s.P("x"))
    return f, (sums(s, T[:2], s.P(unreduced={"x"})),), types


def gathered(s):
    f, types = seen_in(s, lambda v: s.lax.all_gather(v, "x", axis=1, to="reduced"), s.P("x"), out_specs=s.P(reduced={"x"}))
    return f, (s.put(T, "x"),), types


def same_for_all(s):
    f, types = seen_in(s, lambda v: s.lax.pcast(s.jnp.sin(v), "y", to="reduced"), s.P(), out_specs=s.P(reduced={"y"}))
    return f, (s.put(T),), types


def made_varying(s):
    f, types = seen_in(s, lambda r: s.lax.pcast(s.jnp.sin(r), "x", to="varying"), out_specs=s.P("x"))
    return f, (sums(s, T, s.P(reduced={"x"})),), types


def beside_another_axis(s):
    """Over the other axis the collectives are those of any value."""
    f, types = seen_in(s, lambda x, u: s.lax.psum(x.sum(0), "y") + s.lax.pmean(s.lax.psum(u, "x"), "y"),
                       s.P("y"), s.P("y", unreduced={"x"}), out_specs=s.P())  # fmt: skip
    return f, (s.put(T, "y"), sums(s, T[:2, 0], s.P("y", unreduced={"x"}))), types


PROGRAMS = [product, declared, summed, scattered, scattered_without_tiles, gathered, same_for_all, made_varying,
            beside_another_axis]  # fmt: skip


def text(x) -> str:
    """Without meshes, and with names of axes in order: Python orders sets of texts anew in each process."""
    without = re.sub(r"mesh=.*", "", str(x))
    return re.sub(r"\{'x', 'y'\}|\{'y', 'x'\}", "{'x', 'y'}", without)


@pytest.mark.sweep
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.one_in(2)
def test_types_texts_and_values(program, jitted):
    def seen(s):
        with s.jax.set_mesh(s.mesh):
            f, args, types = program(s)
            out = (s.jax.jit(f) if jitted else f)(*args)
            said = types[-1], text(s.jax.make_jaxpr(f)(*args)) if jitted else "", out.sharding.spec
            return [*map(text, said), s.jax.typeof(out).str_short(True)], np.asarray(s.jax.reshard(out, s.P()))

    (mine, got), (theirs, want) = seen(OURS), seen(REAL)
    assert mine == theirs
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("program", one_in(2, PROGRAMS))
@pytest.mark.one_in(2)
def test_derivatives(program):
    """The cotangents of reduced values are unreduced, and the other way round."""

    def seen(s):
        with s.jax.set_mesh(s.mesh):
            f, args, _ = program(s)

            def loss(*args):
                whole = s.jax.reshard(f(*args), s.P())
                return (whole * s.jnp.cos(whole)).sum()

            derivative = s.jax.grad(loss, tuple(range(len(args))))
            grads = s.jax.jit(derivative)(*args)
            said = [s.jax.typeof(g).str_short(True) for g in grads], text(s.jax.make_jaxpr(derivative)(*args))
            return said, [np.asarray(s.jax.reshard(g, s.P())) for g in grads]

    ((mine, own_text), got), ((theirs, text_there), want) = seen(OURS), seen(REAL)
    assert mine == theirs
    casts = r"\b(unreduced_psum|preduced|reduced_vary_cast_p|vary_unreduced_cast_p|all_gather_reduced|unreduced_reduce_scatter)\b"
    assert sorted(re.findall(casts, own_text)) == sorted(re.findall(casts, text_there))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_without_types_the_shards_are_the_summands(s):
    with s.jax.set_mesh(s.mesh):
        pending = s.jax.shard_map(lambda x: x, in_specs=s.P("x"), out_specs=s.P(unreduced={"x"}), check_vma=False)
        taken = s.jax.shard_map(lambda u: s.lax.psum(u, "x"), in_specs=s.P(unreduced={"x"}), out_specs=s.P(), check_vma=False)

        def f(x):
            return taken(pending(x)).sum()

        out = s.jax.jit(pending)(s.put(T, "x"))
        assert str(out.sharding.spec) == "P(None, None, unreduced={'x'})"
        np.testing.assert_allclose(np.asarray(s.jax.reshard(out, s.P())), T[:2] + T[2:], rtol=1e-5)
        np.testing.assert_allclose(np.asarray(s.jax.jit(f)(s.put(T, "x"))), T.sum(), rtol=1e-5)


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_shardings_are_as_given_outside_of_programs_and_complete_in_them(s):
    with s.jax.set_mesh(s.mesh):
        f = s.jax.shard_map(lambda x: s.lax.psum(x, "x"), in_specs=s.P("x"), out_specs=s.P())
        assert [str(g(s.put(T, "x")).sharding.spec) for g in (f, s.jax.jit(f))] == ["P()", "P(None, None)"]


def over(s, body, *args, in_specs=None, out_specs=None, **options):
    given = {} if in_specs is None else {"in_specs": in_specs}
    return s.jax.jit(s.jax.shard_map(body, mesh=options.pop("mesh", s.mesh), out_specs=out_specs, **given, **options))(*args)


ERRORS = {
    "unreduced sine": (lambda s: over(s, s.jnp.sin, sums(s, T, s.P(unreduced={"x"})), out_specs=s.P(unreduced={"x"})),
                       NotImplementedError, "unreduced rule for sin is not implemented"),
    "not varying": (lambda s: over(s, lambda x: x, s.put(T), in_specs=s.P(), out_specs=s.P(unreduced={"x"})),
                    ValueError, r"vary_unreduced_cast"),
    "unreduced as varying": (
        lambda s: over(s, lambda u: s.lax.pcast(u, "x", to="varying"), sums(s, T, s.P(unreduced={"x"})), out_specs=s.P("x")),
        ValueError, "Unsupported pcast from=unreduced"),
    "two kinds": (
        lambda s: over(s, lambda x: s.lax.pcast(x, ("x", "y"), to="varying"), s.put(T, "x"), out_specs=s.P()),
        ValueError, "jax.lax.pcast can only accept axis_name which"),
    "permuted": (
        lambda s: over(s, lambda u: s.lax.ppermute(u, "x", [(0, 1)]), sums(s, T, s.P(reduced={"x"})), out_specs=s.P("x")),
        ValueError, "cannot accept args which are reduced"),
    "in_specs without it": (
        lambda s: over(s, lambda u: u, sums(s, T, s.P(unreduced={"x"})), in_specs=s.P(), out_specs=s.P()), ValueError,
        r"in_specs"),
    "out_specs without it": (
        lambda s: over(s, lambda u: u, sums(s, T, s.P(reduced={"x"})), out_specs=s.P()), ValueError,
        "out_specs"),
    "some axes": (
        lambda s: over(s, lambda u: u, s.put(T, "x"), in_specs=s.P("x"), out_specs=s.P(unreduced={"x"}), axis_names={"x"}),
        NotImplementedError, "full manual mode"),
    "not explicit": (
        lambda s: over(s, lambda u: u, T, in_specs=s.P("x"), out_specs=s.P(unreduced={"x"}),
                       mesh=s.jax.sharding.Mesh(s.mesh.devices, s.mesh.axis_names)),
        ValueError, "unreduced in out_specs .* can only be used when the mesh passed to shard_map"),
    "varying with unreduced": (
        lambda s: over(s, lambda u, v: u + v, sums(s, T, s.P(unreduced={"x"})), s.put(T, "x"),
                       in_specs=(s.P(unreduced={"x"}), s.P("x")), out_specs=s.P(unreduced={"x"})),
        ValueError, "pvary cannot accept args which are unreduced"),
    "replicated with reduced": (
        lambda s: over(s, lambda u, v: u + v, sums(s, T, s.P(reduced={"x"})), s.put(T), out_specs=s.P(reduced={"x"})),
        ShardingTypeError, "Inputs cannot be replicated on the same axes that another input is reduced on"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_errors(s, name):
    program, kind, message = ERRORS[name]
    expected = kind if s is OURS or kind is not ShardingTypeError else Exception
    with (s.jax.set_mesh(s.mesh) if name != "not explicit" else s.jax.set_mesh(s.jax.sharding.Mesh(s.mesh.devices, s.mesh.axis_names))):
        with pytest.raises(expected, match=message):
            program(s)


# Shardings that a caller requests, with sums that the operation leaves pending.
REQUESTED = {
    "product": lambda s: s.jnp.einsum("ij,jk->ik", s.put(T, "x", "y"), s.put(T, "y"), out_sharding=s.P("x", unreduced={"y"})),
    "turned product": lambda s: s.jnp.einsum("ij,jk->ki", s.put(T, "x", "y"), s.put(T, "y"), out_sharding=s.P(None, "x", unreduced={"y"})),
    "three operands": lambda s: s.jnp.einsum("ij,jk,kl->il", s.put(T, "x"), s.put(T), s.put(T), out_sharding=s.P("x")),
    "batches": lambda s: s.jnp.matmul(s.put(T[:, None], "x", None, "y"), s.put(T[..., None], "x", "y"), out_sharding=s.P("x", unreduced={"y"})),
    "vector": lambda s: s.jnp.matmul(s.put(T, "x", "y"), s.put(T[0], "y"), out_sharding=s.P("x")),
    "sum": lambda s: s.lax.reduce_sum(s.put(T, "x", "y"), axes=(0,), out_sharding=s.P("y", unreduced={"x"})),
    "sum over both": lambda s: s.lax.reduce_sum(s.put(T, "x", "y"), axes=(0, 1), out_sharding=s.P(unreduced={"x", "y"})),
    "columns first": lambda s: s.jnp.reshape(s.put(T, "x"), (2, 8), order="F", out_sharding=s.P(None, "y")),
    "kept": lambda s: s.jnp.reshape(sums(s, T, s.P(unreduced={"x"})), (2, 8), out_sharding=s.P(None, "y", unreduced={"x"})),
    "other axes contracted": lambda s: s.jnp.einsum("ij,jk->ik", s.put(T, "x"), s.put(T), out_sharding=s.P("x", unreduced={"y"})),
    "contracted unlike": lambda s: s.jnp.einsum("ij,jk->ik", s.put(T, "x", "y"), s.put(T), out_sharding=s.P("x", unreduced={"y"})),
    "other axes summed": lambda s: s.lax.reduce_sum(s.put(T, "x"), axes=(0,), out_sharding=s.P(unreduced={"y"})),
    "not unreduced": lambda s: s.jnp.reshape(s.put(T), (2, 8), out_sharding=s.P(unreduced={"x"})),
    "not reduced": lambda s: s.jnp.reshape(s.put(T), (2, 8), out_sharding=s.P(reduced={"x"})),
    "no longer unreduced": lambda s: s.jnp.reshape(sums(s, T, s.P(unreduced={"x"})), (2, 8), out_sharding=s.P()),
    "no longer reduced": lambda s: s.jnp.reshape(sums(s, T, s.P(reduced={"x"})), (2, 8), out_sharding=s.P()),
    "unreduced operand": lambda s: s.jnp.dot(sums(s, T, s.P(unreduced={"x"})), s.put(T), out_sharding=s.P()),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTED)
@pytest.mark.one_in(3)
def test_requested_shardings(name):
    def seen(s):
        with s.jax.set_mesh(s.mesh):
            try:
                out = REQUESTED[name](s)
            except Exception as error:
                return type(error).__name__, 0
            return (s.jax.typeof(out).str_short(True), text(out.sharding.spec)), np.asarray(s.jax.reshard(out, s.P()))

    (mine, got), (theirs, want) = seen(OURS), seen(REAL)
    assert mine == theirs
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


MORE_ERRORS = {
    "largest of groups": (
        lambda s: s.jax.ops.segment_max(s.put(T[0], "x"), np.arange(4), num_segments=4, out_sharding=s.P(unreduced={"x"})),
        NotImplementedError, "unreduced for max is not yet supported"),
    "kind of memory": (
        lambda s: s.jnp.full((2,), 0, out_sharding=s.jax.NamedSharding(s.mesh.abstract_mesh, s.P("x"), memory_kind="pinned_host")),
        ValueError, "sharding with memory_kind is not allowed"),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE_ERRORS)
@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_errors_of_requested_shardings(s, name):
    program, kind, message = MORE_ERRORS[name]
    with s.jax.set_mesh(s.mesh), pytest.raises(kind, match=message):
        program(s)


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_operands_that_vary_over_other_axes(s):
    """Without automatic casts, operands must vary over the same axes."""

    def body(cast):
        return lambda x, w: x * cast(w)

    def run(cast):
        f = s.jax.shard_map(body(cast), mesh=s.mesh, in_specs=(s.P("x"), s.P()), out_specs=s.P("x"))
        return s.jax.jit(f)(s.put(T, "x"), s.put(W[:1]))

    with s.jax.set_mesh(s.mesh), s.jax.auto_pcast(False):
        with pytest.raises(ValueError, match="requires varying manual axes to match"):
            run(lambda w: w)
        np.testing.assert_allclose(np.asarray(run(lambda w: s.lax.pcast(w, "x", to="varying"))), T * W[:1], rtol=1e-6)


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_types_without_axes_of_size_one(s):
    kinds = (s.jax.sharding.AxisType.Explicit,) * 2
    mesh = s.jax.sharding.Mesh(s.mesh.devices[:, :1], ("x", "y"), axis_types=kinds)
    types = []

    def body(x):
        types.append((sorted(x.aval.mat.varying), s.jax.typeof(s.lax.psum(x, "x")).str_short(True)))
        return s.lax.psum(x, "x")

    def f(x):
        types.append(s.jax.typeof(x).str_short(True))
        kept = s.lax.with_sharding_constraint(x * 2, s.P("x", "y"))
        return kept, s.jax.shard_map(body, in_specs=s.P("x", None), out_specs=s.P())(x)

    with s.jax.set_mesh(mesh), s.jax.remove_size_one_mesh_axis_from_type(True):
        kept, total = s.jax.jit(f)(s.put(T, "x", "y"))
        assert types == ["f32[4@x,4]", (["x"], "f32[2,4]")]
        assert str(kept.sharding.spec) == "P('x', None)"
        np.testing.assert_allclose(np.asarray(total), T[:2] + T[2:], rtol=1e-6)
        doubled = s.jax.jit(s.jax.vmap(lambda x: x * 2, spmd_axis_name=("x", "y")))(s.put(T, ("x", "y"), None))
        assert str(doubled.sharding.spec) == "P('x', None)"
        alone = s.jax.make_jaxpr(lambda x: s.lax.pcast(x, "y", to="varying"))(T)
        assert not alone.eqns and np.array_equal(s.lax.pcast(T, "y", to="varying"), T)


def accumulated(s, weights, batches):
    """The gradients of several batches, whose sum over the mesh axis stays pending until the end."""
    loss = lambda w, x: s.jnp.sin(x @ w).mean()
    zeros = s.jax.reshard(s.jnp.zeros(T.shape), s.P(unreduced={"x"}))
    return s.lax.scan(lambda total, x: (total + s.jax.grad(loss)(weights, x), None), zeros, batches)[0]


# Programs whose results are sums of shards: each shard is JAX's.
SHARDS = {
    "of a whole array": lambda s: sums(s, T, s.P(unreduced={"x"})),
    "of a split array": lambda s: s.jax.reshard(s.put(T, "x", "y"), s.P(None, "y", unreduced={"x"})),
    "of two split axes": lambda s: s.jax.reshard(s.put(T, ("x", "y")), s.P(unreduced={"x", "y"})),
    "over the second axis": lambda s: s.jax.reshard(s.put(T, ("x", "y")), s.P("x", unreduced={"y"})),
    "put": lambda s: s.jax.device_put(s.put(T, "x"), s.P(unreduced={"x"})),
    "result of a program": lambda s: s.jax.jit(lambda x: x, out_shardings=s.P(unreduced={"x"}))(s.put(T, "x")),
    "product": lambda s: s.jnp.einsum("ij,jk->ik", s.put(T, "x", "y"), s.put(T, "y"), out_sharding=s.P("x", unreduced={"y"})),
    "sum": lambda s: s.lax.reduce_sum(s.put(T, "x", "y"), axes=(0,), out_sharding=s.P("y", unreduced={"x"})),
    "transposed": lambda s: sums(s, T, s.P(None, "y", unreduced={"x"})).T,
    "reshaped": lambda s: s.jnp.reshape(sums(s, T, s.P(unreduced={"x", "y"})), (2, 8)),
    "joined": lambda s: s.jnp.concatenate([sums(s, T, s.P(unreduced={"x"}))] * 2),
    "repeated": lambda s: s.jnp.broadcast_to(sums(s, T[0], s.P(unreduced={"x"})), (3, 4)),
    "times a reduced one": lambda s: s.jax.jit(s.jnp.multiply)(sums(s, T, s.P(unreduced={"x"})), sums(s, T, s.P(reduced={"x"}))),
    "in a loop": lambda s: s.jax.jit(lambda u: s.lax.fori_loop(0, 3, lambda _, c: c + c, u))(sums(s, T, s.P(unreduced={"x"}))),
    "of a branch": lambda s: s.jax.jit(lambda p, u: s.lax.cond(p, lambda v: v + v, lambda v: v, u))(True, sums(s, T, s.P(unreduced={"x"}))),
    "recomputed": lambda s: s.jax.jit(s.jax.checkpoint(lambda u: u + u))(sums(s, T, s.P(unreduced={"x"}))),
    "summands": lambda s: s.jax.shard_map(lambda x: x, in_specs=s.P("x"), out_specs=s.P(unreduced={"x"}))(s.put(T, "x")),
    "of single devices": lambda s: s.jax.make_array_from_single_device_arrays(
        (4, 4), s.jax.NamedSharding(s.mesh, s.P(unreduced={"x", "y"})),
        [s.jax.device_put(np.full((4, 4), i, np.float32), d) for i, d in enumerate(s.mesh.devices.flat)]),
    "gradients": lambda s: s.jax.jit(lambda w, x: accumulated(s, w, x))(sums(s, T, s.P(reduced={"x"})), s.put(np.stack([T, 2 * T]), None, "x")),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(2, SHARDS))
@pytest.mark.one_in(2)
def test_the_shards_are_the_summands(name):
    def seen(s):
        with s.jax.set_mesh(s.mesh):
            out = SHARDS[name](s)
            shards = [np.asarray(shard.data) for shard in out.addressable_shards]
            return text(out.sharding.spec), shards, np.asarray(s.jax.reshard(out, s.P()))

    (mine, got, total), (theirs, want, expected) = seen(OURS), seen(REAL)
    assert mine == theirs
    for a, b in zip((*got, total), (*want, expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def no_value(s):
    return sums(s, T, s.P(unreduced={"x"}))


@pytest.mark.parametrize("read", [np.asarray, lambda u: u.tolist(), lambda u: float(u.sum()), lambda u: list(u)[0].item()])
@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_a_pending_sum_has_no_value(s, read):
    with s.jax.set_mesh(s.mesh), pytest.raises(NotImplementedError, match="unreduced"):
        read(no_value(s))


def test_checks_of_results_look_at_the_summands():
    with OURS.jax.set_mesh(OURS.mesh), OURS.jax.debug_nans(True):
        doubled = OURS.jax.jit(lambda u: u + u)
        u = sums(OURS, T, OURS.P(unreduced={"x"}))
        np.testing.assert_allclose(np.asarray(OURS.jax.reshard(doubled(u), OURS.P())), 2 * T, rtol=1e-6)
        with pytest.raises(FloatingPointError, match="nan"):
            OURS.jax.jit(lambda u, r: u * r)(u, sums(OURS, T * np.nan, OURS.P(reduced={"x"})))
