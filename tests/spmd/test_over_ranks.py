"""Sorts, largest elements and Fourier transforms along split axes: results, and what is sent for them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from spmd.ranks import SIZE, P, mesh_1d, mesh_2d, whole

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi
many = pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")

N = 12 * SIZE
S, C = P("i"), P(None, "i")


def split(x, spec=S, mesh=None):
    return jax.device_put(x, NamedSharding(mesh or mesh_1d(), spec))


def leaves(out):
    return [whole(v) for v in jax.tree.leaves(out)]


def bytes_of(f, *xs):
    return sum(s.total for s in sent(jax.jit(f).lower(*xs).compiler_ir()))


def kinds_of(f, *xs):
    return {s.kind for s in sent(jax.jit(f).lower(*xs).compiler_ir())}


# ---------------------------------------------------------------- sort


def drawn(dtype: str, n: int = N, seed: int = 0) -> np.ndarray:
    """Numbers with many ties, the extremes of their dtype, and all that a float may be."""
    rng, kind = np.random.default_rng([seed, n]), np.dtype(getattr(ml_dtypes, dtype, dtype))
    if kind == np.bool_:
        return rng.integers(0, 2, n).astype(bool)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.choice(np.array([limits.min, limits.max, 1, 2, 3], kind), n)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.5, -2.5, 1e-4, 7], np.float32)
    x = rng.choice(special, n)
    if kind.kind == "c":
        return np.stack([x, rng.choice(special, n)], 1).view(kind)[:, 0]
    return x.astype(kind)


def same_bits(a, b) -> bool:
    """Equal, NaN and the signs of zeros included."""
    a, b = (np.asarray(v, np.float32) if v.dtype.kind == "V" or v.dtype.itemsize < 4 else v for v in (a, b))
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") and np.array_equal(np.signbit(a.real), np.signbit(b.real))


@pytest.mark.parametrize("cut_off", [0, 5], ids=["even", "uneven"])
@pytest.mark.parametrize(
    "dtype", ["float32", "int32", "uint32", "int8", "uint8", "bool", "float16", "bfloat16", "complex64"]
)
@pytest.mark.one_in(3)
def test_positions_that_sort(dtype, cut_off):
    x = drawn(dtype)
    [found] = leaves(jax.jit(lambda x: jnp.argsort(x[cut_off:]))(split(x)))
    part = x[cut_off:]
    if dtype == "bfloat16":
        part = part.astype(np.float32)
    if part.dtype.kind == "c":  # NumPy orders numbers with NaN in one part otherwise
        keys = [np.where(v == 0, 0, v) for v in (part.imag, part.real)]
        np.testing.assert_array_equal(found, np.lexsort(keys))
    else:
        np.testing.assert_array_equal(found, np.argsort(part, kind="stable"))


def test_numbers_of_double_precision():
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        for x in (rng.normal(size=N), rng.integers(-(2**62), 2**62, N), rng.integers(0, 2**63, N).astype(np.uint64)):
            [found] = leaves(jax.jit(jnp.sort)(split(x)))
            np.testing.assert_array_equal(found, np.sort(x))


@pytest.mark.parametrize("num_keys", [1, 2])
def test_keys_with_values(num_keys):
    rng = np.random.default_rng(2)
    k, x, y = rng.integers(0, 4, N).astype(np.int32), drawn("float32"), np.arange(N, dtype=np.float16)
    out = leaves(jax.jit(lambda *xs: lax.sort(xs, num_keys=num_keys))(split(k), split(x), split(y)))
    order = np.lexsort([np.where(x == 0, 0, x), k] if num_keys == 2 else [k])
    for found, v in zip(out, (k, x, y), strict=True):
        assert same_bits(found, v[order])


SHAPES = {
    "lines for all": (N, 8 * SIZE), "lines that do not divide": (N, SIZE + 1), "few lines": (N, 2),
    "lines of one element": (SIZE, 3), "nothing": (N, 0), "fewer elements than ranks": (1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_lines(name):
    shape = SHAPES[name]
    x = np.random.default_rng(3).integers(0, 5, shape).astype(np.int32)
    spec = S if shape[0] % SIZE == 0 else P()
    [found] = leaves(jax.jit(lambda x: jnp.argsort(x, axis=0))(split(x, spec)))
    np.testing.assert_array_equal(found, np.argsort(x, axis=0, kind="stable"))


def test_few_elements_of_a_split_array():
    x = np.random.default_rng(4).normal(size=N).astype(np.float32)
    [found] = leaves(jax.jit(lambda x: jnp.sort(x[N - 3 :]))(split(x)))
    np.testing.assert_array_equal(found, np.sort(x[N - 3 :]))


@pytest.mark.parametrize("lines", [(2,), (3, 3)])
def test_fewer_lines_than_ranks(lines):
    """Few of them are sorted one by one, more in a loop."""
    x = np.random.default_rng(SIZE).normal(size=(N, *lines)).astype(np.float32)
    spec = P(None, "i") if SIZE == 2 and len(lines) == 1 else S
    values, order = jax.jit(lambda x: (jnp.sort(x, 0), jnp.argsort(x, 0)))(split(x, spec))
    np.testing.assert_array_equal(whole(values), np.sort(x, 0))
    np.testing.assert_array_equal(whole(order), np.argsort(x, 0))


def test_sorts_within_programs():
    x = np.random.default_rng(5).normal(size=(N, 2)).astype(np.float32)
    turns = jax.jit(lambda x: lax.fori_loop(0, 3, lambda k, x: jnp.sort(x)[::-1] * -1 + k, x))
    expected = x[:, 0]
    for k in range(3):
        expected = np.sort(expected)[::-1] * -1 + np.float32(k)
    np.testing.assert_array_equal(leaves(turns(split(x[:, 0])))[0], expected)
    [found] = leaves(jax.jit(jax.vmap(jnp.sort, in_axes=1, out_axes=1))(split(x)))
    np.testing.assert_array_equal(found, np.sort(x, axis=0))
    half = np.median(x[:, 0])
    assert leaves(jax.jit(jnp.median)(split(x[:, 0])))[0] == half


def test_gradient_of_a_sort():
    rng = np.random.default_rng(6)
    x, w = rng.normal(size=(2, N)).astype(np.float32)
    [found] = leaves(jax.jit(jax.grad(lambda x, w: (jnp.sort(x) * w).sum()))(split(x), split(w)))
    expected = np.empty_like(x)
    expected[np.argsort(x)] = w
    np.testing.assert_array_equal(found, expected)


def test_sorts_over_two_mesh_axes():
    if SIZE != 4:
        pytest.skip("a mesh of 2 x 2 ranks")
    mesh, rng = mesh_2d((2, 2)), np.random.default_rng(7)
    for shape, spec in (((16, 16), P("i", "j")), ((2, 16), P("i", "j")), ((1, 16), P(None, ("j", "i")))):
        x = rng.integers(0, 5, shape).astype(np.int32)
        [found] = leaves(jax.jit(lambda x: jnp.argsort(x, axis=1))(split(x, spec, mesh)))
        np.testing.assert_array_equal(found, np.argsort(x, axis=1, kind="stable"))


@many
def test_what_a_sort_sends():
    n = max(4096, 512 * SIZE) * SIZE  # with fewer, the counts of digits are more than a quarter
    x = split(np.zeros(n, np.float32))
    part, others = 4 * n // SIZE, (SIZE - 1) / SIZE
    assert bytes_of(jnp.sort, x) < 1.25 * part * others
    assert bytes_of(jnp.argsort, x) < 1.25 * 2 * part * others
    if SIZE <= 4:
        few = split(np.zeros(4096 // SIZE * SIZE, np.float32))
        assert bytes_of(jnp.sort, few) < 1.25 * few.nbytes / SIZE * others
    columns = split(np.zeros((8 * SIZE, 8 * SIZE), np.float32))
    assert bytes_of(lambda x: jnp.sort(x, axis=0), columns) == pytest.approx(4 * 8 * SIZE * 8 * others)


# ---------------------------------------------------------------- top_k


@pytest.mark.parametrize("cut_off", [0, 5])
@pytest.mark.parametrize("k", [0, 1, 3, 7, N // 2])
@pytest.mark.one_in(3)
def test_largest_elements(k, cut_off):
    for x in (drawn("int32"), drawn("uint8"), np.random.default_rng(8).normal(size=N).astype(np.float32)):
        k = min(k, N - cut_off)
        values, at = leaves(jax.jit(lambda x: lax.top_k(x[cut_off:], k))(split(x)))  # noqa: B023
        part = x[cut_off:].astype(np.float64)
        expected = np.argsort(-part, kind="stable")[:k]
        np.testing.assert_array_equal(at, expected)
        np.testing.assert_array_equal(values, x[cut_off:][expected])


def test_largest_elements_of_columns():
    x = np.random.default_rng(9).integers(0, 9, (N, 3)).astype(np.int32)
    for k in (1, N - 1):
        _, at = leaves(jax.jit(lambda x: lax.top_k(x, k, axis=0))(split(x)))  # noqa: B023
        np.testing.assert_array_equal(at, np.argsort(-x, axis=0, kind="stable")[:k])
    _, at = leaves(jax.jit(lambda x: lax.top_k(x, 2))(split(x)))
    np.testing.assert_array_equal(at, np.argsort(-x, axis=1, kind="stable")[:, :2])


@many
def test_what_the_largest_elements_send():
    x = split(np.zeros(1024 * SIZE, np.float32))
    assert bytes_of(lambda x: lax.top_k(x, 8), x) == 2 * 8 * 4 * (SIZE - 1)


# ---------------------------------------------------------------- searchsorted


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_sorted_rows(side):
    rng = np.random.default_rng(11)
    rows, values = np.sort(rng.integers(0, 9, N)).astype(np.float32), rng.integers(-1, 11, 2 * N).astype(np.float32)
    rows[-1] = np.nan
    f = jax.jit(lambda rows, values: jnp.searchsorted(rows[1:], values, side=side))
    for specs in ((S, P()), (P(), S), (S, S)):
        for few in (values, values[: 4 * SIZE]):
            [found] = leaves(f(split(rows, specs[0]), split(few, specs[1])))
            np.testing.assert_array_equal(found, np.searchsorted(rows[1:], few, side))
    many_rows = np.stack([rows, rows - 3], 1)
    g = jax.jit(jax.vmap(lambda r, v: jnp.searchsorted(r, v, side=side), in_axes=(1, None)))
    expected = [np.searchsorted(r, values, side) for r in many_rows.T]
    np.testing.assert_array_equal(leaves(g(split(many_rows), split(values)))[0], expected)


@many
def test_what_places_in_sorted_rows_send():
    rows, values = np.zeros(64 * SIZE, np.float32), np.zeros(4 * SIZE, np.float32)
    assert bytes_of(jnp.searchsorted, split(rows), split(values, P())) == 2 * values.nbytes * (SIZE - 1) / SIZE
    assert bytes_of(jnp.searchsorted, split(values, P()), split(rows)) == 0


# ---------------------------------------------------------------- fft

M = 2 * SIZE * SIZE
# name: (transform, also NumPy's; shape; real or not)
TRANSFORMS = {
    "across": (lambda fft, x: fft.fft(x, axis=0), (M, 2 * SIZE), False),
    "across, lines that do not divide": (lambda fft, x: fft.ifft(x, axis=0), (M, 2 * SIZE + 1), False),
    "across, uneven": (lambda fft, x: fft.fft(x[1:], axis=0), (M, 2 * SIZE + 1), False),
    "of reals across": (lambda fft, x: fft.rfft(x, axis=0), (M, SIZE), True),
    "to reals across": (lambda fft, x: fft.irfft(x, axis=0), (M, SIZE), False),
    "along": (lambda fft, x: fft.fft(x, axis=1), (M, 6), False),
    "two axes": (lambda fft, x: fft.fft2(x), (M, M), False),
    "two axes, inverse": (lambda fft, x: fft.ifft2(x), (M, 2 * SIZE + 1), False),
    "two axes of reals": (lambda fft, x: fft.rfft2(x), (M, M), True),
    "two axes to reals": (lambda fft, x: fft.irfft2(x), (M, M // 2 + 1), False),
    "three axes": (lambda fft, x: fft.fftn(x), (2 * SIZE, SIZE, 3), False),
    "three axes of reals": (lambda fft, x: fft.rfftn(x), (2 * SIZE, SIZE, 4), True),
    "three axes to reals": (lambda fft, x: fft.irfftn(x), (2 * SIZE, SIZE, 4), False),
    "one line": (lambda fft, x: fft.fft(x), (M,), False),
    "one line, inverse": (lambda fft, x: fft.ifft(x), (M,), False),
    "one line that does not divide": (lambda fft, x: fft.fft(x), (3 * SIZE,), False),
    "one line of reals": (lambda fft, x: fft.rfft(x), (M,), True),
    "one column": (lambda fft, x: fft.fft(x, axis=0), (M, 1), False),
}  # fmt: skip


def signal(shape, is_real):
    rng = np.random.default_rng([10, *shape])
    x = rng.normal(size=shape).astype(np.float32)
    return x if is_real else (x + 1j * rng.normal(size=shape)).astype(np.complex64)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.one_in(3)
def test_transforms(name):
    f, shape, is_real = TRANSFORMS[name]
    x = signal(shape, is_real)
    expected = f(np.fft, x)
    for spec in [S, C] if len(shape) > 1 and shape[1] % SIZE == 0 else [S]:
        [found] = leaves(jax.jit(lambda x: f(jnp.fft, x))(split(x, spec)))
        np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max() * np.log2(x.size))


def test_transforms_over_two_mesh_axes():
    if SIZE != 4:
        pytest.skip("a mesh of 2 x 2 ranks")
    for shape in ((8, 8), (8, 4, 6)):
        x = signal(shape, True)
        for f in (lambda fft, x: fft.fftn(x), lambda fft, x: fft.rfftn(x), lambda fft, x: fft.fft(x, axis=0)):
            [found] = leaves(jax.jit(lambda x: f(jnp.fft, x))(split(x, P("i", "j"), mesh_2d((2, 2)))))  # noqa: B023
            np.testing.assert_allclose(found, f(np.fft, x), atol=1e-4)


@pytest.mark.parametrize("name", ["two axes of reals", "three axes", "one line", "across, lines that do not divide"])
@pytest.mark.one_in(2)
def test_gradients_of_transforms(name):
    f, shape, is_real = TRANSFORMS[name]
    x = signal(shape, is_real)
    w = f(np.fft, signal(shape, is_real)[::-1]).real.astype(np.float32)
    gradient = jax.jit(jax.grad(lambda x: (jnp.abs(f(jnp.fft, x)) ** 2 * w).sum(), holomorphic=False))
    [found], expected = leaves(gradient(split(x))), np.asarray(gradient(x))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_transforms_in_loops_and_batches():
    x = signal((M, SIZE), False)
    f = jax.jit(lambda x: lax.fori_loop(0, 2, lambda _, x: jnp.fft.fft2(x) / x.size, x))
    np.testing.assert_allclose(leaves(f(split(x)))[0], np.fft.fft2(np.fft.fft2(x)) / x.size**2, atol=1e-5)
    g = jax.jit(jax.vmap(jnp.fft.fft, in_axes=1))
    np.testing.assert_allclose(leaves(g(split(x)))[0], np.fft.fft(x.T), atol=1e-4)


@many
def test_what_transforms_send():
    others, nbytes = (SIZE - 1) / SIZE, 8 * M * M / SIZE
    x = split(signal((M, M), False))
    assert bytes_of(jnp.fft.fft2, x) == pytest.approx(nbytes * others)
    assert bytes_of(lambda x: jnp.fft.fft(x, axis=0), x) == pytest.approx(nbytes * others)
    assert bytes_of(jnp.fft.fft, split(signal((M,), False))) == pytest.approx(3 * 8 * M / SIZE * others)

    def filtered(x):
        return jnp.fft.irfft2(jnp.fft.rfft2(x) * 2, s=x.shape)

    real = split(signal((M, M), True))
    padded = 8 * (M // SIZE) * -(-(M // 2 + 1) // SIZE) * SIZE
    assert bytes_of(filtered, real) == pytest.approx(2 * padded * others)
    for f, v in ((jnp.fft.fft2, x), (filtered, real), (jnp.fft.rfft2, real)):
        assert kinds_of(f, v) == {"alltoall"}


# ---------------------------------------------------------------- windows whose start is known later


WINDOWS = {
    "row": lambda x, i: x[i],
    "rows": lambda x, i: lax.dynamic_slice_in_dim(x, i, 3),
    "part of a row": lambda x, i: lax.dynamic_slice(x, (i, 1), (1, 2)),
    "in a loop": lambda x, i: lax.fori_loop(0, 5, lambda k, t: t + x[i + k] * k, jnp.zeros(4)),
    "row written": lambda x, i: lax.dynamic_update_slice_in_dim(x, jnp.ones((1, 4)), i, 0),
    "rows written": lambda x, i: lax.dynamic_update_slice_in_dim(x, x[:3] * 2, i, 0),
    "part written": lambda x, i: lax.dynamic_update_slice(x, jnp.ones((2, 2)), (i, 1)),
    "gradient of a row": jax.grad(lambda x, i: (x[i] ** 2).sum()),
}


@pytest.mark.parametrize("start", [-1, 0, 2, N - 2, N + 3])
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.one_in(4)
def test_windows(name, start):
    f, x = WINDOWS[name], np.random.default_rng(3).uniform(-1, 1, (N, 4)).astype(np.float32)
    got, want = jax.jit(f)(split(x), start), jax.jit(f)(jnp.asarray(x), start)
    np.testing.assert_allclose(whole(got), whole(want), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "complex64"])
def test_windows_of_every_kind_of_number(dtype):
    x = (np.arange(N) % 3).astype(getattr(ml_dtypes, dtype, dtype))
    for i in (0, N - 1):
        assert whole(jax.jit(lambda x, i: x[i])(split(x), i)) == x[i]


def test_keys_by_number():
    keys = jax.random.split(jax.random.key(0), N)
    f = jax.jit(lambda k, i: jax.random.normal(k[i]))
    assert float(f(split(keys), 3)) == float(f(keys, 3))


def test_windows_on_two_mesh_axes():
    mesh = mesh_2d((2, SIZE // 2) if SIZE % 2 == 0 else (1, SIZE))
    x = np.arange(float(N * N), dtype=np.float32).reshape(N, N)
    f = jax.jit(lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 3)))
    for i, j in ((0, 0), (5, 7), (N - 2, 11), (N, N)):
        np.testing.assert_array_equal(whole(f(split(x, P("i", "j"), mesh), i, j)), f(jnp.asarray(x), i, j))


@many
def test_a_window_is_sent_and_not_the_array():
    x = split(np.ones((N, 4), np.float32))
    assert kinds_of(WINDOWS["row"], x, 3) == {"allreduce_sum"}
    assert bytes_of(WINDOWS["row"], x, 3) <= 2 * 16
    assert bytes_of(WINDOWS["row written"], x, 3) == 0


# ---------------------------------------------------------------- one iteration for each row


@pytest.mark.parametrize("rows", [N, N - 1, SIZE])
def test_map_along_a_split_axis(rows):
    x, w = np.random.default_rng(4).uniform(-1, 1, (N, 5)).astype(np.float32), np.arange(25.0).reshape(5, 5)

    def f(x):
        return lax.map(lambda row: (jnp.tanh(w @ row), row.sum()), x[:rows])

    for g, v in zip(leaves(jax.jit(f)(split(x))), leaves(f(jnp.asarray(x))), strict=True):
        np.testing.assert_allclose(g, v, rtol=1e-5, atol=1e-6)
    assert bytes_of(lambda x: lax.map(jnp.sin, x), split(x)) == 0


def test_map_of_rows_beside_a_split_matrix():
    """Turns that read what is split are done by all ranks."""
    x, w = (np.random.default_rng(k).uniform(-1, 1, (N, N)).astype(np.float32) for k in (5, 6))
    f = jax.jit(lambda x, w: lax.map(lambda row: w @ row, x))
    np.testing.assert_allclose(whole(f(split(x), split(w))), x @ w.T, rtol=1e-4, atol=1e-5)
