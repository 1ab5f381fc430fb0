"""`jax.experimental.pallas`: the same kernels as in JAX, which interprets them."""

import functools
import re
from types import ModuleType

import jax
import numpy as np
import pytest
from experimental.pallas_kernels import CASES, data, library, matmul, scaled
from quickly import one_in

import mpijax
import mpijax.numpy as jnp
from mpijax.experimental import checkify
from mpijax.experimental import pallas as pl
from mpijax.experimental.pallas import grid_map
from mpijax.experimental.pallas import tpu as pltpu
from mpijax.experimental.pallas import triton as plgpu
from mpijax.test_util import check_grads

OURS, THEIRS = library(mpijax), library(jax)


def agree(ours, theirs):
    assert str(mpijax.tree.structure(ours)) == str(jax.tree.structure(theirs))
    for a, b in zip(mpijax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        exact = np.dtype(a.dtype).kind in "iub"
        kind = a.dtype if exact else np.float64
        tolerance = 0 if exact else 2e-2 if a.dtype.itemsize < 4 else 2e-5
        np.testing.assert_allclose(np.asarray(a, kind), np.asarray(b, kind), rtol=tolerance, atol=tolerance)


@functools.cache
def of_jax(name):
    return CASES[name](THEIRS)


@pytest.mark.parametrize("name", one_in(2, CASES))
@pytest.mark.one_in(3)
def test_kernels_are_those_of_jax(name):
    agree(CASES[name](OURS), of_jax(name))


@pytest.mark.parametrize("name", one_in(2, CASES))
@pytest.mark.one_in(3)
def test_the_loop_over_the_grid_is_right_where_another_way_is_taken(name, monkeypatch):
    taken = []
    monkeypatch.setattr(grid_map, "run", lambda *args: taken.append(args))
    ours = CASES[name](OURS)
    if taken:
        agree(ours, of_jax(name))


def test_independent_elementwise_programs_are_one_loop_nest():
    def kernel(x, row, o):
        o[...] = jnp.tanh(x[...]) * row[...]

    spec = pl.BlockSpec((8, 16), lambda i, j: (i, j))
    f = pl.pallas_call(
        kernel, mpijax.ShapeDtypeStruct((64, 64), jnp.float32), grid=(8, 4),
        in_specs=[spec, pl.BlockSpec((1, 16), lambda i, j: (0, j))], out_specs=spec,
    )  # fmt: skip
    text = mpijax.jit(f).lower(jnp.ones((64, 64)), jnp.ones((1, 64))).compile().as_text()
    assert text.count("  kernel ") == 1 and "loop" not in text


def test_results_are_written_where_they_are():
    f = matmul(OURS)
    text = mpijax.jit(f).lower(jnp.ones((3, 4)), jnp.ones((4, 4))).compile().as_text()
    assert "loop" in text and "swap" not in text


# ---------------------------------------------------------------- derivatives, ranks


@pytest.mark.parametrize("make", [scaled, matmul])
def test_derivatives_of_both_modes(make):
    f = make(OURS)
    shapes = ((4, 3), (1, 3)) if make is scaled else ((3, 4), (4, 4))
    check_grads(f, [data(*s, seed=i) for i, s in enumerate(shapes)], order=2, rtol=2e-2, atol=2e-2)


def test_derivative_of_a_computed_grid():
    def f(x, n):
        return pl.pallas_call(lambda x, o: o.set(x[...] ** 2), mpijax.ShapeDtypeStruct((), jnp.float32), grid=(n,))(x)

    assert mpijax.jit(lambda x, n: mpijax.jvp(lambda x: f(x, n), (x,), (1.0,)))(3.0, 2) == (9, 6)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        mpijax.jit(mpijax.grad(f))(3.0, 2)


@pytest.mark.parametrize("check", [True, False])
def test_kernels_in_shard_map(check):
    def kernel(x, w, o):
        o[...] = mpijax.lax.fori_loop(0, 2, lambda i, c: c + x[i] * w[...], jnp.zeros(3))

    f = pl.pallas_call(kernel, mpijax.ShapeDtypeStruct((3,), jnp.float32))
    mesh = mpijax.make_mesh((1,), ("x",))
    mapped = mpijax.shard_map(
        f, mesh=mesh, in_specs=(mpijax.P("x"), mpijax.P()), out_specs=mpijax.P("x"), check_vma=check
    )
    x, w = data(2, 3), data(3, seed=1)
    np.testing.assert_allclose(mapped(x, w), f(x, w), rtol=1e-6)
    wanted = mpijax.grad(lambda x, w: f(x, w).sum(), (0, 1))(x, w)
    for a, b in zip(mpijax.grad(lambda x, w: mapped(x, w).sum(), (0, 1))(x, w), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# ---------------------------------------------------------------- what JAX cannot interpret


def test_parts_by_numbers_and_slices_together():
    def kernel(x, o):
        i = pl.program_id(0)
        o[1, pl.ds(i * 2, 2)] = x[pl.ds(i * 2, 2), 0]
        o[0, pl.ds(0, 2, 3)] = x[1, ::3][:2]

    out = pl.pallas_call(kernel, mpijax.ShapeDtypeStruct((2, 4), jnp.float32), grid=(2,))(data(4, 4))
    np.testing.assert_array_equal(out[1], data(4, 4)[:, 0])
    np.testing.assert_array_equal(out[0, ::3], data(4, 4)[1, ::3])


def test_atomics_of_bits_and_exchanges():
    def kernel(p, o):
        p[...] = jnp.full_like(p, 7)
        o[0] = plgpu.atomic_xchg(p, (0,), 1)
        o[1] = plgpu.atomic_or(p, (1,), 8)
        o[2] = plgpu.atomic_and(p, 2, 5)
        o[3] = plgpu.atomic_xor(p, (3,), 3, mask=jnp.bool_(False))
        plgpu.atomic_add(p, (jnp.array([4, 5, 4]),), jnp.array([1, 2, 3]), mask=jnp.array([True, True, False]))
        pl.atomic_add(p, (pl.ds(6, 4),), jnp.ones(4, jnp.int32), mask=jnp.arange(4) < 2)

    shapes = mpijax.ShapeDtypeStruct((7,), jnp.int32), mpijax.ShapeDtypeStruct((4,), jnp.int32)
    after, before = pl.pallas_call(kernel, shapes)()
    assert after.tolist() == [1, 15, 5, 7, 8, 9, 8] and before.tolist() == [7, 7, 7, 7]


def test_loads_and_stores_in_their_older_form():
    def kernel(x, o):
        here = pl.ds(pl.program_id(0) * 4, 4)
        mask = pl.program_id(0) * 4 + jnp.arange(4) < 6
        old = pl.swap(o, (here,), pl.load(x, (here,), mask=mask, other=0.0), mask=mask)
        pl.store(o, (here,), -pl.load(o, (here,)) + 0 * jnp.nan_to_num(old), mask=mask)

    out = pl.pallas_call(kernel, mpijax.ShapeDtypeStruct((6,), jnp.float32), grid=(2,))(data(6))
    np.testing.assert_array_equal(out, -data(6))


def test_swap_returns_the_given_values_where_its_mask_is_false():
    def kernel(x, o, before):
        o[...] = x[...]
        before[...] = pl.swap(o, (pl.ds(2, 4),), -x[pl.ds(0, 4)], mask=jnp.arange(4) % 2 == 0)

    shapes = mpijax.ShapeDtypeStruct((6,), jnp.float32), mpijax.ShapeDtypeStruct((4,), jnp.float32)
    after, before = pl.pallas_call(kernel, shapes)(jnp.arange(1.0, 7.0))
    assert after.tolist() == [1, 2, -1, 4, -3, 6] and before.tolist() == [3, -2, 5, -4]


def test_rolls_and_casts_of_tpus():
    x = data(3, 8)
    np.testing.assert_array_equal(pltpu.roll(x, 3, 1), np.roll(x, 3, 1))
    rolled = pltpu.roll(jnp.asarray(x), 1, 1, stride=2, stride_axis=0)
    np.testing.assert_array_equal(rolled, [np.roll(row, 1 + 2 * i) for i, row in enumerate(x)])
    np.testing.assert_array_equal(pltpu.bitcast(jnp.asarray(x), jnp.int32), x.view(np.int32))


def test_what_kernels_print(capfd):
    pl.pallas_call(
        lambda o: pl.debug_print("at {}", pl.program_id(0)), mpijax.ShapeDtypeStruct((), jnp.int32), grid=2
    )()
    mpijax.effects_barrier()
    assert capfd.readouterr().out == "at 0\nat 1\n"
    pl.pallas_call(lambda o: o.set(1), mpijax.ShapeDtypeStruct((), jnp.int32), debug=True, name="one")()
    assert "The kernel one:\n{ lambda" in capfd.readouterr().out


def test_checks_in_kernels():
    def kernel(x, o):
        pl.debug_check(x[0] > 0, "negative")
        o[...] = x[...]

    f = checkify.checkify(pl.pallas_call(kernel, mpijax.ShapeDtypeStruct((1,), jnp.float32)))
    assert f(-jnp.ones(1))[0].get() is None
    with pl.enable_debug_checks(True):
        f = checkify.checkify(pl.pallas_call(kernel, mpijax.ShapeDtypeStruct((1,), jnp.float32)))
        assert "negative" in f(-jnp.ones(1))[0].get() and f(jnp.ones(1))[0].get() is None


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "use",
    [
        lambda pl, jnp: [pl.cdiv(9, 2), pl.align_to(5, 4), pl.next_power_of_2(9), pl.next_power_of_2(0)],
        lambda pl, jnp: list(pl.strides_from_shape((2, 3, 4))),
        lambda pl, jnp: [pl.cdiv(jnp.int32(9), 2), pl.align_to(jnp.int32(9), 4)],
        lambda pl, jnp: pl.broadcast_to(jnp.ones(3), (2, 3)).shape,
        lambda pl, jnp: pl.empty_like({"a": jnp.ones(3)})["a"].shape,
    ],
)
def test_helpers(use):
    np.testing.assert_array_equal(use(OURS.pl, OURS.jnp), use(THEIRS.pl, THEIRS.jnp))


@pytest.mark.parametrize(
    "make",
    [
        lambda jnp: lambda a, b: jnp.sin(a @ b) ** 3 + 1,
        lambda jnp: lambda a, b: jnp.tanh(a).sum() * jnp.exp(b),
        lambda jnp: lambda a, b: -a + jnp.maximum(a, 2.0) / 3,
    ],
)
def test_costs(make):
    a, b = data(2, 4), data(4, 2)
    ours, theirs = (L.pl.estimate_cost(make(L.jnp), a, b) for L in (OURS, THEIRS))
    assert repr(ours) == repr(theirs)


# ---------------------------------------------------------------- errors


def plain(L):
    return lambda x, o: o.set(x[...])


def block(L, *args):
    return L.pl.BlockSpec((2,), *(args or (lambda i: (i,),)))


REFUSED = {
    "axis of the grid": lambda L, x: L.call(lambda x, o: o.set(x[...] * L.pl.program_id(2)), x, grid=(2,))(x),
    "a result of the kernel": lambda L, x: L.call(lambda x, o: 1, x)(x),
    "an array from outside": lambda L, x: L.call(lambda y, o: o.set(y[...] * x), x)(x),
    "rank of a block": lambda L, x: L.call(plain(L), x, grid=2, in_specs=[L.pl.BlockSpec((2, 2), lambda i: (i, 0))])(x),
    "number of indices": lambda L, x: L.call(plain(L), x, grid=2, in_specs=[block(L, lambda i: (i, 0))])(x),
    "arguments of an index map": lambda L, x: L.call(plain(L), x, grid=2, in_specs=[block(L, lambda i, j: i)])(x),
    "an index that is no integer": lambda L, x: L.call(plain(L), x, grid=2, in_specs=[block(L, lambda i: i * 1.5)])(x),
    "number of in_specs": lambda L, x: L.call(plain(L), x, grid=2, in_specs=[block(L), block(L)])(x),
    "structure of out_specs": lambda L, x: L.call(plain(L), x, grid=2, out_specs=[block(L)])(x),
    "in_specs that are no sequence": lambda L, x: L.call(plain(L), x, grid=2, in_specs=block(L))(x),
    "grid and grid_spec": lambda L, x: L.call(plain(L), x, grid=(2,), grid_spec=L.pl.GridSpec(grid=(2,)))(x),
    "in_specs and grid_spec": lambda L, x: L.call(plain(L), x, in_specs=[], grid_spec=L.pl.GridSpec(grid=(2,)))(x),
    "number of an aliased operand": lambda L, x: L.call(plain(L), x, input_output_aliases={1: 0})(x),
    "number of an aliased result": lambda L, x: L.call(plain(L), x, input_output_aliases={0: 1})(x),
    "type of an aliased result": lambda L, x: L.call(lambda x, o: None, L.shape(3), input_output_aliases={0: 0})(x),
    "a grid that is no integer": lambda L, x: L.call(plain(L), x, grid=(2.5,))(x),
    "an out_shape without shape": lambda L, x: L.call(plain(L), 3)(x),
    "shape of what is written": lambda L, x: L.call(lambda x, o: o.set(x[0]), x)(x),
    "dtype of what is written": lambda L, x: L.call(lambda x, o: o.set(x[...].astype("int32")), x)(x),
    "arguments of the kernel": lambda L, x: L.call(lambda x: None, x)(x),
    "arguments by name": lambda L, x: L.call(plain(L), x)(x=x),
    "a negative power of two": lambda L, x: L.pl.next_power_of_2(-1),
    "a cost that is no integer": lambda L, x: L.pl.CostEstimate(1.5, 0, 0),
    "a negative roll": lambda L, x: L.pltpu.roll(x, -1, 0),
    "a block dimension": lambda L, x: L.call(plain(L), x, grid=2, in_specs=[L.pl.BlockSpec(("a",), lambda i: i)])(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_those_of_jax(name):
    found = []
    for L in (OURS, THEIRS):
        with pytest.raises(Exception) as error:
            REFUSED[name](L, L.jnp.arange(4.0))
        found.append((error.type.__name__, re.sub(r"[`'\"]", "", str(error.value)).split(" at ")[0].split("(")[0][:40]))
    (ours, text), (theirs, same) = found
    assert ours == theirs
    if theirs == "ValueError":
        assert text[:20] == same[:20]


@pytest.mark.parametrize(
    "use, text",
    [
        (lambda: pl.program_id(0), "may only be called in the kernel or an index map of a pallas_call"),
        (lambda: pl.num_programs(0), "may only be called in the kernel or an index map of a pallas_call"),
        (lambda: mpijax.jit(_with_computed_grid)(2), "Pass the size to the index map as a scalar"),
        (lambda: pl.GridSpec(grid=(("a", 2), 3)), "Grid must be a tuple of integers"),
        (lambda: pl.core_map(None), "does not have pallas.core_map yet"),
        (lambda: pl.kernel(None), "use pallas_call"),
        (lambda: pl.select_ref(0), "read each reference"),
        (lambda: pl.get_global(None), "scratch_shapes"),
        (lambda: pl.lower_as_mlir(None), "as_text"),
        (lambda: pltpu.make_async_remote_copy(), "jax.lax.ppermute"),
        (lambda: pltpu.prng_seed(0), "pass random numbers of jax.random"),
        (lambda: pltpu.emit_pipeline(None), "add an axis to the grid"),
        (lambda: plgpu.elementwise_inline_asm("x"), "write the operation in jax.numpy"),
        (lambda: pl.semaphore_signal(None, device_id=1), "outside of the kernel"),
        (lambda: pl.run_scoped(lambda x: None, pl.ANY((1,), jnp.int32), collective_axes="x"), "buffers that cores share"),
        (lambda: pl.run_scoped(lambda x: None, jnp.ones(1)), "expected a buffer such as"),
        (lambda: pltpu.bitcast(jnp.ones(2), jnp.int8), "only dtypes of the same size"),
        (lambda: plgpu.dot(jnp.ones(2), jnp.ones(2)), "must be 2D arrays"),
        (lambda: _with_block(pl.BoundedSlice(2)), "Use an int or pl.Element"),
        (lambda: _with_block(pl.Indirect(2)), "Use an int or pl.Element"),
        (lambda: pl.load(mpijax.new_ref(jnp.ones((2, 2))), (jnp.arange(2), pl.ds(1, 2))), "arrays for all axes"),
        (lambda: pl.pallas_export_experimental(True).__enter__(), "does not support symbolic sizes"),
        (lambda: _with_block(None), r"`in_specs` and `inputs` do not match. There are 1 mismatches, .*:\n  \* at the top"),
        (lambda: pl.empty_ref_like(3), "does not support"),
        (lambda: pl.atomic_cas(mpijax.new_ref(jnp.ones(2)), 1, 2), "ref must be scalar"),
    ],
)
def test_errors(use, text):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=text):
        use()


def _with_computed_grid(n):
    spec = pl.BlockSpec((2,), lambda i: (pl.num_programs(0) - 1 - i,))
    return pl.pallas_call(plain(OURS), jnp.ones(4), grid=(n,), in_specs=[spec])(jnp.ones(4))


def _with_block(dim):
    """A call with a block of this size; without, one with a spec too many."""
    if dim is None:
        return pl.pallas_call(plain(OURS), jnp.ones(4), in_specs=[pl.BlockSpec((4,), lambda: 0)] * 2)(jnp.ones(4))
    return pl.pallas_call(plain(OURS), jnp.ones(4), grid=2, in_specs=[pl.BlockSpec((dim,), lambda i: i)])(jnp.ones(4))


def test_names_of_jax_are_there():
    for ours, theirs in ((pl, THEIRS.pl), (pltpu, THEIRS.pltpu), (plgpu, THEIRS.plgpu)):
        # Modules of the package are among its names if something has imported them.
        names = [n for n, value in vars(theirs).items() if not n.startswith("_") and not isinstance(value, ModuleType)]
        missing = [n for n in names if not hasattr(ours, n)]
        assert missing == (["pallas_call_p"] if ours is pl else [])
