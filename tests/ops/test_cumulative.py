"""Running combinations as compiled loops: every loop form, dtype and direction, against their NumPy references."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from oracle import check
from quickly import one_in

import mpijax
from mpijax import lax

NAMES = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
# Serial along the axis, in the lanes of vectors, across vectors of another axis, in tiles of it; sizes 0 and 1.
SHAPES = [((37,), 0), ((1000,), 0), ((5, 3), 1), ((20, 70), 0), ((7, 100, 6), 1), ((3, 120, 130), 1), ((2, 5, 9), 2),
          ((4, 1), 1), ((3, 0), 0), ((0,), 0), ((130, 1500), 0)]  # fmt: skip
DTYPES = {"int8": np.int8, "uint32": np.uint32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16,
          "complex64": np.complex64}  # fmt: skip


def numbers(shape, dtype=np.float32, scale=0.5, middle=0.0):
    values = np.random.default_rng(0).normal(size=shape) * scale + middle
    if dtype == np.complex64:
        values = values + 0.3j * np.flip(values)
    return (values * (20 if np.dtype(dtype).kind in "iu" else 1)).astype(dtype)


def assert_close(got, wanted, rtol):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    if got.dtype.itemsize == 2:
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)


def compiled(name, axis, reverse):
    return mpijax.jit(lambda x: getattr(lax, name)(x, axis, reverse))


@pytest.mark.sweep
@pytest.mark.parametrize("reverse", (False, True))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_in(2)
def test_loop_forms(name, reverse):
    for shape, axis in SHAPES:
        x = numbers(shape, scale=0.1 if name == "cumprod" else 0.5, middle=name == "cumprod")
        wanted = getattr(lax, f"{name}_p").reference(x, axis=axis, reverse=reverse)
        assert_close(compiled(name, axis, reverse)(x), wanted, 2e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES[:4])
def test_dtypes(name, dtype):
    if dtype == "complex64" and name in ("cummax", "cummin"):
        pytest.skip("NumPy orders no complex numbers with NaN")
    for shape, axis in (((75,), 0), ((9, 40), 0), ((9, 40), 1)):
        x = numbers(shape, DTYPES[dtype], scale=0.2)
        wanted = getattr(lax, f"{name}_p").reference(x, axis=axis, reverse=False)
        assert_close(compiled(name, axis, False)(x), wanted, 2e-2 if x.dtype.itemsize == 2 else 1e-4)


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_special_values(name):
    """NaN goes on to the end, infinities as in JAX, the sum of -0.0 starts from 0.0."""
    x = np.array([-0.0, 1.0, np.inf, 2.0, -np.inf, 3.0, np.nan, 4.0] + [5.0] * 20, np.float32)
    for values in (x, x[::-1].copy(), np.full(11, -np.inf, np.float32), np.full(9, -0.0, np.float32)):
        wanted = np.asarray(getattr(jax.lax, name)(values))
        got = np.asarray(compiled(name, 0, False)(values))
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
        np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(got)]))


def test_operand_is_computed_in_place():
    """What feeds a running sum needs no memory, and there is one kernel."""
    x = numbers((64, 64))
    program = mpijax.jit(lambda x: lax.cumsum(lax.exp(x) * 2, 1)).lower(x).compile()
    assert program.memory_analysis().temp_size_in_bytes == 0
    assert program.as_text().count("kernel ") == 1
    assert_close(program(x), np.cumsum(np.exp(x) * 2, 1, dtype=np.float32), 1e-4)


@pytest.mark.parametrize("name", one_in(2, NAMES))
@pytest.mark.one_in(3)
def test_derivatives_to_order_two_and_batches(name):
    x = numbers((2, 5), scale=1.0)

    def second(J):
        f = lambda x: (getattr(J.lax, name)(x, 0, True) ** 3).sum()
        return J.vmap(J.grad(lambda x: (J.grad(f)(x) ** 2).sum()))

    check(second, x, jaxpr=False, eager=False, rtol=1e-4, atol=1e-4)
    check(lambda J: J.vmap(lambda x: getattr(J.lax, name)(x, 1), in_axes=1), x[None].repeat(3, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", (False, True))
@pytest.mark.one_in(2)
def test_logsumexp_of_complex_numbers_has_its_angle_in_one_turn(reverse):
    x = numbers((3, 40), np.complex64, scale=2.0) * np.exp(1j * np.arange(40)).astype(np.complex64)
    got = np.asarray(compiled("cumlogsumexp", 1, reverse)(x))
    sums = np.flip(np.cumsum(np.flip(np.exp(x), 1), 1), 1) if reverse else np.cumsum(np.exp(x), 1)
    np.testing.assert_allclose(np.exp(got), sums, rtol=1e-3, atol=1e-3)
    assert (np.abs(got.imag) <= np.float32(np.pi)).all()
    if not reverse:
        tangent = mpijax.jvp(lambda x: lax.cumlogsumexp(x, 1), (x,), (x,))[1]
        np.testing.assert_allclose(np.asarray(tangent) * sums, np.cumsum(np.exp(x) * x, 1), rtol=1e-2, atol=2e-2)
