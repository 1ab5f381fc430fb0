"""Loops in time tiles compute the same bits as loops that are not, on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from quickly import one_in
from thread_counts import THREADS, threads

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.compiler.steps import time_tiles
from mpijax.compiler.steps.instructions import KernelCall, Loop, Place, Temp, TimeTiles
from mpijax.runtime.machine.executable import Program, ProgramSpec
from mpijax.runtime.reports import step_notes


@pytest.fixture(autouse=True)
def small_caches(monkeypatch):
    """Caches so small that the arrays of these tests do not fit, and no cache of programs."""
    monkeypatch.setattr(time_tiles, "cache_size", lambda level: 6000 if level == 2 else 24000)
    monkeypatch.setattr(time_tiles, "LEAST_ELEMENTS", 1)


def compiled(fun, *args, tiles: bool):
    before = jax.config.mpijax_time_tiles
    jax.config.update("mpijax_time_tiles", tiles)
    try:
        return jax.jit(lambda *xs: fun(*xs)).lower(*args).compile()
    finally:
        jax.config.update("mpijax_time_tiles", before)


def is_tiled(program) -> bool:
    return "iterations at a time" in program.as_text()


def check(fun, *args, tiled: bool | None):
    """Both forms give the same bits on each number of threads. tiled: whether the loop is to be tiled; None: either."""
    plain, tiles = compiled(fun, *args, tiles=False), compiled(fun, *args, tiles=True)
    assert not is_tiled(plain)
    assert tiled is None or is_tiled(tiles) == tiled
    want = jax.tree.leaves(plain(*args))
    for n in THREADS:
        with threads(n):
            for _ in range(2):
                for a, b in zip(jax.tree.leaves(tiles(*args)), want, strict=True):
                    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def data(*shape, dtype=np.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def repeated(turn, count):
    return lambda state: lax.fori_loop(0, count, lambda i, s: turn(s), state)


def heat(u):
    return u.at[1:-1, 1:-1].add(
        0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    )


def periodic(u):
    return u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -2, 0) + jnp.roll(u, 1, 1) - 3 * u)


def padded(u):
    p = jnp.pad(u, ((3, 1), (0, 0)))
    return 0.5 * u + 0.1 * (p[:-4] + p[4:])


def wave(state):
    u, v = state
    inner = 2 * u[1:-1] - v[1:-1] + 0.1 * (u[2:] + u[:-2] - 2 * u[1:-1])
    return u.at[1:-1].set(inner), u


def staggered(state):
    h, u, v = state
    u = u - 0.1 * (jnp.roll(h, -1, 0) - h)
    v = v - 0.1 * (jnp.roll(h, -1, 1) - h)
    h = h - 0.1 * (u - jnp.roll(u, 1, 0) + v - jnp.roll(v, 1, 1))
    return h, u, v


def fluxes(u):
    """A temporary of one row less, which is an array of its own: a sine is not computed twice."""
    flux = jnp.sin(u[1:] - u[:-1])
    return u.at[1:-1].add(0.05 * (flux[1:] - flux[:-1]))


def downwind(u):
    """Reads rows on one side only."""
    return u.at[:-2].add(0.3 * (u[2:] - u[:-2]))


PROGRAMS = {
    "heat": (heat, data(200, 16)), "periodic": (periodic, data(200, 16)), "padded": (padded, data(203, 16)),
    "wave": (wave, (data(200, 16), data(200, 16, seed=1))),
    "staggered": (staggered, tuple(data(240, 12, seed=k) for k in range(3))),
    "downwind": (downwind, data(150, 16)), "fluxes": (fluxes, data(160, 16)),
    "three axes": (lambda u: u.at[1:-1].add(0.1 * (u[2:] + u[:-2] - 2 * u[1:-1]) * u[1:-1, ::-1]), data(160, 4, 5)),
    "elements alone": (lambda u: jnp.sin(u) * 1.01, data(4000)),
    "complex": (lambda u: u + 0.1j * jnp.roll(u, 1, 0), data(200, 8).astype(np.complex64)),
    "integers": (lambda u: u ^ jnp.roll(u, 3, 0) + 1, jnp.arange(3200, dtype=np.int32).reshape(200, 16)),
    "rows are summed": (lambda u: u + 0.01 * jnp.roll(u.sum(1, keepdims=True), 1, 0), data(200, 16)),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("count", [2, 7, 10, 33])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(3)
def test_the_bits_are_those_of_the_plain_loop(name, count):
    turn, state = PROGRAMS[name]
    check(repeated(turn, count), state, tiled=True if count == 33 else None)


def random_turn(rng, fields, rows):
    """One iteration of a random program: fields from shifted fields, rotated, padded, updated in part."""
    steps = []
    for _ in range(rng.integers(1, 4)):
        steps.append((rng.integers(fields), rng.integers(fields), rng.choice(["roll", "pad", "part", "same"]),
                      int(rng.integers(-3, 4)), float(rng.uniform(-0.2, 0.2))))  # fmt: skip
    rotates = rng.random() < 0.3

    def turn(state):
        state = list(state)
        for target, source, kind, by, factor in steps:
            u, v = state[target], state[source]
            if kind == "roll":
                new = u + factor * jnp.roll(v, by, 0)
            elif kind == "pad":
                low, high = max(by, 0), max(-by, 0)
                padded = jnp.pad(v, ((low, high), (0, 0)))
                new = u + factor * (padded[:rows] if low else padded[high : high + rows])
            elif kind == "part":
                low = abs(by)
                new = u.at[low : rows - low].set(u[low : rows - low] + factor * v[low + by : rows - low + by])
            else:
                new = u * (1 - factor) + factor * v[:, ::-1]
            state[target] = new
        return tuple([*state[1:], state[0]] if rotates else state)

    return turn


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(k, marks=pytest.mark.slow) for k in range(12, 150))])
@pytest.mark.one_in(3)
def test_random_programs(seed):
    rng = np.random.default_rng(seed)
    fields, rows, columns = int(rng.integers(1, 4)), int(rng.integers(60, 300)), int(rng.integers(4, 20))
    state = tuple(data(rows, columns, seed=int(rng.integers(1 << 30))) for _ in range(fields))
    fun = repeated(random_turn(rng, fields, rows), int(rng.integers(2, 40)))
    check(fun, state, tiled=None)


TURNS_DIFFER = {
    "by their number": lambda u: lax.fori_loop(0, 20, lambda i, u: u + 0.1 * i * jnp.roll(u, 1, 0), u),
    "by several small values": lambda u: lax.fori_loop(
        3, 24, lambda i, s: (s[0] + jnp.sin(s[1] * i) * jnp.roll(s[0], 1, 0), s[1] * 1.1), (u, jnp.float32(0.1))),
    "by a scanned number": lambda u: lax.scan(
        lambda u, x: (u + x * jnp.roll(u, 1, 0), None), u, jnp.linspace(0, 0.2, 20, dtype=jnp.float32))[0],
    "by a scanned array": lambda u: lax.scan(
        lambda u, x: (0.5 * jnp.roll(u, 1, 0) + x[::-1], None), u, data(9, 200, 16, seed=3))[0],
    "and are counted down": lambda u: lax.scan(
        lambda u, x: (u + x * jnp.roll(u, 1, 0), None), u, jnp.linspace(0, 0.2, 21, dtype=jnp.float32), reverse=True)[0],
    "and all are kept": lambda u: lax.scan(
        lambda u, x: ((new := u + 0.1 * jnp.roll(u, 1, 0)), new * 2), u, None, length=11),
    "at one point": lambda u: lax.fori_loop(0, 20, lambda i, u: heat(u).at[100, 8].add(jnp.sin(0.1 * i)), u),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(2, TURNS_DIFFER))
def test_turns_differ(name):
    check(TURNS_DIFFER[name], data(200, 16), tiled=True)


def test_a_loop_in_a_loop():
    def outer(i, u):
        return lax.fori_loop(0, 11, lambda j, u: u + 0.01 * (i + j) * jnp.roll(u, 1, 0), jnp.sin(u))

    check(lambda u: lax.fori_loop(0, 3, outer, u), data(200, 16), tiled=True)


NOT_TILED = {
    "rows far away are read": lambda u: lax.fori_loop(0, 20, lambda i, u: u + 0.1 * jnp.roll(u, 70, 0), u),
    "all rows are summed": lambda u: lax.fori_loop(0, 20, lambda i, u: u - 0.1 * u.sum(0), u),
    "a product": lambda u: lax.fori_loop(0, 20, lambda i, u: jnp.roll(u, 1, 0) + 1e-3 * u @ jnp.ones((16, 16)), u),
    "each turn has a result of one row": lambda u: lax.scan(lambda u, _: (jnp.roll(u, 1, 0) + 1, u[0]), u, None, length=20),
}


@pytest.mark.parametrize("name", NOT_TILED)
def test_other_loops_stay_as_they_are(name):
    check(NOT_TILED[name], data(200, 16), tiled=False)


def test_arrays_in_cache_are_not_tiled(monkeypatch):
    monkeypatch.setattr(time_tiles, "cache_size", lambda level: 1 << 20)
    check(repeated(heat, 20), data(200, 16), tiled=False)


def test_the_argument_is_not_copied_first():
    program = compiled(repeated(heat, 20), data(200, 16), tiles=True)
    assert "copy" not in [line.split()[0] for line in program.as_text().splitlines() if "12800 bytes" in line]


@pytest.mark.parametrize("count", [20, 21])
def test_a_donated_argument(count):
    """With an odd number of turns the first turn writes into the memory of the argument."""
    fun = repeated(heat, count)
    found = jax.jit(fun, donate_argnums=0)(data(200, 16))
    assert np.asarray(found).tobytes() == np.asarray(jax.jit(fun)(data(200, 16))).tobytes()


def test_the_loader_refuses_tiles_that_do_not_fit_the_body():
    tiles = TimeTiles(8, 2, 4, (1,), (0,), (0,), False)  # distances of one iteration for two
    loop = Loop(4, (KernelCall(1, (Place(0),), (), 8, 1),), tiles=tiles)
    with pytest.raises(ValueError, match="distances for each kernel"):
        Program(ProgramSpec(num_inputs=0, buffers=(Temp(0, 64),), instructions=(loop,), results=()))


def test_a_profile_has_the_loop_as_one_step():
    before = jax.config.mpijax_profile_kernels
    jax.config.update("mpijax_profile_kernels", True)
    try:
        found = jax.jit(repeated(heat, 20))(data(200, 16))
        labels = [step.label for step, calls, _ in step_notes.sums() if calls]
    finally:
        jax.config.update("mpijax_profile_kernels", before)
    assert any(label.startswith("loop_") and "static_update" in label for label in labels)
    assert np.asarray(found).tobytes() == np.asarray(jax.jit(repeated(heat, 20))(data(200, 16))).tobytes()


def test_forms_are_verified():
    with jax.enable_checks(True):
        check(TURNS_DIFFER["by several small values"], data(200, 16), tiled=True)
