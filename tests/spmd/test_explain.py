"""What compiled programs tell of what they send, and of arrays that they make whole."""

import pytest
from spmd.ranks import SIZE, P, mesh_1d

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.core import config
from mpijax.runtime.machine import limits
from mpijax.sharding import NamedSharding

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")]


def rows(columns: int = 3):
    return jax.device_put(jnp.ones((4 * SIZE, columns)), NamedSharding(mesh_1d(), P("i")))


def gathering(x):
    return jnp.unique(x, size=3)


def test_a_table_names_the_line_and_the_bytes():
    text = jax.jit(lambda x: x.sum(0)).lower(rows()).compile().explain()
    header, message, *_ = text.splitlines()
    assert header.split() == ["line", "operation", "times", "bytes", "each", "bytes"]
    sent = round(2 * 12 * (SIZE - 1) / SIZE)
    assert "test_explain.py" in message and "psum" in message and message.split()[-1] == str(sent)
    assert f"sent by this rank: {sent} bytes" in text


def test_programs_that_send_nothing_say_so():
    assert jax.jit(lambda x: x * 2).lower(rows()).compile().explain().startswith("sends nothing")


def test_arrays_that_are_made_whole_are_named():
    text = jax.jit(gathering).lower(rows()).compile().explain()
    assert "made whole: f32[" in text and "test_explain.py" in text


@pytest.mark.parametrize("how", ["allow", "warn", "raise"])
def test_large_arrays_that_are_made_whole(how, monkeypatch):
    monkeypatch.setattr(limits, "gather_limit", lambda: 8)
    compiled = jax.jit(lambda x: gathering(x) + len(how)).lower(rows())
    config.update("mpijax_gather", how)
    try:
        if how == "raise":
            with pytest.raises(jax.errors.JaxRuntimeError, match="makes whole arrays on every rank"):
                compiled.compile()
        elif how == "warn":
            with pytest.warns(UserWarning, match="makes whole arrays on every rank") as seen:
                compiled.compile()
            assert seen[0].filename == __file__
        else:
            compiled.compile()
    finally:
        config.update("mpijax_gather", "warn")
