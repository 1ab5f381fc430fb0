"""Large products part by part: the same results, with a part of the large arrays at a time."""

from __future__ import annotations

import numpy as np
import pytest
from quickly import one_in

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.compiler.graph import by_parts
from mpijax.core.base.config import same_bits

BYTES = 2**16


def attend(q, k, v, mask=None):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    scores = scores if mask is None else jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


def causal(q, k, v):
    return attend(q, k, v, jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool)))


FUNCTIONS = {
    "attention": attend,
    "causal": causal,
    "dot_product_attention": jax.nn.dot_product_attention,
    "dot_product_attention, causal": lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
    "with a window": lambda q, k, v: jax.nn.dot_product_attention(q, k, v, local_window_size=16),
    "softmax(q k^T) v": lambda q, k, v: jax.nn.softmax(q[0, :, 0] @ k[0, :, 0].T) @ v[0, :, 0],
    "kernel": lambda q, k, v: jnp.exp(q[0, :, 0] @ k[0, :, 0].T / 8) @ v[0, :, 0],
    "recomputed": jax.checkpoint(attend),
    "twice": lambda q, k, v: attend(attend(q, k, v), k, v),
    "in a loop": lambda q, k, v: lax.fori_loop(0, 3, lambda i, x: x + attend(x, k, v), q),
}
GRADIENTS = [name for name in FUNCTIONS if name != "in a loop"]
SHAPES = [(1, 256, 1, 8), (2, 512, 2, 8)]


def gradient(f):
    return jax.value_and_grad(lambda q, k, v: jnp.sin(f(q, k, v)).sum(), (0, 1, 2))


def compiled(f, shape, large: int, monkeypatch):
    monkeypatch.setattr(by_parts, "LARGE", large)
    monkeypatch.setattr(by_parts, "PART", BYTES)
    rng = np.random.default_rng(len(shape) + sum(shape))
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(3)]
    found = jax.jit(lambda *x: f(*x)).lower(*arrays).compile()
    return jax.tree.leaves(found(*arrays)), found.memory_analysis().temp_size_in_bytes, found.as_text()


def compare(f, shape, monkeypatch) -> tuple[int, int]:
    """Bytes of temporaries without loops over parts and with them, the results being the same."""
    want, before, _ = compiled(f, shape, 2**40, monkeypatch)
    with jax.enable_checks(True):
        got, after, _ = compiled(f, shape, 2**17, monkeypatch)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5 * np.abs(w).max())
    return before, after


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.one_in(3)
def test_results_and_memory(name, shape, monkeypatch):
    before, after = compare(FUNCTIONS[name], shape, monkeypatch)
    assert after < before * 0.7


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.one_in(3)
def test_gradients(name, shape, monkeypatch):
    """Forwards and backwards in one loop: what is summed over rows is added up iteration by iteration."""
    before, after = compare(gradient(FUNCTIONS[name]), shape, monkeypatch)
    assert after < before * 0.7


def test_masks_are_made_part_by_part(monkeypatch):
    shape = (1, 512, 1, 8)
    _, _, text = compiled(causal, shape, 2**17, monkeypatch)
    largest = max(int(line.split()[-2]) for line in text.splitlines() if "temp offset" in line)
    assert "loop 8 times" in text and largest <= 512 * 512 * 4 // 8 + 2 * 512 * 8 * 4


KEPT = {
    "a result": lambda q, k, v: q[0, :, 0] @ k[0, :, 0].T,
    "sorted, which has no parts": lambda q, k, v: jnp.sort(jnp.sort(q[0, :, 0] @ k[0, :, 0].T, 0), 1)[0],
    "read whole": lambda q, k, v: (lambda s: (s @ v[0, :, 0], s))(q[0, :, 0] @ k[0, :, 0].T),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_would_save_nothing_is_left(name, monkeypatch):
    _, _, text = compiled(KEPT[name], (1, 256, 1, 8), 2**17, monkeypatch)
    assert " times" not in text


def test_same_bits_for_all_numbers_of_ranks(monkeypatch):
    """With the option sums are added up in no other order."""
    with same_bits(True):
        _, _, text = compiled(attend, (1, 256, 1, 8), 2**17, monkeypatch)
    assert " times" not in text


SIZE = 12
ONE = [
    jnp.sin,
    jnp.transpose,
    lambda x: jax.nn.softmax(x, 0),
    lambda x: jax.nn.softmax(x, 1),
    lambda x: x - x.max(1, keepdims=True),
    lambda x: x / (1 + abs(x).sum(0, keepdims=True)),
    lambda x: jnp.where(jnp.tril(jnp.ones(x.shape, bool)), x, -1.0),
    lambda x: jnp.cumsum(x, 0),
    lambda x: jnp.sort(x, 1),
    lambda x: jnp.roll(x, 1, 0),
    lambda x: jnp.flip(x, 1),
    lambda x: x.at[0].set(1.0),
    lambda x: x + jnp.arange(x.shape[0], dtype=jnp.int32)[:, None],
    lambda x: lax.fori_loop(0, 2, lambda i, c: c * 0.5 + i, x),
]
TWO = [jnp.add, jnp.multiply]


def random_program(seed):
    """Operations in a random order on the arguments and what was made of them; of products every other one."""

    def program(*arguments):
        rng = np.random.default_rng(seed)
        values = list(arguments)
        for _ in range(rng.integers(6, 20)):
            x, y = (values[-1 - rng.integers(min(n, len(values)))] for n in (6, len(values)))
            if rng.integers(2):
                y = y.T if x.shape[1] != y.shape[0] else y
                values += [x @ y / 8] if x.shape[1] == y.shape[0] else []
            elif x.shape == y.shape and rng.integers(2):
                values.append(TWO[rng.integers(len(TWO))](x, y))
            else:
                values.append(ONE[rng.integers(len(ONE))](x))
        return values[-1], sum(v.sum() for v in values[-4:])

    if seed % 2:
        return jax.grad(lambda *x: (lambda a, b: b + jnp.sin(a).sum())(*program(*x)), (0, 1, 2))
    return program


@pytest.mark.parametrize("seed", one_in(3, range(8)))
@pytest.mark.one_in(3)
def test_random_programs(seed, monkeypatch):
    check_random_program(seed, monkeypatch)


def test_a_loop_over_parts_that_reads_what_another_one_makes(monkeypatch):
    check_random_program(13, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(8, 608, 60))
def test_more_random_programs(first, monkeypatch):
    for seed in range(first, first + 60):
        check_random_program(seed, monkeypatch)


def check_random_program(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=shape) for shape in ((SIZE, 2), (2, SIZE), (SIZE, SIZE))]
    function = random_program(seed)

    def found(large):
        monkeypatch.setattr(by_parts, "LARGE", large)
        return jax.tree.leaves(jax.jit(lambda *x: function(*x)).lower(*arrays).compile()(*arrays))

    with jax.enable_x64(True), jax.enable_checks(True):
        want = found(2**40)
        monkeypatch.setattr(by_parts, "PART", int(rng.choice([16, 64, 200])))
        monkeypatch.setattr(by_parts, "ROWS", 1)
        monkeypatch.setattr(by_parts, "TIMES", 0)
        got = found(SIZE * SIZE * 8)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-6 * max(1, np.abs(w).max()))
