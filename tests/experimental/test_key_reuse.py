"""PRNG keys that are used twice: in programs beside JAX's static check, and in calls one after the other."""

import numpy as np
import pytest
from jax.experimental.key_reuse import _core as theirs
from oracle import OURS, THEIRS
from quickly import one_in

import mpijax
from mpijax import lax, random
from mpijax.errors import KeyReuseError
from mpijax.experimental.key_reuse import check_key_reuse

STEPS = np.arange(3.0, dtype=np.float32)


def programs(J):
    """Functions of a key, by what they do; those that reuse it end in an exclamation mark."""
    R, L, np_ = J.random, J.lax, J.numpy
    once = lambda key: R.bits(key)

    def after(*firsts):
        return lambda key: [f(key) for f in firsts] and R.uniform(key)

    def loop(body):
        return lambda key: L.scan(body(key), key, STEPS)

    def turning(going, body):
        return lambda key: L.while_loop(going(key), body(key), (0.0, key))

    forever = lambda key: lambda c: c[0] < 3
    chain = lambda _: lambda key, __: (lambda pair: (pair[0], R.bits(pair[1])))(R.split(key))
    return {
        "once": once,
        "twice!": after(once),
        "after a split!": after(R.split),
        "after folding": after(lambda k: R.fold_in(k, 1)),
        "after its data": after(R.key_data),
        "after a clone": after(lambda k: R.bits(R.clone(k))),
        "clone of a used one": lambda key: R.bits(R.clone(key)) + R.bits(key),
        "halves": lambda key: [R.bits(k) for k in R.split(key)],
        "a half twice!": lambda key: [R.bits(R.split(key)[0])] + [R.bits(key)],
        "elements": lambda key: (lambda ks: [R.bits(ks[0]), R.bits(ks[2]), R.bits(ks[1])])(R.split(key, 3)),
        "an element twice!": lambda key: (lambda ks: [R.bits(ks[i]) for i in (0, 1, 0)])(R.split(key, 3)),
        "all, then one!": lambda key: (lambda ks: [J.vmap(R.bits)(ks), R.bits(ks[0])])(R.split(key, 3)),
        "other shape!": lambda key: R.bits(key) + R.bits(key[None].reshape(1, 1)[0, 0]),
        "copy!": lambda key: R.bits(key) + R.bits(np_.array(key, copy=True)),
        "jit": lambda key: J.jit(once)(key),
        "jit twice!": lambda key: [J.jit(once)(key), J.jit(once)(key)],
        "jit inside!": lambda key: J.jit(after(once))(key),
        "jit of another": lambda key: [J.jit(lambda k, x: x)(key, 1.0), R.bits(key)],
        "jit hands on!": lambda key: (lambda k: [R.bits(k), R.bits(key)])(J.jit(lambda k: k)(key)),
        "either branch": lambda key: L.cond(True, R.uniform, R.normal, key),
        "one branch!": after(lambda k: L.cond(True, R.uniform, lambda _: np_.float32(0), k)),
        "no branch": after(lambda k: L.cond(True, lambda _: 0.0, lambda _: 1.0, k)),
        "carried": loop(chain),
        "not carried!": loop(lambda _: lambda key, __: (key, R.bits(key))),
        "closed over!": loop(lambda outer: lambda key, __: (key, R.bits(outer))),
        "stacked": lambda key: L.map(R.bits, R.split(key, 3)),
        "turns": turning(forever, lambda _: lambda c: (lambda p: (c[0] + R.uniform(p[0]), p[1]))(R.split(c[1]))),
        "equal turns!": turning(forever, lambda _: lambda c: (c[0] + R.uniform(c[1]), c[1])),
        "turns closed over!": turning(forever, lambda outer: lambda c: (c[0] + R.uniform(outer), c[1])),
        "condition!": turning(lambda _: lambda c: c[0] < R.uniform(c[1]), lambda _: lambda c: (c[0] + 1, c[1])),
        "checkpoint": lambda key: J.grad(J.checkpoint(lambda x: x * R.uniform(key)))(1.0),
        "checkpoint!": lambda key: J.checkpoint(lambda x: x * R.uniform(key) + R.normal(key))(1.0),
        "vmap": lambda key: J.vmap(R.uniform)(R.split(key, 3)),
        "no keys": lambda key: J.vmap(lambda k: [R.bits(half) for half in R.split(k)])(R.split(key, 0)),
        "in two ways": lambda key: R.poisson(key, 3.0, (2,)),
    }  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, programs(OURS)))
def test_programs_that_reuse_keys_are_found(name):
    """JAX finds the same."""
    jaxs, reused = None, name.endswith("!")
    try:
        theirs.check_key_reuse(programs(THEIRS)[name], THEIRS.random.key(0))
    except THEIRS.errors.KeyReuseError as error:
        jaxs = error
    assert (jaxs is not None) == reused
    fun = programs(OURS)[name]
    if reused:
        with pytest.raises(KeyReuseError, match="is already consumed|leads to key reuse when repeatedly executed"):
            check_key_reuse(fun, random.key(0))
        with mpijax.debug_key_reuse(True), pytest.raises(KeyReuseError):
            mpijax.jit(fun)(random.key(0))
    else:
        check_key_reuse(fun, random.key(0))
        with mpijax.debug_key_reuse(True):
            mpijax.jit(fun)(random.key(0))


@pytest.fixture
def watched():
    with mpijax.debug_key_reuse(True):
        yield


@pytest.mark.parametrize("name", programs(OURS))
@pytest.mark.one_in(4)
def test_calls_that_reuse_keys_are_found(name, watched):
    fun, key = programs(OURS)[name], random.key(1)
    if name.endswith("!"):
        with pytest.raises(KeyReuseError):
            fun(key)
    else:
        fun(key)


def test_messages_name_the_first_use(watched):
    key = random.key(0)
    random.normal(key)  # here
    with pytest.raises(KeyReuseError, match=r"Previously-consumed key passed to jit-compiled function at index 0.*test_key"):
        random.uniform(key)
    with pytest.raises(KeyReuseError, match="Previously-consumed key passed to random_split at index 0"):
        random.split(key)


def test_keys_are_told_apart(watched):
    for _ in range(3):
        random.normal(random.key(0))  # equal keys, each used once
    old = random.PRNGKey(0)
    random.normal(old), random.normal(old)


def test_without_the_option_nothing_is_remembered():
    key = random.key(0)
    draw = mpijax.jit(random.normal)
    assert draw(key) == draw(key) == random.normal(key)
    with mpijax.debug_key_reuse(True):
        draw(key)
        with pytest.raises(KeyReuseError):
            draw(key)
    assert draw(key) == lax.cond(True, random.normal, random.uniform, key)


def test_a_users_primitive_says_what_it_does_with_keys():
    def primitive(name, **rules):
        p = mpijax.extend.core.Primitive(name, type_rule=lambda key: key, **rules)
        return lambda key: p.bind(key)

    looks = primitive("looks_at_a_key", keys=mpijax.extend.keys.SAME)
    uses = primitive("uses_a_key")
    check_key_reuse(lambda key: random.bits(looks(key)), random.key(0))
    with pytest.raises(KeyReuseError, match="looks_at_a_key|random_bits"):
        check_key_reuse(lambda key: [random.bits(looks(key)), random.bits(key)], random.key(0))
    with pytest.raises(KeyReuseError, match="uses_a_key|random_bits"):
        check_key_reuse(lambda key: [uses(key), random.bits(key)], random.key(0))
