"""Random programs: compiled, operation by operation, and by the NumPy references."""

from __future__ import annotations

import numpy as np
import pytest
from compiler.random_programs import Maker, Program, Value, reference
from quickly import one_in

import mpijax
import mpijax.numpy as jnp


def bits(x) -> bytes:
    """What must agree bit by bit; all NaNs are one."""
    x = np.array(x)
    if x.dtype.kind not in "biu":
        parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
        x = np.stack([np.where(np.isnan(p), np.array(np.nan, p.dtype), p) for p in parts])
    return x.tobytes()


def difference(value: Value, got, want) -> str:
    """How a result is off the reference; empty if it is not."""
    got, want = np.asarray(got), np.asarray(want)
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if got.dtype.kind in "biu":
        good = got == want
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        got, want = got.astype(wide), want.astype(wide)
        # Where numbers cancel, what is left is off by as much as the numbers were.
        largest = np.abs(want[np.isfinite(want)]).max(initial=1.0)
        with np.errstate(invalid="ignore"):
            good = np.isclose(got, want, rtol=value.rough, atol=value.rough * largest, equal_nan=True)
    if good.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    return f"{int((~good).sum())} of {good.size} elements differ, first {at}: {got[at]} instead of {want[at]}"


def check(program: Program, eager: bool) -> None:
    args = [jnp.asarray(x) for x in program.inputs]
    compiled = mpijax.jit(program)
    got = compiled(*args)
    with np.errstate(all="ignore"):
        want = reference(mpijax.make_jaxpr(program)(*args), args)
    for k, g, w in zip(program.results, got, want, strict=True):
        text = difference(program.values[k], g, w)
        assert not text, f"v{k}: {text}\n{program.text()}"
    again = compiled(*args)
    assert [bits(x) for x in again] == [bits(x) for x in got], f"a second call differs\n{program.text()}"
    if eager and not program.reordered:
        for k, g, e in zip(program.results, got, program(*args), strict=True):
            assert bits(g) == bits(e), f"v{k}: compiled and eager differ in bits\n{program.text()}"


@pytest.mark.parametrize("seed", one_in(3, range(120)))
@pytest.mark.one_in(3)
def test_programs(seed):
    check(Maker(seed).program, eager=seed % 2 == 0)


@pytest.mark.parametrize("seed", one_in(3, range(1000, 1030)))
def test_programs_x64(seed):
    with mpijax.enable_x64(True):
        check(Maker(seed, x64=True).program, eager=False)


@pytest.mark.parametrize("seed", one_in(3, range(3000, 3040)))
@pytest.mark.one_in(3)
def test_programs_of_parts(seed):
    check(Maker(seed, length=8, parts=True).program, eager=seed % 4 == 0)


def test_a_column_that_is_read_at_a_distance_of_its_own_row():
    check(Maker(20_294, length=16, parts=True).program, eager=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20_000, 22_000, 50))
def test_many_programs_of_parts(seed):
    for s in range(seed, seed + 50):
        check(Maker(s, length=16, parts=True).program, eager=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10_000, 12_000, 50))
def test_many_programs(seed):
    for s in range(seed, seed + 50):
        check(Maker(s, length=20).program, eager=True)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("seed", one_in(3, range(2000, 2040)))
@pytest.mark.one_in(3)
def test_donated_arguments(seed):
    """Results that take over the memory of arguments are what they are without."""
    program = Maker(seed).program
    want = mpijax.jit(program)(*(jnp.asarray(x) for x in program.inputs))
    which = tuple(range(0, len(program.inputs), 1 + seed % 2))
    fun = mpijax.jit(program, donate_argnums=which)
    for _ in range(2):
        got = fun(*(jnp.array(x, copy=True) for x in program.inputs))
        for k, g, w in zip(program.results, got, want, strict=True):
            assert bits(g) == bits(w), f"v{k}: donation of {which} changes a result\n{program.text()}"


def test_an_array_between_an_operand_and_its_place_gets_memory():
    """The second sort reads the first one's memory; that it is also a result, in another order, is known later."""

    @mpijax.jit
    def f(x):
        s = mpijax.lax.sort(x, dimension=2)
        t = mpijax.lax.transpose(s, (2, 0, 1))
        numbers = mpijax.lax.transpose(mpijax.lax.broadcasted_iota(np.int32, (8, 13, 1), 0), (1, 2, 0))
        return t, mpijax.lax.sort((mpijax.lax.transpose(t, (1, 2, 0)), numbers), dimension=2, num_keys=1)

    x = np.random.default_rng(0).normal(size=(13, 1, 8)).astype(np.float32)
    t, (again, numbers) = f(x)
    np.testing.assert_array_equal(t, np.sort(x, 2).transpose(2, 0, 1))
    np.testing.assert_array_equal(again, np.sort(x, 2))
    np.testing.assert_array_equal(numbers, np.broadcast_to(np.arange(8), x.shape))


@pytest.mark.parametrize("n", [3, 8, 33])
def test_a_result_leaves_the_row_that_the_next_result_reads(n):
    """The sum over `a` and both products are one kernel: the first product must not lie in the memory of `a`."""

    def fun(x):
        a = x @ x.T
        s = jnp.sqrt((a * a).sum())
        x, a = x * s, a * s**2
        return x + (a + a @ a) @ x

    x = jnp.eye(n) * 0.5
    np.testing.assert_allclose(mpijax.jit(fun)(x), fun(x), rtol=1e-5)


def test_an_empty_temporary_has_memory():
    """The kernel reads `y[0]` before its loop of no iterations, because every iteration would read it."""

    @mpijax.jit
    def f():
        y = mpijax.pure_callback(lambda: np.zeros((2, 0, 3), np.float32), jnp.zeros((2, 0, 3)))
        return jnp.sum(jnp.cos(y).reshape(0, 6), 0)

    np.testing.assert_array_equal(f(), np.zeros(6, np.float32))
