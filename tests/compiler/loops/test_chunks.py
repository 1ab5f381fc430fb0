"""Large reductions in chunks: threads share them, and results have the same bits on any number of threads."""

import jax as real_jax
import numpy as np
import pytest
from thread_counts import THREADS, on_threads, threads

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.compiler.loops.chunks import FEWEST, GRAIN

LARGE = FEWEST * GRAIN


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def chunks_of(fun, *args):
    """How many kernels of a program go through chunks."""
    return jax.jit(fun).lower(*args).as_text().count("for chunk in")


SIZES = [LARGE, LARGE + 1, LARGE + 31, LARGE + 33, 1_000_003, 1 << 21]
SCALARS = {
    "sum": lambda n, x: n.sum(x),
    "max": lambda n, x: n.max(x),
    "min": lambda n, x: n.min(x),
    "prod": lambda n, x: n.prod(1 + x * n.float32(1e-3)),
    "mean": lambda n, x: n.mean(x),
    "mean of squares": lambda n, x: n.mean(x * x),
    "var": lambda n, x: n.var(x),
    "norm": lambda n, x: n.linalg.norm(x),
    "dot": lambda n, x: n.dot(x, x[::-1]),
    "logsumexp": lambda n, x: n.log(n.sum(n.exp(x - n.max(x)))) + n.max(x),
    "any": lambda n, x: n.any(x > 4),
    "all": lambda n, x: n.all(x < 9),
    "count": lambda n, x: n.sum(x > 0),
}


@pytest.mark.sweep
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.one_in(3)
def test_of_a_vector(name, size):
    x = normal(size)
    fun = SCALARS[name]
    assert chunks_of(lambda x: fun(jnp, x), x) > 0
    [found] = on_threads(lambda x: fun(jnp, x), x)
    exact = np.asarray(fun(np, x.astype(np.float64)))
    scale = {"sum": np.abs(x).sum(dtype=float), "mean": 1.0, "dot": np.abs(x * x[::-1]).sum(dtype=float)}.get(
        name, exact
    )
    np.testing.assert_allclose(found, exact, rtol=2e-4 if name == "prod" else 3e-6, atol=1e-6 * abs(scale))
    theirs = np.asarray(real_jax.jit(lambda x: fun(real_jax.numpy, x))(x))
    assert found.dtype == theirs.dtype
    np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=1e-5 * abs(scale))


def test_sums_are_more_exact_than_in_one_piece():
    errors = []
    for seed in range(4):
        x = (1 + normal(1 << 21, seed=seed) * 1e-3).astype(np.float32)
        exact = np.sum(x, dtype=float)
        [found] = on_threads(jnp.sum, x)
        in_one_piece = np.cumsum(x.reshape(-1, 32), 0, dtype=np.float32)[-1].sum()
        errors.append((abs(found - exact), abs(in_one_piece - exact)))
    ours, other = np.sum(errors, 0)
    assert ours < other / 2


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("at", [0, 5, GRAIN - 1, GRAIN, 3 * GRAIN + 7, LARGE + 40])
def test_first_of_equal_extremes(name, at):
    x = normal(LARGE + 41)
    value = 100 if name == "argmax" else -100
    x[at:] = np.where(np.random.default_rng(1).uniform(size=x[at:].shape) < 0.1, value, x[at:])
    x[at] = value
    [found] = on_threads(getattr(jnp, name), x)
    assert found == at == getattr(np, name)(x)


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min", "sum"])
@pytest.mark.parametrize("at", [3, 2 * GRAIN, LARGE + 2])
@pytest.mark.one_in(3)
def test_nan(name, at):
    x = normal(LARGE + 3)
    x[at] = np.nan
    [found] = on_threads(getattr(jnp, name), x)
    np.testing.assert_array_equal(found, getattr(np, name)(x))


@pytest.mark.parametrize("name", ["max", "min"])
def test_sign_of_zero(name):
    x = np.full(LARGE + 5, -0.0 if name == "max" else 0.0, np.float32)
    x[LARGE // 2] = -x[0]
    [found] = on_threads(getattr(jnp, name), x)
    assert np.signbit(found) == (name == "min")


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint32", "int64", "float16", "bfloat16", "float64", "complex64"])
@pytest.mark.one_in(3)
def test_types(dtype):
    x = np.random.default_rng(0).integers(-9, 10, LARGE + 7)
    with jax.enable_x64(True), real_jax.enable_x64(True):
        theirs = np.asarray(real_jax.numpy.sum(real_jax.numpy.asarray(x).astype(dtype)))
        [found] = on_threads(jnp.sum, jnp.asarray(x).astype(dtype))
    assert found.dtype == theirs.dtype
    whole = x.astype(dtype) if dtype in ("int8", "int32", "uint32", "int64") else x
    assert found == theirs == np.sum(whole).astype(theirs.dtype)


SHAPES = [(LARGE // 4, 5), (LARGE // 8, 8), (LARGE // 8 + 3, 64), (4096, 1024), (2048, 2048), (40_000, 33)]
COLUMNS = {
    "sum": lambda n, x: n.sum(x, 0),
    "max": lambda n, x: n.max(x, 0),
    "var": lambda n, x: n.var(x, 0),
    "argmax": lambda n, x: n.argmax(x, 0),
    "exp": lambda n, x: n.sum(n.exp(x), 0) + 1,
}


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.one_in(2)
def test_along_the_outer_axis(name, shape):
    x = normal(*shape)
    fun = COLUMNS[name]
    [found] = on_threads(lambda x: fun(jnp, x), x)
    exact = fun(np, x.astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6 * np.abs(x).sum(0).max())
    theirs = real_jax.jit(lambda x: fun(real_jax.numpy, x))(x)
    np.testing.assert_allclose(found, theirs, rtol=1e-4, atol=1e-5 * np.abs(x).sum(0).max())


def test_tall_arrays_are_in_chunks():
    x = normal(LARGE // 8, 8)
    assert chunks_of(lambda x: jnp.sum(x, 0), x) == 1
    assert chunks_of(lambda x: jnp.var(x, 0), x) == 2


def test_few_long_rows():
    x = normal(3, LARGE)
    assert chunks_of(lambda x: jnp.sum(x, 1), x) == 1
    [found] = on_threads(lambda x: jnp.sum(x, 1), x)
    np.testing.assert_allclose(found, x.sum(1, dtype=float), atol=1e-6 * LARGE)


@pytest.mark.parametrize("shape", [(LARGE - 1,), (64, 4096), (512, 512, 8)])
def test_what_needs_no_chunks_has_none(shape):
    x = normal(*shape)
    assert chunks_of(lambda x: jnp.sum(x, -1), x) == 0


@pytest.mark.parametrize(
    "fun",
    [
        lambda n, x: x / n.sum(x * x),
        lambda n, x: n.exp(x - n.max(x)) / n.sum(n.exp(x - n.max(x))),
        lambda n, x: (x - n.mean(x)) / n.sqrt(n.var(x) + 1),
        lambda n, x: (n.sum(x * x), n.max(x), n.cos(x)),
        lambda n, x: n.sum(n.concatenate([x[: LARGE // 2], 2 * x[5:], x[3:77]])),
        lambda n, x: n.sum(n.roll(x, 7) * x),
        lambda n, x: x[n.argmax(x) - n.argmax(x) // 2] + n.sum(x),
        lambda n, x: n.sum(x[::2, None] * x[None, :3]),
        lambda n, x: n.sum(x[: LARGE // 512 * 512].reshape(512, -1).T * x[: LARGE // 512 * 512].reshape(-1, 512)),
    ],
)
@pytest.mark.one_in(3)
def test_with_what_follows_and_feeds_them(fun):
    x = normal(LARGE + 77)
    found = on_threads(lambda x: fun(jnp, x), x)
    exact = fun(np, x.astype(np.float64))
    for a, b in zip(found, exact if isinstance(exact, tuple) else (exact,), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6 * max(1.0, np.abs(x).max()) * 100)


def test_gradient_of_a_large_mean():
    x = normal(LARGE + 3)

    def loss(x):
        return jnp.mean(jnp.tanh(x) ** 2) + jnp.max(x)

    found = on_threads(jax.value_and_grad(loss), x)
    t = np.tanh(x.astype(float))
    slope = 2 * t * (1 - t * t) / x.size
    slope[x.argmax()] += 1
    np.testing.assert_allclose(found[0], (t * t).mean() + x.max(), rtol=1e-6)
    np.testing.assert_allclose(found[1], slope, rtol=1e-4, atol=1e-10)


def test_inside_a_loop():
    x = normal(LARGE + 3)

    def turns(x):
        return jax.lax.fori_loop(0, 5, lambda i, y: y / (1 + jnp.sqrt(jnp.mean(y * y))), x)

    [found] = on_threads(turns, x)
    y = x.astype(float)
    for _ in range(5):
        y = y / (1 + np.sqrt((y * y).mean()))
    np.testing.assert_allclose(found, y, rtol=1e-5, atol=1e-9)


def test_a_donated_argument_may_be_overwritten():
    x = normal(LARGE + 9)
    for n in THREADS:
        with threads(n):
            found = jax.jit(lambda x: x / jnp.sum(x * x), donate_argnums=0)(jnp.array(x))
        np.testing.assert_allclose(found, x / (x.astype(float) ** 2).sum(), rtol=1e-5)


# ---- running reductions

RUNNING = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
# Along a vector, in lanes of it, in tiles of lanes, along few rows; the first is so long that stores go past the caches.
ROWS = [((LARGE * 32 + 3,), 0), ((LARGE + 1,), 0), ((50_001, 4), 0), ((3001, 120), 0), ((2, 100_003), 1)]


@pytest.mark.sweep
@pytest.mark.parametrize("reverse", (False, True))
@pytest.mark.parametrize("shape, axis", ROWS)
@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.one_in(3)
def test_running(name, shape, axis, reverse):
    x = normal(*shape)
    if name == "cumprod":
        x = 1 + x * np.float32(1e-3)
    fun = getattr(jax.lax, name)
    assert chunks_of(lambda x: fun(x, axis, reverse), x) == 2
    [found] = on_threads(lambda x: fun(x, axis, reverse), x)
    wanted = getattr(jax.lax, f"{name}_p").reference(x.astype(np.float64), axis=axis, reverse=reverse)
    scale = np.abs(x).sum(axis, dtype=float).max() if name == "cumsum" else 1.0
    np.testing.assert_allclose(found, wanted, rtol=3e-4 if name == "cumprod" else 1e-5, atol=1e-6 * scale)


def test_running_of_special_values():
    """NaN goes on into later chunks, and infinities do."""
    x = normal(LARGE * 2)
    x[LARGE // 3], x[LARGE // 2], x[LARGE] = np.inf, -np.inf, np.nan
    for name in ("cumsum", "cummax", "cummin"):
        fun = getattr(jax.lax, name)
        for reverse in (False, True):
            [found] = on_threads(lambda x, f=fun, r=reverse: f(x, 0, r), x)
            wanted = getattr(jax.lax, f"{name}_p").reference(x.astype(np.float64), axis=0, reverse=reverse)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, np.complex64])
@pytest.mark.one_in(2)
def test_running_of_other_types(dtype):
    x = (normal(LARGE + 5) * 50).astype(dtype)
    [found] = on_threads(lambda x: jnp.cumsum(x)[::-1], x)
    wanted = np.asarray(real_jax.jit(lambda x: real_jax.numpy.cumsum(x)[::-1])(x))
    assert found.dtype == wanted.dtype
    if np.dtype(dtype).kind in "iu":
        np.testing.assert_array_equal(found, wanted)
    else:
        exact = np.cumsum(x.astype(np.complex128 if dtype == np.complex64 else np.float64))[::-1]
        np.testing.assert_allclose(found, exact, rtol=2e-3, atol=0.1)


def test_running_minimum_of_positions():
    """Where the first hit is: a pass that looks for it may end early, and the running minimum must not."""
    x = normal(LARGE * 2)
    places = lambda n, x: n.where(x > 3, n.arange(x.size, dtype=np.int32), np.iinfo(np.int32).max)
    for reverse in (False, True):
        [found] = on_threads(lambda x, r=reverse: jax.lax.cummin(places(jnp, x), 0, r), x)
        plain = places(np, x)
        wanted = np.minimum.accumulate(plain[::-1])[::-1] if reverse else np.minimum.accumulate(plain)
        np.testing.assert_array_equal(found, wanted)


def test_running_in_a_gradient():
    x = normal(LARGE)
    [found] = on_threads(jax.grad(lambda x: jnp.sum(jnp.cumsum(x) * jnp.arange(LARGE) / LARGE)), x)
    wanted = (np.arange(LARGE) / LARGE)[::-1].cumsum()[::-1]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
