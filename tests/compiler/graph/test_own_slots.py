"""What the compiler knows of operations stands in slots, which a primitive of a user may have too."""

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.compiler.graph import by_parts
from mpijax.compiler.graph.build import build_graph
from mpijax.compiler.graph.nodes import text_of
from mpijax.core.rules import lowering
from mpijax.extend import core
from mpijax.scalar.registry import RULES

Meaning, ViewKind = lowering.Meaning, lowering.ViewKind


def elementwise(name, rule, dtype=None, **slots):
    def type_rule(x, *_):
        return x.update(dtype=dtype or x.dtype)

    lower = lowering.Elementwise(lambda b, *xs: RULES[rule](b, *xs), **slots)
    return core.Primitive(f"own_{name}", type_rule=type_rule, reference=getattr(np, name), lower=lower)


def structural(name, shape, reference, read, view, **slots):
    def type_rule(x):
        return x.update(shape=shape(x.shape))

    lower = lowering.Structural(read, view, **slots)
    return core.Primitive(f"own_{name}", type_rule=type_rule, reference=reference, lower=lower)


quotient_p = elementwise("divide", "div", meaning=Meaning.QUOTIENT)
greater_p = elementwise("greater", "gt", np.dtype(bool), meaning=Meaning.GREATER)
differs_p = elementwise("not_equal", "ne", np.dtype(bool), over_words=lowering.Combiner.OR)
turned_p = structural(
    "turned", lambda s: s[::-1], np.transpose, lambda r, index, *_: r.read(0, index[::-1]), ViewKind.STRIDED,
    axes=lambda params: (1, 0),
)  # fmt: skip
rows_p = structural(
    "rows", lambda s: (6, *s), lambda x: np.broadcast_to(x, (6, *x.shape)), lambda r, index, *_: r.read(0, index[1:]),
    ViewKind.REPEATED, axes=lambda params: (1,),
)  # fmt: skip
counted_p = core.Primitive(
    "own_counted",
    type_rule=lambda *, n: jax.core.ShapedArray((n, n), np.int32),
    reference=lambda *, n: np.broadcast_to(np.arange(n, dtype=np.int32), (n, n)),
    lower=lowering.Structural(
        lambda r, index, avals, params: r.convert(r.index(index[1]), np.dtype(np.int32)), counts=lambda params: 1
    ),
)


def of_relu(greater):
    return lambda x: (lax.max(x, np.float32(0)), greater(x, np.float32(0)))


@pytest.mark.parametrize(
    ("own", "known", "shapes"),
    [
        (lambda x, y: turned_p.bind(x @ y), lambda x, y: (x @ y).T, ((4, 3), (3, 5))),
        (lambda x: rows_p.bind(jnp.broadcast_to(x, (5,))), lambda x: jnp.broadcast_to(x, (6, 5)), ((),)),
        (of_relu(greater_p.bind), of_relu(lax.gt), ((7,),)),
        (
            lambda x: jnp.linalg.cholesky(quotient_p.bind(x + turned_p.bind(x), np.float32(2)), symmetrize_input=False),
            lambda x: jnp.linalg.cholesky((x + x.T) / np.float32(2), symmetrize_input=False),
            ((3, 3),),
        ),
    ],
)
def test_operations_are_simplified_by_their_slots(own, known, shapes):
    args = [np.ones(s, np.float32) for s in shapes]
    graphs = [text_of(build_graph(jax.make_jaxpr(f)(*args))) for f in (own, known)]
    lines = [[line.partition(";")[0].replace("own_greater", "gt") for line in g.splitlines()] for g in graphs]
    assert lines[0] == lines[1]


def test_keys_are_compared_word_by_word():
    keys = jax.random.split(jax.random.key(0), 3)
    assert jax.jit(differs_p.bind)(keys, keys[jnp.array([0, 2, 2])]).tolist() == [False, True, False]


def test_positions_are_made_in_the_parts_of_a_divided_product(monkeypatch):
    monkeypatch.setattr(by_parts, "LARGE", 2**17)
    monkeypatch.setattr(by_parts, "PART", 2**15)
    n = 256
    x = np.random.default_rng(0).standard_normal((n, 4)).astype(np.float32)

    def f(counted):
        def compute(x):
            weights = jnp.where(counted() <= 5, x @ x.T, 0)
            return (weights / jnp.sum(jnp.abs(weights), 1, keepdims=True)) @ x

        return jax.jit(compute).lower(x).compile()

    own, known = f(lambda: counted_p.bind(n=n)), f(lambda: lax.broadcasted_iota(jnp.int32, (n, n), 1))
    np.testing.assert_array_equal(own(x), known(x))
    sizes = [c.memory_analysis().temp_size_in_bytes for c in (own, known)]
    assert sizes[0] == sizes[1] < 4 * n * n
