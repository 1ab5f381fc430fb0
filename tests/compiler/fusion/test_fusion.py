"""How many steps programs become, how much memory they need in between, and which loops they run."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.compiler.loops import strided
from mpijax.compiler.loops.scheduling import scheduled
from mpijax.compiler.steps.instructions import Copy, GemmCall, KernelCall, Temp
from mpijax.compiler.steps.planner import plan_program
from mpijax.runtime.program import code


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def plan(fun, *args, donated=()):
    return plan_program(mpijax.make_jaxpr(fun)(*args), donated)


def count(p, kind) -> int:
    return sum(isinstance(s, kind) for s in p.instructions)


def layer_norm(x):
    m = jnp.mean(x, axis=-1, keepdims=True)
    return (x - m) / jnp.sqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)


def adam(p, m, v, g):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


def chain(x):
    return jnp.tanh(jnp.exp(x * 2 + 1) - x) * x


X = floats(65, 200)
FUSED = {
    "softmax": (lambda x: mpijax.nn.softmax(x, axis=-1), (X,)),
    "log_softmax": (lambda x: mpijax.nn.log_softmax(x, axis=-1), (X,)),
    "logsumexp": (lambda x: mpijax.nn.logsumexp(x, axis=-1), (X,)),
    "layer_norm": (layer_norm, (X,)),
    "adam": (adam, (X, X, X, X)),
    "chain": (chain, (X,)),
    "argmax": (lambda x: jnp.argmax(x, axis=-1), (X,)),
    "sum_0": (lambda x: jnp.sum(x, axis=0), (X,)),
    "sum_1": (lambda x: jnp.sum(x * x, axis=1), (X,)),
    "two_reductions": (lambda x: (jnp.sum(x, axis=1), jnp.max(x, axis=1)), (X,)),
    "transpose_add": (lambda x, y: x.T + y, (floats(64, 96), floats(96, 64))),
}


def test_a_product_of_no_sum_beside_a_sum_of_its_frame():
    x, y = floats(2, 3), floats(2, 4)

    def f(x, y):
        outer = jnp.einsum("ki,kj->kij", x, y)
        return outer, jnp.sum(jnp.sin(x)[:, :, None] * y[:, None, :], axis=2)

    outer, total = mpijax.jit(f)(x, y)
    np.testing.assert_array_equal(outer, x[:, :, None] * y[:, None, :])
    np.testing.assert_allclose(total, np.sin(x) * y.sum(1)[:, None], rtol=1e-5)


@pytest.mark.parametrize("name", FUSED)
def test_one_kernel_without_temporaries(name):
    fun, args = FUSED[name]
    p = plan(fun, *args)
    assert count(p, KernelCall) == len(p.instructions) == 1, p.text()
    assert p.arena == 0, p.text()


def strategy(fun, *args) -> str:
    [nest] = plan(fun, *args).nests
    return scheduled(nest).strategy


def test_expensive_values_are_computed_before_they_are_repeated():
    x, w = floats(64, 65), floats(64)
    for fun in (
        lambda x, w: x * jnp.exp(w)[:, None],
        lambda x, w: x.T * jnp.exp(w)[None],
        lambda x, w: jnp.sum(x * jnp.exp(w)[:, None], axis=0),
        lambda x, w: x.T @ jnp.exp(w),
    ):
        text = mpijax.jit(fun).lower(x, w).as_text()
        first, second = text.split("kernel ")[1:]
        assert "exp(" in first and "0..65" not in first, text
        assert "exp(" not in second and "0..65" in second, text
    # The repetitions of a few elements cost less than another loop.
    assert count(plan(lambda x, w: x[:8, :8] * jnp.exp(w[:8]), x, w), KernelCall) == 1


def test_short_rows_are_joined():
    for fun in (lambda x: x * 2, lambda x: x - jnp.roll(x, 1, 0)):
        [nest] = plan(fun, floats(1000, 3)).nests
        assert len(scheduled(nest).loops) == 1


def test_strategies():
    assert strategy(FUSED["transpose_add"][0], *FUSED["transpose_add"][1]) == "blocked"
    assert strategy(lambda x: x.transpose(0, 2, 3, 1) * 2, floats(3, 40, 9, 4)) == "blocked"  # two short loops are long
    assert strategy(lambda x: x.transpose(0, 2, 1) * 2, floats(3, 40, 4)) == "across"
    assert strategy(lambda x: jnp.sum(x, axis=1), floats(65, 2000)) == "along"
    assert strategy(lambda x: jnp.sum(x, axis=1), X) == "rows"
    assert strategy(lambda x: jnp.sum(x, axis=0), floats(300, 65)) == "tiled"
    assert strategy(lambda x: jnp.sum(x, axis=0), floats(9, 65)) == "across"


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (2, 3, 1, 0), (2, 3, 0, 1), (1, 2, 3, 0)])
def test_tiles_along_joined_loops(order):
    for x in (floats(3, 40, 9, 4), floats(17, 20, 7, 5), floats(16, 16, 4, 4)):
        np.testing.assert_array_equal(mpijax.jit(lambda x: x.transpose(order) * 2)(x), x.transpose(order) * 2)
        y = mpijax.jit(lambda x: x[:, :, ::-1, ::-1].transpose(order) * 2)(x)
        np.testing.assert_array_equal(y, x[:, :, ::-1, ::-1].transpose(order) * 2)


def test_what_is_a_column_s_alone_is_computed_once_a_column():
    def normalized(x):
        return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5)

    x = floats(300, 1100)  # more columns than a tile has
    assert strategy(normalized, x) == "tiled"
    loops = mpijax.jit(normalized).lower(x).as_text("llvm").split("br i1")
    assert any("@llvm.sqrt" in loop for loop in loops)
    assert not any("call" in loop and "@llvm.sqrt" in loop and " fsub " in loop for loop in loops)
    np.testing.assert_allclose(mpijax.jit(normalized)(x), (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), atol=1e-5)


def test_short_rows_are_reduced_side_by_side_and_long_ones_along():
    assert strategy(lambda x: x.max(-1), floats(400, 10)) == "across"
    assert strategy(lambda x: x.max(-1), floats(400, 32)) == "rows"
    assert strategy(lambda x: x.max(-1), floats(400, 800)) == "along"
    assert strategy(lambda x: x.argmax(-1), floats(400, 32)) == "across"
    assert strategy(lambda x: x.argmax(-1), floats(400, 80)) == "along"


def test_rows_that_begin_where_an_index_says_are_read_along():
    """Across them each lane would read somewhere else."""
    at = np.arange(100, dtype=np.int32)
    windows = mpijax.vmap(lambda x, k: lax.dynamic_slice(x, (k, k), (32, 32)).sum(), in_axes=(None, 0))
    assert strategy(windows, floats(512, 512), at) == "along"
    assert strategy(lambda x, i: x[i].sum(1), floats(512, 200), at) in ("along", "rows")


def test_mlp_gradient_is_products_and_few_kernels():
    def loss(w1, w2, x, y):
        return jnp.mean((jnp.tanh(x @ w1) @ w2 - y) ** 2)

    p = plan(
        mpijax.grad(loss, argnums=(0, 1)), floats(64, 96), floats(96, 40), floats(65, 64), floats(65, 40)
    )
    assert count(p, GemmCall) == 5 and count(p, Copy) == 0, p.text()
    assert count(p, KernelCall) <= 3, p.text()


def interior(x, y):
    return x.at[1:-1, 1:-1].set(y)


@pytest.fixture
def all_by_llvm(monkeypatch):
    """Kernels that only move elements are compiled too, so that their extent says what they write."""
    monkeypatch.setattr(strided, "MOST_MOVES", 0)


def test_update_of_a_temporary_is_in_place():
    p = plan(lambda x, y: interior(x * 2, y), X, floats(63, 198))
    assert count(p, Copy) == 0 and len(p.instructions) == 1 and p.arena == 0, p.text()


def test_update_of_a_temporary_with_memory_writes_the_window_only(all_by_llvm):
    p = plan(lambda x, y: interior(jnp.cumsum(x, axis=0), y), X, floats(63, 198))
    assert count(p, Copy) == 0 and p.arena == 0, p.text()
    assert p.instructions[-1].extent == 63, p.text()


def test_update_after_the_last_other_read_writes_the_window_only(all_by_llvm):
    def fun(x, y):
        t = jnp.cumsum(x, axis=0)
        return jnp.sum(t), jnp.max(jnp.sin(t[1:])), interior(t, y)

    p = plan(fun, X, floats(63, 198))
    assert count(p, Copy) == 0 and p.arena <= 64, p.text()
    assert p.instructions[-1].extent == 63, p.text()


def test_update_of_an_argument_is_one_pass_and_of_a_donated_one_writes_the_window_only(all_by_llvm):
    y = floats(63, 198)
    p = plan(interior, X, y)
    assert count(p, KernelCall) == len(p.instructions) == 1 and p.instructions[0].extent == 65, p.text()
    p = plan(interior, X, y, donated=(True, False))
    assert len(p.instructions) == 1 and p.instructions[0].extent == 63 and p.memory()["alias"] == X.nbytes, p.text()


def test_update_of_a_value_that_is_read_later_is_part_of_that_pass():
    p = plan(lambda x, y: (lambda t: interior(t, y) + t)(jnp.sin(x)), X, floats(63, 198))
    assert count(p, KernelCall) == len(p.instructions) == 1 and p.arena == 0, p.text()


def updated(x):
    return x.at[3].set(1.0).at[:, 2].add(2.0).at[5, 5].multiply(3.0)


def test_updates_of_a_donated_argument_are_in_place():
    p = plan(updated, X, donated=(True,))
    assert len(p.instructions) == count(p, KernelCall) == 3 and p.memory()["alias"] == X.nbytes, p.text()
    want = np.asarray(mpijax.jit(updated)(X))
    got = mpijax.jit(updated, donate_argnums=0)(jnp.array(X, copy=True))
    np.testing.assert_array_equal(np.asarray(got), want)


def test_updates_of_a_carry_are_in_place():
    p = plan(lambda x: lax.fori_loop(0, 3, lambda _, x: updated(x), x), X)
    assert count(p, Copy) == 0 and p.arena < X.nbytes, p.text()
    want = updated(updated(updated(jnp.asarray(X))))
    got = mpijax.jit(lambda x: lax.fori_loop(0, 3, lambda _, x: updated(x), x))(X)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_update_at_a_run_time_index_copies_an_argument():
    p = plan(lambda x, y, i: x.at[i].set(y), X, floats(200), np.int32(3))
    assert count(p, Copy) == 1, p.text()


def test_reshaped_result_shares_memory():
    p = plan(lambda x: (lambda t: t.reshape(200, 65))(jnp.cumsum(x, axis=0) @ x.T @ x), X)
    assert count(p, Copy) == 0, p.text()


@pytest.mark.parametrize("name", sorted(set(FUSED) - {"transpose_add"}))
@pytest.mark.one_in(3)
def test_kernels_serve_other_sizes(name):
    """A second batch size needs no new machine code."""
    fun, args = FUSED[name]
    f = mpijax.jit(fun)
    f(*(jnp.asarray(a.repeat(2, axis=0)) for a in args))
    gc.collect()  # machine code goes with the programs that have it
    known = set(code._kernels)
    f(*(jnp.asarray(a.repeat(3, axis=0)) for a in args))
    assert set(code._kernels) <= known


def test_dead_work_is_dropped_and_equal_work_shared():
    p = plan(lambda x: (jnp.sin(x), x * 3, jnp.sin(x))[0:3:2], X)
    assert [type(s).__name__ for s in p.instructions] == ["KernelCall", "Copy"], p.text()


def test_gradient_of_relu_keeps_its_result_only():
    w = floats(65, 65)
    p = plan(mpijax.grad(lambda x: jnp.sum(mpijax.nn.relu(x @ w) ** 2)), floats(65, 65))
    x = floats(65, 65)
    expected = 2 * np.maximum(x @ w, 0) @ w.T
    np.testing.assert_allclose(mpijax.grad(lambda x: jnp.sum(mpijax.nn.relu(x @ w) ** 2))(x), expected, rtol=1e-4)
    assert p.arena <= 2 * 65 * 65 * 4 + 128


def test_what_is_reduced_too_may_be_overwritten():
    def f(x):
        y = jnp.sin(x) @ x
        z = y * 2
        return jnp.sum(z, axis=0), z @ x

    x = floats(200, 200)
    p = plan(f, x)
    assert p.arena <= 2 * 200 * 200 * 4 + 128
    z = np.sin(x) @ x * 2
    for got, wanted in zip(mpijax.jit(f)(x), (z.sum(0), z @ x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=1e-2)


def test_large_values_begin_at_different_places_of_a_page():
    """Loads that meet stores at the same low bits of an address wait for them."""

    def f(u):
        a = jnp.cumsum(u, 0)
        b = jnp.cumsum(a + 1, 1)
        return lax.sort(a) + lax.sort(b) + a[::-1]

    p = plan(f, floats(512, 512))
    large = [b.offset for b in p.buffers if isinstance(b, Temp) and b.nbytes >= 1 << 20]
    assert len(large) >= 2 and all(a % 4096 != b % 4096 for i, a in enumerate(large) for b in large[:i] if a != b)


def test_a_slice_keeps_no_larger_array_in_memory():
    """Each sorted array is read in full by the next sort, and in part by the result."""

    def f(x):
        rows = []
        for _ in range(12):
            x = lax.sort(-x, dimension=1)
            rows.append(x[:2] + 1)
        return jnp.concatenate(rows)

    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    program = mpijax.jit(f).lower(x).compile()
    assert program.memory_analysis().temp_size_in_bytes < 4 * x.nbytes
    rows = np.sort(-x[:2], 1)
    np.testing.assert_array_equal(program(x), np.concatenate([rows + 1, np.sort(-rows, 1) + 1] * 6))
