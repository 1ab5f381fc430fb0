"""Kernels that only move elements: functions of mpijax do their work, and LLVM is not called."""

from __future__ import annotations

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.compiler.backend import llvm
from mpijax.compiler.loops import strided
from mpijax.compiler.steps.instructions import STRIDED, KernelCall, walk
from mpijax.core.base.config import enable_x64

RNG = np.random.default_rng(3)
DTYPES = [np.bool_, np.int8, np.float16, jnp.bfloat16, np.int32, np.float32, np.float64, np.complex64, np.complex128]


def values(shape, dtype):
    numbers = RNG.integers(-100, 100, size=shape)
    return (numbers + 1j * numbers[..., ::-1]).astype(dtype) if np.dtype(dtype).kind == "c" else numbers.astype(dtype)


# Each works on an array of (6, 5, 4) elements.
MOVES = {
    "transpose": lambda x, n: x.T,
    "other transpose": lambda x, n: x.transpose(1, 2, 0),
    "diagonal": lambda x, n: x.reshape(-1)[: 5 * 21 : 21],
    "slice": lambda x, n: x[1:-1, ::2, 3:],
    "one": lambda x, n: x[2, 3, 1:2],
    "column": lambda x, n: x[:, 3, 1],
    "reversed": lambda x, n: x[::-1, :, ::-1],
    "broadcast": lambda x, n: n.broadcast_to(x[:, None], (6, 3, 5, 4)),
    "repeated inside": lambda x, n: n.broadcast_to(x[..., None], (6, 5, 4, 9)),
    "merged": lambda x, n: x.transpose(1, 0, 2).reshape(5, 24),
    "pad": lambda x, n: n.pad(x, ((1, 0), (0, 2), (3, 1))),
    "concatenate": lambda x, n: n.concatenate([x, x[:, :2], x[:, ::-1]], axis=1),
    "stack": lambda x, n: n.stack([x[0], x[1]], axis=-1),
    "zeros": lambda x, n: n.zeros_like(x),
    "ones": lambda x, n: n.ones_like(x[1:]),
    "roll": lambda x, n: n.roll(x, 2, axis=0),
    "tile": lambda x, n: n.tile(x, (2, 1, 3)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name", MOVES)
def test_moved_elements(name, dtype, monkeypatch):
    monkeypatch.setattr(llvm, "compile_object", None)
    monkeypatch.setattr(strided, "MOST_SCATTERED", 1 << 20)
    with enable_x64(True):
        x = values((6, 5, 4), dtype)
        f = jax.jit(lambda x: MOVES[name](x, jnp))
        plan = f.lower(x).compiler_ir()
        assert {s.code for s in walk(plan.instructions) if isinstance(s, KernelCall)} == {STRIDED} and not plan.kernels
        assert np.array_equal(f(x), MOVES[name](x, np))


# Arrays of more bytes than a thread takes, whose sizes are no multiples of those of tiles. Each works on (70, 37, 83).
LARGE_MOVES = {
    "transpose": lambda x, n: x.T,
    "last two": lambda x, n: x.transpose(0, 2, 1),
    "first two": lambda x, n: x.transpose(1, 0, 2),
    "rotated": lambda x, n: x.transpose(1, 2, 0),
    "rows far apart": lambda x, n: n.concatenate([x, x[:, :, :45]], axis=2)[:64].transpose(2, 0, 1),
    "long rows": lambda x, n: x.reshape(2, -1)[:, 5:],
    "short rows": lambda x, n: x[:, :, 3:20],
    "reversed": lambda x, n: x[:, ::-1, ::-1],
    "every second": lambda x, n: x[::3, :, ::2],
    "columns": lambda x, n: n.broadcast_to(x[:, :, 0, None], (70, 37, 99)),
    "rows": lambda x, n: n.broadcast_to(x[0, 0], (70, 37, 83)),
    "pad": lambda x, n: n.pad(x, ((1, 2), (0, 3), (4, 0))),
    "ones": lambda x, n: n.ones_like(x),
}


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.complex64, np.complex128], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name", LARGE_MOVES)
def test_moved_elements_of_large_arrays(name, dtype, monkeypatch):
    monkeypatch.setattr(llvm, "compile_object", None)
    monkeypatch.setattr(strided, "MOST_SCATTERED", 1 << 20)
    with enable_x64(True):
        x = values((70, 37, 83), dtype)
        assert np.array_equal(jax.jit(lambda x: LARGE_MOVES[name](x, jnp))(x), LARGE_MOVES[name](x, np))


def test_threads_have_the_same_part_of_each_move(monkeypatch):
    """The large part of a padded array does not fall to one thread."""
    monkeypatch.setattr(strided, "GRAIN", 1 << 12)
    x = values((70, 90), np.float32)
    [call] = jax.jit(lambda x: jnp.pad(x, 1)).lower(x).compiler_ir().instructions
    assert call.params[1] > 1 and call.extent == 92 and call.extent > 2 * call.grain
    assert np.array_equal(jax.jit(lambda x: jnp.pad(x, 1))(x), np.pad(x, 1))


def test_updates_at_known_positions(monkeypatch):
    monkeypatch.setattr(llvm, "compile_object", None)
    x = values((9, 7), np.float32)
    expected = x.copy()
    expected[1:-1, 2:5] = 3
    assert np.array_equal(jax.jit(lambda x: x.at[1:-1, 2:5].set(3))(x), expected)
    in_place = jax.jit(lambda x: x.at[1:-1, 2:5].set(3), donate_argnums=0)
    [call] = in_place.lower(x).compiler_ir().instructions
    assert call.params[:2] == (7, 1) and call.params[8:] == (4, 2, 7, 0, 28, 3, 0, 4)  # one move, of 7 rows of 3
    assert np.array_equal(in_place(jnp.array(x)), expected)


def test_bits_are_kept():
    """Of NaNs and denormals, too."""
    bits = np.array([0x7FC00001, 0xFFA00000, 1, 0x80000000, 0x80000001], np.uint32).view(np.float32)
    assert np.asarray(jax.jit(lambda x: x[::-1])(bits)).tobytes() == bits[::-1].tobytes()
    assert np.asarray(jax.jit(lambda x: jnp.concatenate([x, x]))(bits)).tobytes() == bits.tobytes() * 2


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + 1,
        lambda x: x.sum(0),
        lambda x: x.astype(jnp.int32),
        lambda x: jnp.where(x > 0, x, 0),
        lambda x: x[jnp.argsort(x[:, 0])],
        lambda x: x[:, :27].reshape(-1, 3).T,
        lambda x: lax.dynamic_slice(x, (x[0, 0].astype(int), 0), (2, 2)),
    ],
)
def test_other_kernels_are_compiled(f):
    plan = jax.jit(f).lower(values((30, 30), np.float32)).compiler_ir()
    assert plan.kernels


def test_loops_are_one_function():
    """A loop that moves elements is compiled whole: its kernels are not calls of functions of mpijax."""
    plan = jax.jit(lambda x: lax.fori_loop(0, 9, lambda i, c: c.T, x)).lower(values((3, 3), np.float32)).compiler_ir()
    [call] = [s for s in plan.instructions if isinstance(s, KernelCall)]
    assert call.frame > 0
