"""Tokens, sinks, `device_put` and `stage` in programs: Jaxprs are JAX's, and programs run."""

import copy
import pickle

import numpy as np
import pytest
from jaxprs import check_all
from oracle import OURS as jax

from mpijax import lax
from mpijax.extend.core import AbstractToken, Token, primitives

X = np.arange(3, dtype=np.float32)


def sunk(J):
    return lambda x: (J.lax.dce_sink({"a": x, "b": 2 * x}, prevent_mlir_dce=True), x)[1]


def merged(J):
    return lambda x: (J.lax.after_all(J.lax.create_token(), J.lax.create_token(x)), x + 1)[1]


TRACED = [
    ("tokens", merged, (X,)),
    ("no token", lambda J: lambda x: (J.lax.after_all(), x)[1], (X,)),
    ("grad of tokens", lambda J: J.grad(lambda x: (merged(J)(x) * x).sum()), (X,)),
    ("vmap of tokens", lambda J: J.vmap(merged(J)), (X,)),
    ("sink", sunk, (X,)),
    ("jvp of a sink", lambda J: lambda x: J.jvp(sunk(J), (x,), (x,)), (X,)),
    ("grad of a sink", lambda J: J.grad(lambda x: sunk(J)(x).sum()), (X,)),
    ("put", lambda J: lambda x: J.device_put((x, 2 * x)), (X,)),
    ("put on a device", lambda J: lambda x: J.device_put(x, J.devices()[0]), (X,)),
    ("put, copied", lambda J: lambda x: J.device_put(x, may_alias=False), (X,)),
    ("put, donated", lambda J: lambda x: J.device_put(x, donate=True), (X,)),
    ("contradiction", lambda J: lambda x: J.device_put(x, donate=True, may_alias=True), (X,)),
    ("jvp of put", lambda J: lambda x: J.jvp(J.device_put, (x,), (x,)), (X,)),
    ("grad of put", lambda J: J.grad(lambda x: J.device_put(x).sum()), (X,)),
    ("vmap of put", lambda J: J.vmap(J.device_put), (X,)),
    ("put by its primitive", lambda J: lambda x: J.lax.device_put_p.bind(
        x, devices=(None,), srcs=(None,), copy_semantics=()), (X,)),
    ("stage", lambda J: lambda x: (J.lax.stage_p.bind(x), J.lax.stage_p.bind(2), J.lax.stage(x)), (X,)),
    ("token expected", lambda J: J.lax.after_all, (X,)),
]  # fmt: skip


def test_jaxprs_are_jaxs():
    check_all(TRACED)


@pytest.mark.parametrize("make", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_tokens_go_through_programs(make):
    def f(token, x):
        token, _ = lax.scan(lambda t, _: (lax.after_all(t, t), None), lax.after_all(token), None, length=3)
        token, x = lax.optimization_barrier((token, x))
        return lax.cond(x[1] > 0, lambda t: t, lax.after_all, token), x

    token, x = make(f)(lax.create_token(), X)
    assert isinstance(token, Token)
    assert not isinstance(x, Token)
    np.testing.assert_array_equal(x, X)


def test_the_type_of_tokens():
    token = lax.create_token()
    assert repr(jax.typeof(token)) == str(jax.typeof(token)) == "AbstractToken()"
    assert isinstance(jax.typeof(token), AbstractToken)
    assert not isinstance(jax.typeof(X), AbstractToken)
    assert isinstance(Token(X), Token)
    assert AbstractToken() is jax.typeof(jax.block_until_ready(token))
    assert isinstance(pickle.loads(pickle.dumps(token)), Token)
    assert isinstance(copy.copy(token), Token)
    with pytest.raises(TypeError, match="Tok"):
        token + 1


def test_sinks_keep_what_nobody_reads():
    called = []
    number = jax.ShapeDtypeStruct((3,), np.float32)

    def f(x, sink):
        seen = jax.pure_callback(lambda v: called.append(1) or v, number, x)
        if sink:
            lax.dce_sink(seen)
        return x

    jax.jit(f, static_argnums=1)(X, False)
    assert not called
    jax.jit(f, static_argnums=1)(X, True)
    assert called
    assert lax.dce_sink(X) is None


def test_moves_in_programs_keep_values_and_derivatives():
    sharding = jax.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P("x"))
    f = jax.jit(lambda x: jax.device_put(3 * x, sharding))
    assert f(X).sharding.spec == jax.P("x")
    np.testing.assert_array_equal(f(X), 3 * X)
    np.testing.assert_array_equal(jax.grad(lambda x: (x * f(x)).sum())(X), 6 * X)
    np.testing.assert_array_equal(jax.jit(jax.vmap(f))(np.stack([X, X])), [3 * X, 3 * X])
    with pytest.raises(ValueError, match="only valid for values of rank at least 1"):
        jax.jit(lambda x: jax.device_put(x, sharding))(np.float32(1))


def test_primitives_have_jaxs_names():
    for name in ("create_token_p", "after_all_p", "dce_sink_p", "device_put_p", "stage_p", "select_and_scatter_p",
                 "ragged_all_to_all_p"):  # fmt: skip
        assert getattr(primitives, name) is getattr(lax, name)
