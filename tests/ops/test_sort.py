"""Sorting against JAX: stability, NaN, zeros of both signs, several keys, derivatives, batches, large arrays."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from oracle import OURS, THEIRS, check, sample
from quickly import one_in

import mpijax
from mpijax.ops.callbacks.ordering import largest

DTYPES = ("float32", "bfloat16", "int32", "int8", "uint32", "bool", "complex64")
SHAPES = [((50,), 0), ((7, 30), 1), ((30, 7), 0), ((0,), 0)]
X = np.random.default_rng(1).normal(size=(4, 9)).astype(np.float32)


def numbers(dtype: str, shape) -> np.ndarray:
    """Few different values, with NaN, infinities and -0.0 among floats."""
    rng = np.random.default_rng(0)
    v = np.round(rng.normal(size=shape) * 3) * np.where(rng.random(shape) < 0.5, 1, -1)
    if dtype in ("float32", "bfloat16"):
        for value, share in ((np.nan, 0.1), (np.inf, 0.05), (-np.inf, 0.05)):
            v[rng.random(shape) < share] = value
    if dtype == "uint32":
        return rng.integers(0, 2**32, shape).astype(dtype)
    if dtype == "complex64":
        v = v + 1j * np.round(rng.normal(size=shape))
    return v > 0 if dtype == "bool" else v.astype(getattr(jax.numpy, dtype))


def assert_identical(make):
    """Equal values, and equal signs of zeros."""
    theirs, ours = (jax.tree.leaves(make(J)) for J in (jax, mpijax))
    for a, b in zip(map(np.asarray, theirs), map(np.asarray, ours), strict=True):
        assert a.dtype == b.dtype
        a, b = (x.astype(np.float32) if x.dtype.kind == "V" else x for x in (a, b))
        np.testing.assert_array_equal(b, a)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(b[~np.isnan(b)]), np.signbit(a[~np.isnan(a)]))


@pytest.mark.parametrize("dtype", one_in(2, DTYPES))
@pytest.mark.one_in(2)
def test_sort(dtype):
    for shape, axis in SHAPES:
        x, y = numbers(dtype, shape), numbers("float32", shape)
        z = np.arange(x.size, dtype=np.int32).reshape(shape)
        assert_identical(lambda J, x=x, axis=axis: J.lax.sort(x, axis))
        assert_identical(lambda J, x=x, z=z, axis=axis: J.lax.sort_key_val(x, z, axis))
        assert_identical(lambda J, x=x, y=y, z=z, axis=axis: J.lax.sort((x, y, z), axis, num_keys=2))


@pytest.mark.parametrize("dtype", one_in(2, DTYPES[:-1]))
def test_top_k(dtype):
    for shape, axis in SHAPES:
        x = numbers(dtype, shape)
        for k in {0, min(3, shape[axis]), shape[axis]}:
            assert_identical(lambda J, x=x, k=k, axis=axis: tuple(J.lax.top_k(x, k, axis=axis)))


@pytest.mark.parametrize("kind", ("plain", "ties", "nan", "zeros", "int"))
def test_top_k_of_many(kind):
    x = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    if kind == "ties":
        x[[5, 70_000]] = 9.0
    if kind == "nan":
        x[77] = np.nan
    if kind == "zeros":
        x = np.zeros_like(x)
    if kind == "int":
        x = (x * 100).astype(np.int32)
    assert_identical(lambda J: tuple(J.lax.top_k(x, 7)))


WIDTHS = "bool int8 uint8 int16 uint16 int32 uint32 float16 bfloat16 float32 float8_e4m3fn".split()


@pytest.mark.parametrize("dtype", WIDTHS)
def test_top_k_of_every_width(dtype):
    """Values and places by the bits, for few and many of short and long rows; of equal elements the first."""
    rng = np.random.default_rng(0)
    for shape, axis, ks in [((5, 300), 1, (1, 16, 17, 300)), ((150, 7), 0, (3, 60)), ((3000,), 0, (5, 400, 2900))]:
        x = np.round(rng.normal(size=shape) * 20)
        if "float" in dtype:
            for value, share in ((np.nan, 0.05), (-0.0, 0.05), (np.inf, 0.02)):
                x[rng.random(shape) < share] = value
        else:
            x = x.astype(np.int64)
        x = x.astype(getattr(jax.numpy, dtype))
        for k in ks:
            values, places = mpijax.lax.top_k(x, k, axis=axis)
            wanted = largest(x, k, axis)
            np.testing.assert_array_equal(places, wanted)
            assert np.asarray(values).tobytes() == np.take_along_axis(x, wanted, axis).tobytes()


@pytest.mark.parametrize("order", (1, -1))
def test_top_k_of_sorted_rows(order):
    """Where every element is larger than those before it, and where none is."""
    x = np.arange(5000, dtype=np.float32)[::order].copy()
    for k in (4, 100):
        np.testing.assert_array_equal(mpijax.lax.top_k(x, k)[0], np.arange(4999, 4999 - k, -1))


PROGRAMS = {
    "vmap of two": lambda J: J.vmap(lambda a: J.lax.sort((a, a * 2), num_keys=1), in_axes=1),
    "grad along": lambda J: J.grad(lambda a: (J.lax.sort((-a, a * 2), dimension=0)[1] ** 2 * a[:1]).sum()),
    "grad of grad": lambda J: J.grad(lambda a: J.grad(lambda b: (J.lax.sort(b) ** 3).sum())(a)[0, 0]),
    "grad of top_k": lambda J: J.grad(lambda a: (J.lax.top_k(a, 3, axis=0)[0] ** 2).sum()),
    "vmap of top_k": lambda J: J.vmap(lambda a: tuple(J.lax.top_k(a, 2)), in_axes=1),
    "argsort, descending": lambda J: lambda a: J.numpy.argsort(a, descending=True),
    "approx_max_k": lambda J: lambda a: J.lax.approx_max_k(a, 3, recall_target=0.5),
    "approx_min_k": lambda J: J.vmap(lambda a: J.lax.approx_min_k(a, 2, 0), in_axes=1),
    "approx_max_k of none": lambda J: lambda a: J.lax.approx_max_k(a, 0),
    "approx_max_k of too many": lambda J: lambda a: J.lax.approx_max_k(a, 10),
    "approx_max_k of integers": lambda J: lambda a: J.lax.approx_max_k(a.astype("int32"), 1),
}


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
def test_programs(name):
    check(PROGRAMS[name], X, eager=False, rtol=1e-6)


def test_approximate_maxima_are_a_list():
    for J in (OURS, THEIRS):
        assert type(J.lax.approx_max_k(X, 2)) is type(J.lax.approx_min_k(X, 2)) is list


def test_derivative_of_approximate_maxima():
    check(lambda J: J.grad(lambda a: (J.lax.approx_max_k(a, 3)[0] ** 2).sum()), X, jaxpr=False, eager=False, rtol=1e-6)


SIZES = [(4,), (3, 20), (1, 300), (2, 1000), (1, 100000), (1500,), (700, 3)]


@pytest.mark.parametrize("shape", SIZES)
def test_partial_results_have_the_sizes_of_jaxs(shape):
    axis = 0 if shape[-1] == 3 else -1
    for k, recall in ((1, 0.95), (2, 0.95), (3, 1.0), (30, 0.99)):
        for size in (-1, shape[axis], 10 * shape[axis]):
            if k > shape[axis]:
                continue

            def of(J, k=k, recall=recall, size=size):
                fun = lambda x: J.lax.approx_max_k(x, k, axis, recall, size, aggregate_to_topk=False)
                return [x.shape for x in J.eval_shape(fun, J.ShapeDtypeStruct(shape, np.float32))]

            assert of(OURS) == of(THEIRS), (k, recall, size)


def test_partial_results_begin_with_the_largest():
    distinct = np.cos(np.arange(600.0, dtype=np.float32)).reshape(2, 300)
    check(lambda J: lambda a: J.lax.approx_min_k(a, 2, aggregate_to_topk=False), distinct, jitted=False)
    with pytest.raises(ValueError, match="recall_target must be in"):
        OURS.lax.approx_max_k(sample(200), 2, recall_target=2.0, aggregate_to_topk=False)
    with pytest.raises(ValueError, match="reduction_input_size_override must be at least"):
        OURS.lax.approx_max_k(sample(200), 2, reduction_input_size_override=3, aggregate_to_topk=False)


EVERY = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 complex128 \
float8_e4m3fn float8_e5m2 float8_e4m3fnuz".split()


def any_of(dtype: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of all sizes, or few different ones, with what is special among floats."""
    kind = np.dtype(getattr(jax.numpy, dtype))
    if kind.kind == "c":
        part = f"float{kind.itemsize * 4}"
        parts = np.stack([any_of(part, n, rng), any_of(part, n, rng)], -1)
        return parts.view(kind)[..., 0]
    if kind.kind in "iub":
        bits = rng.integers(0, 2**63, n, np.uint64) * np.uint64(2)
        return (bits % 5).astype(kind) if rng.random() < 0.5 else (bits >> np.uint64(64 - 8 * kind.itemsize)).astype(kind)
    specials = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 448.0, 1.0])
    numbers = np.clip(rng.normal(size=n) * rng.choice([1.0, 100.0]), -400, 400)
    return np.where(rng.random(n) < 0.3, rng.choice(specials, n), numbers).astype(kind)


def compared(x: np.ndarray) -> list[np.ndarray]:
    """Numbers that compare as elements do in sorts, the most significant one first."""
    if x.dtype.kind == "c":
        return [*compared(x.real), *compared(x.imag)]
    return [x.astype(np.float32) if x.dtype.itemsize < 4 else x]


@pytest.mark.parametrize("dtype", one_in(3, EVERY))
def test_every_dtype_is_sorted_stably_by_one_and_by_several_keys(dtype):
    """Against NumPy's sort by several keys; the last key of three is of any dtype, and the row's places go along."""
    rng = np.random.default_rng(EVERY.index(dtype))
    with mpijax.enable_x64(True):
        for n in (1, 2, 7, 300, 2000):
            first, second = any_of(dtype, n, rng), any_of(rng.choice(EVERY), n, rng)
            for keys in ([first], [first, second], [second, first]):
                order = np.lexsort([part for key in keys for part in compared(key)][::-1])
                got = mpijax.lax.sort((*keys, np.arange(n)), num_keys=len(keys))
                np.testing.assert_array_equal(got[-1], order)
                for x, y in zip(keys, got, strict=False):
                    assert np.asarray(y).tobytes() == x[order].tobytes()
            alone = np.asarray(mpijax.lax.sort(first))
            np.testing.assert_array_equal(*(np.stack(compared(x)) for x in (alone, first[np.lexsort(compared(first)[::-1])])))


@pytest.mark.parametrize("kind", ("spread", "close", "few", "outlier"))
def test_keys_of_64_bits_are_sorted_by_all_of_them(kind):
    """Keys that leave no room for the place are sorted by their upper bits first; here these say much, or nothing."""
    x = np.random.default_rng(0).normal(size=5000)
    x = {"spread": x, "close": 1 + 1e-13 * x, "few": np.round(x), "outlier": np.append(1 + 1e-13 * x[1:], 1e300)}[kind]
    with mpijax.enable_x64(True):
        values, places = mpijax.lax.sort((x, np.arange(x.size)), num_keys=1)
        _, _, pairs = mpijax.lax.sort((np.round(x), x, np.arange(x.size)), num_keys=2)
    order = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, x[order])
    np.testing.assert_array_equal(pairs, np.lexsort([x, np.round(x)]))


def test_any_axis_and_no_elements():
    x = np.random.default_rng(0).normal(size=(3, 40, 5)).astype(np.float32)
    for axis in range(3):
        np.testing.assert_array_equal(mpijax.lax.sort(x, axis), np.sort(x, axis))
        np.testing.assert_array_equal(mpijax.numpy.argsort(x, axis), np.argsort(x, axis, kind="stable"))
    for shape in ((0,), (0, 3), (3, 0)):
        assert mpijax.lax.sort_key_val(np.zeros(shape), np.zeros(shape, np.int32))[1].shape == shape


def test_loops_that_sort_call_no_python():
    def turn(i, x):
        order = mpijax.numpy.argsort(-x)
        return mpijax.numpy.median(x) + x[order]

    x = np.array([3.0, 1.0, 2.0], np.float32)
    compiled = mpijax.jit(lambda x: mpijax.lax.fori_loop(0, 4, turn, x)).lower(x).compile()
    assert " host " not in compiled.as_text() and "native sort" in compiled.as_text()
    for _ in range(4):
        x = np.median(x) + np.sort(x)[::-1]
    np.testing.assert_allclose(compiled(np.array([3.0, 1.0, 2.0], np.float32)), x)


@pytest.mark.parametrize("runs", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint32", "int64", "uint64", "int16"])
@pytest.mark.one_in(4)
def test_rows_that_consist_of_runs_in_order(dtype, runs):
    """Few runs are merged; the result is that of any other row, ties and special values included."""
    rng = np.random.default_rng(runs)
    x = rng.integers(-2000 if dtype[0] != "u" else 0, 2000, 4000).astype(dtype)
    if dtype[0] == "f":
        x[::7], x[1::11], x[2::13], x[3::17] = np.nan, -0.0, 0.0, np.inf
    x = np.concatenate([np.sort(part, kind="stable") for part in np.array_split(x, runs)])
    number = np.arange(len(x), dtype=np.int32)
    with mpijax.enable_x64(True):
        alone = np.asarray(mpijax.jit(mpijax.lax.sort)(x))
        values, order = mpijax.jit(lambda x: mpijax.lax.sort((x, number), num_keys=1))(x)
    # Zeros of both signs are equal, and stay in order.
    want = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(order, want)
    for got in (alone, np.asarray(values)):
        np.testing.assert_array_equal(got, x[want])
        np.testing.assert_array_equal(np.signbit(got), np.signbit(x[want]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("n", [300, 5000])
@pytest.mark.one_in(2)
def test_temporary_values_are_sorted_in_place(dtype, n):
    with mpijax.enable_x64(True), jax.enable_x64(True):
        x = np.random.default_rng(n).integers(-4, 5, (3, n)).astype(dtype)
        if x.dtype.kind == "f":
            x[:, ::3] *= -0.0
            x[0, 1] = np.nan
        made = lambda x: mpijax.numpy.sort(mpijax.numpy.flip(x, 1))
        program = mpijax.jit(made).lower(x).compile()
        assert program.memory_analysis().temp_size_in_bytes < 600
        np.testing.assert_array_equal(bits(program(x)), bits(np.asarray(THEIRS.lax.sort(x[:, ::-1]))))


def bits(x):
    return np.asarray(x).view(f"u{np.asarray(x).itemsize}")


def test_a_value_that_is_read_again_is_not_sorted_in_place():
    x = sample(4, 50)
    doubled, ordered = mpijax.jit(lambda x: (2 * x, mpijax.numpy.sort(2 * x)))(x)
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(ordered, np.sort(2 * x))


@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "uint32", "int64", "float32"])
@pytest.mark.parametrize("shape", [(4, 9), (2, 300), (1, 20000)])
@pytest.mark.one_in(3)
def test_positions_are_sorted_with_the_keys(kind, shape):
    """The code makes positions itself: their operand is not in the program, unless it is a key or has another type."""
    with mpijax.enable_x64(True), jax.enable_x64(True):
        x = np.random.default_rng(0).integers(0, 5, shape).astype(np.float32)
        x[0, :3] = [np.nan, -0.0, 0.0]

        def f(J, x):
            at = J.lax.broadcasted_iota(kind, shape, 1)
            return [*J.lax.sort((x, at)), *J.lax.sort((x, at), num_keys=2), *J.lax.sort((x, x * 2, at), dimension=0)]

        got, want = mpijax.jit(lambda x: f(OURS, x))(x), f(THEIRS, x)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
        assert "iota" not in mpijax.jit(lambda x: f(OURS, x)[1]).lower(x).compile().as_text() or kind == "float32"
