"""Pads, concatenations, rolls and updates at known positions: one pass, the right values, no byte out of bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compiler.fusion.stencils import PROGRAMS
from quickly import one_in

import mpijax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.compiler.fusion.roots import MAX_PIECES
from mpijax.compiler.steps.instructions import KernelCall
from mpijax.compiler.steps.planner import plan_program


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def plan(fun, *args):
    return plan_program(mpijax.make_jaxpr(fun)(*args))


def lines(p) -> int:
    return sum(len(k.define.splitlines()) for k in p.kernels.values())


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
def test_one_pass(name):
    fun, want, shape = PROGRAMS[name]
    x = floats(*shape)
    p = plan(lambda x: fun(jnp, x), x)
    assert len(p.instructions) == 1 and isinstance(p.instructions[0], KernelCall) and p.arena == 0, p.text()
    got = mpijax.jit(lambda x: fun(jnp, x))(x)
    np.testing.assert_allclose(np.asarray(got), want(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.one_in(2)
def test_nothing_beyond_the_arrays_is_touched(threads):
    script = Path(__file__).with_name("guarded.py")
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "MPIJAX_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr}"
    assert done.stdout.strip() == ""


def heat(u):
    return PROGRAMS["heat 2"][0](jnp, u)


def test_steps_after_each_other_are_not_computed_again():
    p = plan(lambda u: heat(heat(heat(u))), floats(33, 80))
    assert len(p.instructions) == 3 and len(p.kernels) == 1, p.text()


def test_functions_of_many_instructions_are_evaluated_once():
    p = plan(lambda u: PROGRAMS["pad constant"][0](jnp, jnp.tanh(u)), floats(33, 80))
    assert len(p.instructions) == 2, p.text()
    p = plan(lambda u: jnp.pad(jnp.tanh(u), 1), floats(33, 80))
    assert len(p.instructions) == 1, p.text()


def test_rolls_along_rows_do_not_copy_the_body():
    rolls = [plan(lambda u: PROGRAMS["roll 2"][0](jnp, u), floats(*s)) for s in ((9, 80), (9, 8, 80), (9, 8, 7, 80))]
    assert all(len(p.instructions) == 1 for p in rolls) and lines(rolls[2]) < 3 * lines(rolls[0])


def test_more_parts_than_fit_into_one_kernel():
    u = floats(60, 33)
    parts = lambda u: jnp.concatenate([u[i : i + 1] * (i + 1) for i in range(2 * MAX_PIECES)])
    assert len(plan(parts, u).instructions) == 2 * MAX_PIECES
    want = np.concatenate([u[i : i + 1] * (i + 1) for i in range(2 * MAX_PIECES)])
    np.testing.assert_array_equal(np.asarray(mpijax.jit(parts)(u)), want)


@pytest.mark.parametrize("mode, stored", [("constant", False), ("reflect", True)])
def test_what_many_windows_read_piece_by_piece_is_stored(mode, stored):
    """Four windows of an array with one border are read where they are; nine of a reflected one from a copy."""
    ends = [(0, 1), (1, 0), (1, 2), (2, 1)] if mode == "constant" else [(i, j) for i in range(3) for j in range(3)]

    def windows(n, x):
        padded = n.pad(x, 1, mode=mode)
        return sum(padded[i : i + 40, j : j + 40] * (i + 2 * j) for i, j in ends)

    x = floats(40, 40)
    p = plan(lambda x: windows(jnp, x), x)
    assert (p.arena >= 42 * 42 * 4) == stored, p.text()
    np.testing.assert_allclose(mpijax.jit(lambda x: windows(jnp, x))(x), windows(np, x), rtol=1e-5, atol=1e-5)


def test_reads_at_computed_positions_take_parts_from_memory():
    u, i = floats(9, 8), np.int32(7)
    fun = lambda u, i: lax.dynamic_slice(jnp.pad(u, 2), (i, i), (3, 4)) * 2
    assert len(plan(fun, u, i).instructions) == 2
    np.testing.assert_array_equal(np.asarray(mpijax.jit(fun)(u, i)), np.pad(u, 2)[7:10, 7:11] * 2)


def test_reshapes_across_parts():
    u = floats(6, 4)
    fun = lambda u: jnp.concatenate([u[0], u[1] * 2]).reshape(2, 2, 2) + 1
    np.testing.assert_array_equal(
        np.asarray(mpijax.jit(fun)(u)), np.concatenate([u[0], u[1] * 2]).reshape(2, 2, 2) + 1
    )


def test_gradient_of_split_is_one_pass():
    def f(u):
        a, b, c = jnp.split(u, 3, axis=1)
        return jnp.sum(a * b * 2) + jnp.sum(b * c)

    u = floats(8, 48)
    p = plan(mpijax.grad(f), u)
    assert len(p.instructions) == 1 and p.arena == 0, p.text()
    a, b, c = np.split(u, 3, axis=1)
    want = np.concatenate([2 * b, 2 * a + c, b], axis=1)
    np.testing.assert_allclose(np.asarray(mpijax.jit(mpijax.grad(f))(u)), want, rtol=1e-6)


def test_gradient_of_differences_makes_no_copies():
    def f(u):
        return jnp.sum((u[1:] - u[:-1]) ** 2) + jnp.sum((u[:, 1:] - u[:, :-1]) ** 2)

    u = floats(9, 40)
    p = plan(mpijax.grad(f), u)
    assert len(p.instructions) <= 3 and all(isinstance(s, KernelCall) for s in p.instructions), p.text()
    padded = np.pad(u, 1, mode="edge")
    want = 2 * (4 * u - padded[2:, 1:-1] - padded[:-2, 1:-1] - padded[1:-1, 2:] - padded[1:-1, :-2])
    np.testing.assert_allclose(np.asarray(mpijax.jit(mpijax.grad(f))(u)), want, rtol=1e-4, atol=1e-4)


def test_step_in_a_loop_is_one_kernel_without_copies():
    u = floats(33, 80)
    p = plan(lambda u: lax.fori_loop(0, 10, lambda _, u: heat(u), u), u)
    assert len(p.instructions) == 1, p.text()
    want = u
    for _ in range(10):
        want = PROGRAMS["heat 2"][1](want)
    got = mpijax.jit(lambda u: lax.fori_loop(0, 10, lambda _, u: heat(u), u))(u)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "bfloat16", "float16", "complex64"])
def test_types(dtype):
    u = np.arange(5 * 37).reshape(5, 37).astype(jnp.dtype(dtype))

    def fun(u):
        p = jnp.pad(u, ((1, 2), (0, 3)))
        return jnp.roll(p, (1, -3), (0, 1)), p.at[2, 3:9].set(u[0, :6]), jnp.concatenate([u, u[:, ::-1]], 1)

    p = np.pad(u, ((1, 2), (0, 3)))
    q = p.copy()
    q[2, 3:9] = u[0, :6]
    want = np.roll(p, (1, -3), (0, 1)), q, np.concatenate([u, u[:, ::-1]], 1)
    for g, w in zip(mpijax.jit(fun)(u), want, strict=True):
        assert np.asarray(g).tobytes() == np.ascontiguousarray(w).tobytes()


def test_keys():
    a, b = mpijax.random.split(mpijax.random.key(0), 3), mpijax.random.split(mpijax.random.key(1), 4)

    def fun(a, b):
        c = jnp.concatenate([a, b, a[::-1]])
        return c, c.at[2:4].set(b[:2])

    for got, want in zip(mpijax.jit(fun)(a, b), fun(a, b), strict=True):
        np.testing.assert_array_equal(mpijax.random.key_data(got), mpijax.random.key_data(want))


INDEXED = {
    "set a row": (lambda x: x.at[2].set(3.0), lambda x: _set(x, 2, 3.0)),
    "add to a column": (lambda x: x.at[:, -1].add(1.0), lambda x: _set(x, (slice(None), -1), x[:, -1] + 1)),
    "largest of an element": (lambda x: x.at[1, 3].max(9.0), lambda x: _set(x, (1, 3), 9.0)),
    "outside, dropped": (lambda x: x.at[11].set(3.0), lambda x: x),
    "outside, clipped": (
        lambda x: x.at[11].set(3.0, mode="clip"),
        lambda x: _set(x, x.shape[0] - 1, 3.0),
    ),
    "slice at literals": (lambda x: lax.dynamic_slice(x, (3, 1), (2, 4)), lambda x: x[3:5, 1:5]),
    "slice beyond the end": (lambda x: lax.dynamic_slice(x, (30, -1), (2, 4)), lambda x: x[-2:, -4:]),
    "update at literals": (
        lambda x: lax.dynamic_update_slice(x, x[:2, :2] * 2, (3, 99)),
        lambda x: _set(x, (slice(3, 5), slice(-2, None)), x[:2, :2] * 2),
    ),
    "element": (lambda x: jnp.take(x, 3, axis=0), lambda x: x[3]),
    "beyond the end": (lambda x: jnp.take(x, 9, axis=0, mode="clip"), lambda x: x[-1]),
}


def _set(x, index, value):
    x = x.copy()
    x[index] = value
    return x


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.one_in(3)
def test_known_positions(name):
    fun, want = INDEXED[name]
    x = floats(7, 9)
    p = plan(fun, x)
    assert len(p.instructions) <= 1 and p.arena == 0, p.text()
    np.testing.assert_array_equal(np.asarray(mpijax.jit(fun)(x)), want(x))
