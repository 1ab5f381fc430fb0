"""What compiled programs tell of what they send, and of arrays that they make whole."""

import numpy as np
import pytest
from spmd.ranks import SIZE, P, mesh_1d

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.core.base import config
from mpijax.runtime.machine import limits
from mpijax.runtime.program.explain import explanation
from mpijax.sharding import NamedSharding

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks, pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")]


def rows(columns: int = 3):
    return jax.device_put(jnp.ones((4 * SIZE, columns)), NamedSharding(mesh_1d(), P("i")))


def gathering(x):
    return x[:, None] - x


def test_a_table_names_the_line_and_the_bytes():
    text = jax.jit(lambda x: x.sum(0)).lower(rows()).compile().explain()
    header, message, *_ = text.splitlines()
    assert header.split() == ["line", "operation", "times", "bytes", "each", "bytes", "memory", "why"]
    sent = round(2 * 12 * (SIZE - 1) / SIZE)
    assert "test_explain.py" in message and "psum" in message
    assert message.endswith(f" 1 {sent:11} {sent:6} {12:7}  reduce_sum combines values of the ranks")
    assert f"sent by this rank: {sent} bytes" in text


def test_programs_that_send_nothing_say_so():
    assert jax.jit(lambda x: x * 2).lower(rows()).compile().explain().startswith("sends nothing")


def test_arrays_that_are_made_whole_are_named():
    text = jax.jit(gathering).lower(rows()).compile().explain()
    assert "gathered: f32[" in text and "test_explain.py" in text


def reasons(f, x) -> list[str]:
    return [line["why"] for line in explanation(jax.jit(f).lower(x).compiler_ir())["lines"]]


def shifted(x):
    own = jax.shard_map(lambda s: jax.lax.psum(s, "i"), mesh=mesh_1d(), in_specs=P("i"), out_specs=P())
    return own(x)


@pytest.mark.parametrize(("f", "why"), [
    (lambda x: x[1:] - x[:-1], "sub reads elements of other ranks"),
    (lambda x: jnp.sort(x, axis=0), "sort needs the array sharded along another axis"),
    (lambda x: x.T @ x, "dot_general combines values of the ranks"),
    (lambda x: x @ x.T, "dot_general needs the whole of a sharded array"),
    (lambda x: jnp.sort(x[:, 0]), "the ranks compute sort together"),
    (lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh_1d(), P(None, "i"))), "the program asks for this sharding"),
    (lambda x: x[1:], "results are returned in equal shards"),
    (shifted, "the program communicates here"),
])  # fmt: skip
def test_reasons_for_messages(f, why):
    assert why in reasons(f, rows(4 * SIZE))


def test_messages_in_loops_have_the_reason_of_the_loops_operation():
    def f(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: jnp.sort(y + i), x)

    found = reasons(f, rows(1)[:, 0])
    assert "the ranks compute sort together" in found and "the program communicates here" not in found


def split_on(*axes):
    x = np.random.default_rng(0).normal(size=(2 * SIZE, 4 * SIZE, 4 * SIZE)).astype(np.float32)
    return jax.device_put(x, NamedSharding(mesh_1d(), P(*axes)))


def test_the_sharding_that_is_named_avoids_what_is_made_whole():
    def f(x):
        return jnp.linalg.qr(x)[1]

    [found] = explanation(jax.jit(f).lower(split_on(None, "i")).compiler_ir())["whole"]
    assert found["code"] == "return jnp.linalg.qr(x)[1]"
    assert found["avoid"].startswith("shard argument 0 (leaves count from 0) as P('i',), with in_shardings or")
    after = explanation(jax.jit(f).lower(split_on("i")).compiler_ir())
    assert after["whole"] == [] and after["sent"] == 0

    [inner] = explanation(jax.jit(lambda x: f(jnp.sin(x))).lower(split_on(None, "i")).compiler_ir())["whole"]
    assert inner["avoid"].endswith("jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P('i',)))")

    def constrained(x):
        return f(jax.lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh_1d(), P("i"))))

    assert explanation(jax.jit(constrained).lower(split_on(None, "i")).compiler_ir())["whole"] == []


def test_where_no_sharding_helps_a_shard_map_is_named():
    found = explanation(jax.jit(gathering).lower(rows()).compiler_ir())["whole"]
    assert found and all("jax.shard_map" in x["avoid"] for x in found)


@pytest.mark.parametrize("how", ["allow", "warn", "raise"])
def test_large_arrays_that_are_made_whole(how, monkeypatch):
    monkeypatch.setattr(limits, "gather_limit", lambda: 8)
    compiled = jax.jit(lambda x: gathering(x) + len(how)).lower(rows())
    config.update("mpijax_gather", how)
    try:
        if how == "raise":
            with pytest.raises(jax.errors.JaxRuntimeError, match="gathers sharded arrays on every rank"):
                compiled.compile()
        elif how == "warn":
            with pytest.warns(UserWarning, match="gathers sharded arrays on every rank") as seen:
                compiled.compile()
            assert seen[0].filename == __file__
        else:
            compiled.compile()
    finally:
        config.update("mpijax_gather", "warn")
