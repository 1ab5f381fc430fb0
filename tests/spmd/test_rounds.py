"""Attention whose sequence is split, and large: blocks of keys and values go round the ranks."""

from __future__ import annotations

import numpy as np
import pytest
from quickly import one_in
from spmd.ranks import SIZE, P, assert_same, mesh_1d, mesh_2d, real
from spmd.test_attention import attend, gradient
from spmd.test_global_arrays import check, placed

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.compiler.graph import by_parts
from mpijax.ops.products import over_ranks as dot_over_ranks
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi

T = 12 * max(4, SIZE)  # positions: a rank has more rows of scores than the keys have columns
N = 16 * SIZE
FOUR, KEYS = (2, T, 4, 8), (2, T, 2, 8)
ATTENTION = {
    "einsum": (attend, FOUR),
    "causal": (lambda q, k, v: attend(q, k, v, jnp.tril(jnp.ones((T, T), bool))), FOUR),
    "softmax(q k^T) v": (lambda q, k, v: jax.nn.softmax(q @ k.T / 3) @ v, (T, 8)),
    "dot_product_attention": (jax.nn.dot_product_attention, FOUR),
    "dot_product_attention, causal": (lambda *x: jax.nn.dot_product_attention(*x, is_causal=True), FOUR),
    "dot_product_attention, fewer keys": (jax.nn.dot_product_attention, KEYS),
}
PAIRS = {
    "mask of keys": (lambda q, k, v, m: jax.nn.softmax(jnp.where(m[None, :] > 0, q @ k.T, -jnp.inf)) @ v, 1),
    "added positions": (lambda q, k, v, m: jax.nn.softmax(q @ k.T + m[:, None] - jnp.arange(len(m))) @ v, 1),
    "weights, two values": (lambda q, k, v, m: (jax.nn.softmax(q @ k.T) * jnp.cos(m)[:, None]) @ (v + v**2), 1),
    "no maximum": (lambda q, k, v, m: (jnp.exp(q @ k.T) @ v) / jnp.exp(q @ k.T).sum(-1, keepdims=True), 1),
    "largest score": (lambda q, k, v, m: jnp.max(q @ k.T, axis=1), 1),
    "largest score of a key": (lambda q, k, v, m: jnp.max(q @ k.T, axis=0), 1),
    "largest scores of both": (lambda q, k, v, m: (jnp.max(q @ k.T, axis=0), jnp.max(q @ k.T, axis=1)), 1),
    "narrow": (
        lambda *x: jax.nn.softmax(x[0].astype("bfloat16") @ x[1].astype("bfloat16").T).astype("float32") @ x[2],
        1,
    ),
    "two products": (lambda q, k, v, m: (jnp.tanh(q @ k.T) * (v @ q.T)) @ v, 1),
    "differences": (lambda q, k, v, m: jnp.exp(-((q[:, None] - k[None]) ** 2).sum(-1)) @ v, 1),
    "forces": (lambda q, *_: ((q[:, None] - q) / (1 + ((q[:, None] - q) ** 2).sum(-1, keepdims=True))).sum(axis=1), 1),
    "two differences": (lambda q, k, v, m: (jnp.cos(m[:, None] - m[None]) * (q[:, 0, None] * k[None, :, 0])).sum(1), 1),
    "scores are a result": (lambda q, k, v, m: (q @ k.T, jax.nn.softmax(q @ k.T) @ v), 0),
    "sorted scores": (lambda q, k, v, m: jnp.sort(q @ k.T, axis=1) @ v, 0),
}


@pytest.fixture(autouse=True)
def small_arrays_too(monkeypatch):
    monkeypatch.setattr(dot_over_ranks, "LARGE", 0)


def case(name):
    f, keys = ATTENTION[name]
    arrays = [real(FOUR if len(keys) > 2 else keys), real(keys, 1), real(keys, 2)]
    return f, arrays, [P("i") if x.ndim == 2 else P(None, "i") for x in arrays]


def kinds(f, args) -> set[str]:
    return {s.kind for s in sent(jax.jit(f).lower(*args).compiler_ir())}


@pytest.mark.parametrize("name", one_in(2, ATTENTION))
@pytest.mark.one_in(3)
def test_nothing_is_gathered(name):
    """Neither forwards nor backwards; the gradients are split as what they are of."""
    f, arrays, specs = case(name)
    args = placed(arrays, specs, mesh_1d())
    check(f, arrays, specs, rtol=1e-4, atol=1e-4)
    check(gradient(f), arrays, specs, rtol=1e-4, atol=1e-4)
    for got, arg in zip(jax.jit(gradient(f))(*args), args, strict=True):
        assert got.sharding.is_equivalent_to(arg.sharding, got.ndim)
    if SIZE > 1:
        assert kinds(gradient(f), args) == {"permute"}


@pytest.mark.skipif(SIZE == 1, reason="one rank sends nothing")
def test_bytes():
    """Forwards, keys and values go round. Backwards, queries do, with the gradients of results and of queries."""
    q, k, v = (real((64 * SIZE, 64), k) for k in range(3))
    args = placed([q, k, v], [P("i")] * 3, mesh_1d())
    f, part = ATTENTION["softmax(q k^T) v"][0], (SIZE - 1) / SIZE

    def bytes_sent(g):
        return sum(s.total for s in sent(jax.jit(g).lower(*args).compiler_ir()))

    assert bytes_sent(f) == 2 * part * q.nbytes
    assert 0 < bytes_sent(gradient(f)) - (4 * part + 1) * q.nbytes < 0.1 * q.nbytes  # the rest: numbers for each row


def results(f, *args):
    """The value and the gradients of a function of q, k, v and others."""
    out, back = jax.vjp(lambda *x: f(*x, *args[3:]), *args[:3])
    return jax.tree.leaves((out, back(jax.tree.map(jnp.tanh, out))))


@pytest.mark.parametrize("name", one_in(2, PAIRS))
@pytest.mark.one_in(2)
def test_pairs(name):
    f, goes_round = PAIRS[name]
    arrays = [real((N, 8), k) for k in range(3)] + [real((N,), 3)]
    args = placed(arrays, [P("i")] * 4, mesh_1d())
    tolerance = 5e-2 if name == "narrow" else 1e-4
    program = jax.jit(lambda *x: results(f, *x))
    for got, want in zip(program(*args), results(f, *map(jnp.asarray, arrays)), strict=True):
        assert_same(got, np.asarray(want), rtol=tolerance, atol=tolerance)
    assert SIZE == 1 or (kinds(f, args) == {"permute"}) == bool(goes_round)


def test_rows_without_an_allowed_column():
    """A block may have no allowed column for a row, and the next block some; a row without any is nan, as on one rank."""
    q, k, v = (real((N, 8), k) for k in range(3))
    lowest = np.arange(N)[:, None] < np.arange(N) - N // 2

    def f(q, k, v):
        return jax.nn.softmax(jnp.where(lowest, q @ k.T, -jnp.inf)) @ v

    want = np.asarray(f(*map(jnp.asarray, (q, k, v))))
    assert_same(jax.jit(f)(*placed([q, k, v], [P("i")] * 3, mesh_1d())), want, rtol=1e-4, atol=1e-4)


def test_two_mesh_axes_and_loops():
    f, arrays, _ = case("causal")
    mesh = mesh_2d((SIZE // 2 or 1, min(SIZE, 2)) if SIZE != 3 else (3, 1))
    for spec in (P("j", "i"), P(None, ("j", "i"))):
        args = [jax.device_put(x, NamedSharding(mesh, spec)) for x in arrays]
        assert_same(jax.jit(f)(*args), np.asarray(f(*map(jnp.asarray, arrays))), rtol=1e-4, atol=1e-4)

    def layers(q, k, v):
        return lax.scan(lambda x, _: (jax.checkpoint(attend)(x, k, v), None), q, length=3)[0]

    args = placed(arrays, [P(None, "i")] * 3, mesh_1d())
    for g in (layers, gradient(layers)):
        got, want = jax.jit(g)(*args), g(*map(jnp.asarray, arrays))
        for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert_same(x, np.asarray(y), rtol=1e-3, atol=1e-3)


def test_blocks_in_parts(monkeypatch):
    """A rank with a large block has it part by part."""
    f, arrays, specs = case("causal")
    for option, value in {"LARGE": 64, "PART": 64, "ROWS": 1, "TIMES": 0}.items():
        monkeypatch.setattr(by_parts, option, value)
    check(lambda *x: gradient(f)(*x), arrays, specs, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- random programs

BEGIN = [lambda q, k, m: q @ k.T, lambda q, k, m: ((q[:, None] - k[None]) ** 2).sum(-1), lambda q, k, m: k @ k.T]
FOLLOW = [
    lambda s, q, k, m: s / 2 + m[:, None],
    lambda s, q, k, m: jnp.where(jnp.tril(jnp.ones(s.shape, bool)), s, -4.0),
    lambda s, q, k, m: jnp.where(m[None] > 0, jnp.tanh(s), 0.5),
    lambda s, q, k, m: s * jnp.cos(q[:, :1] - k[:, 0]),
    lambda s, q, k, m: jax.nn.softmax(s),
    lambda s, q, k, m: jnp.exp(s - s.max(axis=1, keepdims=True)),
    lambda s, q, k, m: s / (1 + jnp.abs(s).sum(axis=1, keepdims=True)),
    lambda s, q, k, m: s - s.mean(axis=0) * m[:, None],
    lambda s, q, k, m: jnp.sin(s) * (k @ q.T),
]
END = [
    lambda s, v: s @ v, lambda s, v: s.T @ v, lambda s, v: s.sum(axis=0), lambda s, v: jnp.max(s, axis=1),
    lambda s, v: (s.sum(axis=1), (s * 2) @ jnp.cos(v)), lambda s, v: (s @ s.T).sum(axis=0),
]  # fmt: skip


def random_pairs(seed: int):
    rng = np.random.default_rng([seed, 17])
    parts = BEGIN[rng.integers(len(BEGIN))], [FOLLOW[k] for k in rng.integers(0, len(FOLLOW), rng.integers(1, 5))]
    end = END[rng.integers(len(END))]

    def program(q, k, v, m):
        s = parts[0](q, k, m)
        for follow in parts[1]:
            s = follow(s, q, k, m)
        return end(s, v)

    return program


def agrees(seed: int) -> None:
    f = random_pairs(seed)
    arrays = [real((N, 4), seed + k) for k in range(3)] + [real((N,), seed)]
    program = jax.jit(lambda *x: results(f, *x))
    got = program(*placed(arrays, [P("i")] * 4, mesh_1d()))
    wanted = jax.jit(lambda *x: results(f, *x))(*map(jnp.asarray, arrays))
    for ours, want in zip(got, wanted, strict=True):
        scale = max(1.0, float(np.abs(want).max()))
        assert_same(ours, np.asarray(want), rtol=1e-3, atol=2e-4 * scale)


@pytest.mark.parametrize("seed", one_in(2, range(4)))
def test_random_programs(seed):
    agrees(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_more_random_programs(first):
    for seed in range(first, first + 10):
        agrees(100 + seed)
