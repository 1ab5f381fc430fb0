"""The option `mpijax_same_bits`: sums have the same bits in any order, and on any number of ranks."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from spmd.random_global import failures
from spmd.ranks import SIZE, P, mesh_1d, whole

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.core.base.config import enable_x64, same_bits
from mpijax.ops.same_bits import of_sum

many = pytest.mark.skipif(SIZE == 1, reason="compares with the program of one rank")
N = 24 * SIZE


def drawn(shape, dtype="float32", seed=0) -> np.ndarray:
    """Numbers over six decades; of float16, over three."""
    rng = np.random.default_rng([seed, *shape])
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = rng.normal(size=shape) * np.exp(3 * rng.normal(size=shape))
    x = np.clip(x, -20, 20) if dtype == "float16" else x
    return (x + 1j * rng.normal(size=shape)).astype(kind) if kind.kind == "c" else x.astype(kind)


def bits(x) -> bytes:
    return np.asarray(whole(x) if hasattr(x, "sharding") else x).tobytes()




# ---------------------------------------------------------------- in any order

# name: (function, shapes, which axis of each argument changes its order)
ANY_ORDER = {
    "sum": (jnp.sum, [(5001,)], [0]),
    "sum of rows": (lambda x: jnp.sum(x, 0), [(301, 7)], [0]),
    "mean": (jnp.mean, [(777,)], [0]),
    "variance": (lambda x: jnp.var(x, axis=1), [(3, 500)], [1]),
    "norm": (lambda x: jnp.linalg.norm(x), [(400,)], [0]),
    "dot": (jnp.dot, [(1000,), (1000,)], [0, 0]),
    "product": (jnp.matmul, [(9, 130), (130, 11)], [1, 0]),
    "large product": (jnp.matmul, [(80, 300), (300, 90)], [1, 0]),
    "batched product": (lambda x, y: jnp.einsum("bik,bkj->bij", x, y), [(3, 8, 50), (3, 50, 6)], [2, 1]),
    "floats by integers": (
        lambda x, y: lax.dot_general(x, (8 * y).astype(int), (((0,), (0,)), ((), ()))), [(900,), (900,)], [0, 0]
    ),
    "segments": (lambda x, y: jax.ops.segment_sum(x, (jnp.abs(y) > 1).astype(int), 2), [(600,), (600,)], [0, 0]),
    "last of a running sum": (lambda x: jnp.cumsum(x)[-1], [(300,)], [0]),
    "1x1 convolution": (lambda x, k: lax.conv(x[None, :, None], k[None, :, None], (1,), "VALID"), [(64,), (64,)], [0, 0]),
}  # fmt: skip


OF_REALS = ("segments", "floats by integers")


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64"])
@pytest.mark.parametrize("name", ANY_ORDER)
@pytest.mark.one_in(3)
def test_any_order(name, dtype):
    f, shapes, axes = ANY_ORDER[name]
    if dtype == "complex64" and name in OF_REALS:
        pytest.skip("an operation on real numbers")
    with enable_x64(dtype == "float64"), same_bits(True):
        args = [drawn(s, dtype, k) for k, s in enumerate(shapes)]
        jitted = jax.jit(f)
        got = jitted(*args)
        for seed in range(4):
            orders = [np.random.default_rng(seed).permutation(x.shape[d]) for x, d in zip(args, axes, strict=True)]
            again = jitted(*(np.take(x, o, d) for x, o, d in zip(args, orders, axes, strict=True)))
            assert bits(again) == bits(got)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
@pytest.mark.parametrize("name", ANY_ORDER)
@pytest.mark.one_in(3)
def test_as_exact_as_other_sums(name, dtype):
    if dtype == "complex64" and name in OF_REALS:
        pytest.skip("an operation on real numbers")
    f, shapes, _ = ANY_ORDER[name]
    args = [drawn(s, dtype, k) for k, s in enumerate(shapes)]
    with enable_x64(True):
        wide = [x.astype(np.complex128 if dtype == "complex64" else np.float64) for x in args]
        want = np.asarray(jax.jit(f)(*wide))
        with same_bits(True):
            got = jax.jit(f)(*args)
        scale = np.abs(jax.jit(f)(*map(np.abs, wide))).max()  # without cancellation
    eps = {"bfloat16": 2.0**-8, "float64": 2.0**-52}.get(dtype, 2.0**-23)
    assert got.dtype in (args[0].dtype, args[0].real.dtype)
    below = 2.0**-56 * shapes[0][-1] * math.prod(float(np.abs(x).max()) for x in wide)  # the last grids of a product
    assert np.abs(np.asarray(got).astype(want.dtype) - want).max() <= 8 * eps * scale + below


@pytest.mark.parametrize(
    "values",
    [[1, np.inf], [np.inf, -np.inf, 3], [np.nan, 1], [-np.inf, 3], [], [0.0, -0.0], [3e38, 3e38, -3e38], [1e-45, 1e-45]],
)
def test_special_values(values):
    x = np.array(values, np.float32)
    with same_bits(True):
        got = [np.asarray(f(x)) for f in (jnp.sum, lambda x: jnp.ones_like(x) @ x, lambda x: jnp.cumsum(x)[-1:])]
    with np.errstate(all="ignore"):
        want = np.float32(np.sum(np.float64(x))) if np.isfinite(x).all() else np.sum(x)
    if abs(want) < 1e-38:
        want = np.float32(0)
    for found in got:
        assert found.size == 0 or (np.array_equal(found.reshape(()), want, equal_nan=True))


def test_numbers_of_any_size():
    """Sums of numbers near the limits of float64."""
    with enable_x64(True), same_bits(True):
        assert jnp.sum(jnp.full(10, 1e307)) == 1e308
        assert jnp.sum(jnp.full(1000, 3e-308)) == pytest.approx(3e-305, rel=1e-15)
        x = jnp.array([1e200, 1.0, -1e200])
        assert jnp.sum(x) == 0 and bits(jnp.sum(x[::-1])) == bits(jnp.sum(x))  # what is 53 bits below is lost


def test_derivatives_and_loops():
    x, w = drawn((40, 6)), drawn((6, 3), seed=1)

    def loss(w, x):
        def step(c, row):
            return c + jnp.sum(jnp.tanh(row @ w) ** 2), None

        return lax.scan(step, jnp.float32(0), x.reshape(4, 10, 6))[0] / len(x)

    want = jax.value_and_grad(loss)(w, x)
    with same_bits(True):
        step = jax.jit(jax.value_and_grad(loss))
        got = step(w, x)
        order = np.concatenate([np.random.default_rng(k).permutation(10) + 10 * k for k in range(4)])
        again = step(w, x[order])
    for g, h, v in zip(*map(jax.tree.leaves, (got, again, want)), strict=True):
        np.testing.assert_allclose(g, v, rtol=1e-4, atol=1e-5)
        assert bits(g) == bits(h)


def test_integers_and_programs_without_sums_stay_as_they_are():
    for f in (lambda x: jnp.sum(x.astype(int)), jnp.sin, jnp.max, lambda x: x[::2] * 2):
        plain = jax.jit(f).lower(jnp.ones(8)).as_text()
        with same_bits(True):
            assert jax.jit(f).lower(jnp.ones(8)).as_text() == plain


PROGRAM = """
import numpy as np, mpijax as jax, mpijax.numpy as jnp
from spmd.test_same_bits import drawn
x = drawn((4001,))[::-1].copy()
print(np.asarray(jnp.sum(x)).tobytes().hex())
print(np.asarray(jax.jit(lambda x: jnp.outer(x, x)[:40].sum(0) @ x)(x[:90])).tobytes().hex())
"""


def test_eager_operations_the_environment_and_plans_on_disk(tmp_path):
    """A second process reads plans with float64 sums, although float64 is not enabled."""
    x = drawn((4001,))
    y = x[::-1][:90].copy()
    with same_bits(True):
        want = [bits(jnp.sum(x)).hex(), bits(jax.jit(lambda y: jnp.outer(y, y)[:40].sum(0) @ y)(y)).hex()]
    assert bits(jnp.sum(x[::-1].copy())) != bits(jnp.sum(x))  # other sums round otherwise
    paths = os.pathsep.join([os.path.dirname(os.path.dirname(__file__)), *sys.path])
    env = dict(os.environ, MPIJAX_SAME_BITS="1", PYTHONPATH=paths, MPIJAX_CACHE_DIR=str(tmp_path))
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", PROGRAM],
            env=env, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.stdout.split() == want, done.stderr
    assert list(tmp_path.rglob("*.plan"))


def test_sums_are_exact_up_to_the_last_grid():
    """The parts add up to the sum of what is not below the last grid."""
    x = drawn((1000,), "float64")
    with enable_x64(True):
        total = lambda v: jnp.sum(v)
        largest = lambda v: (jnp.broadcast_to(jnp.max(v), v.shape), jnp.max(v))
        got = float(of_sum(jnp.asarray(x), total, largest, 1000))
    assert got == pytest.approx(math.fsum(x), rel=0, abs=2.0**-52 * np.abs(x).max())


# ---------------------------------------------------------------- over ranks

OVER_RANKS = {
    "sum": (jnp.sum, [(N, 5)]),
    "sum of columns": (lambda x: jnp.sum(x, 0), [(N, 5)]),
    "sum of rows": (lambda x: jnp.sum(x, 1), [(N, 50)]),
    "mean and variance": (lambda x: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1), [(N, 5)]),
    "contracted": (lambda x, y: x.T @ y, [(N, 5), (N, 3)]),
    "rows of a product": (lambda x, y: x @ y.T, [(N, 70), (N, 70)]),
    "softmax": (lambda x: jax.nn.softmax(x, axis=0), [(N, 4)]),
    "running sum": (lambda x: jnp.cumsum(x, 0), [(N, 3)]),
    "running product": (lambda x: jnp.cumprod(1 + x / 1e4, 0), [(N, 3)]),
    "segments": (lambda x: jax.ops.segment_sum(x, jnp.arange(N) % 7, 7), [(N, 3)]),
    "convolution": (lambda x: lax.conv(x[None, None, :, 0], jnp.ones((2, 1, 5)), (1,), "SAME"), [(N, 2)]),
    "pooling": (lambda x: lax.reduce_window(x, 0.0, lax.add, (4, 1), (1, 1), "VALID"), [(N, 2)]),
    "gradient": (jax.grad(lambda x: jnp.mean(jnp.tanh(x @ x.T) ** 2)), [(N, 4)]),
    "QR": (lambda x: jnp.linalg.qr(x)[1], [(N, 3)]),
    "Cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + 1e6 * jnp.eye(N)), [(N, 4)]),
    "Fourier transform": (lambda x: jnp.fft.fft(x[:, 0]), [(N * SIZE, 1)]),
    "loop": (lambda x: lax.fori_loop(0, 5, lambda _, x: x - 0.1 * x.mean(0), x), [(N, 4)]),
}  # fmt: skip


@pytest.mark.mpi
@many
@pytest.mark.parametrize("name", OVER_RANKS)
def test_over_ranks(name):
    f, shapes = OVER_RANKS[name]
    args = [drawn(s, seed=k) for k, s in enumerate(shapes)]
    rows = NamedSharding(mesh_1d(), P("i"))
    with same_bits(True):
        want = bits(jax.jit(f)(*args))
        assert bits(jax.jit(f)(*(jax.device_put(x, rows) for x in args))) == want


@pytest.mark.mpi
@pytest.mark.parametrize(("first", "count"), [(0, 4), pytest.param(4, 36, marks=pytest.mark.slow)])
def test_random_programs(first, count):
    found = failures(range(first + 1000 * SIZE, first + count + 1000 * SIZE), bits=True)
    assert not found, "\n".join(found)


@pytest.mark.mpi
@pytest.mark.parametrize("tiled", [True, False])
def test_collectives_of_bodies(tiled):
    """`psum` and `psum_scatter` of the same addends in another order of ranks."""
    x = drawn((SIZE, SIZE, 6))

    def body(x):
        parts = lax.psum_scatter(x[0], "i", tiled=tiled)
        return lax.psum(x[0], "i"), parts if tiled else parts[None], lax.pmean(x[0], "i")

    def run(x):
        f = jax.shard_map(body, mesh=mesh_1d(), in_specs=P("i"), out_specs=(P(), P("i"), P()))
        return [whole(v) for v in jax.jit(f)(x)]

    with same_bits(True):
        got = run(x)
        again = run(x[np.random.default_rng(0).permutation(SIZE)])
    for g, a in zip(got, again, strict=True):
        assert g.tobytes() == a.tobytes()
    np.testing.assert_allclose(got[0], x.astype(np.float64).sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[1].reshape(SIZE, 6), got[0])
