"""Small public names of JAX: what a program can see of them."""

import numpy as np
import pytest
from oracle import OURS, THEIRS

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.extend import core, linear_util
from mpijax.interpreters import ad
from mpijax.interpreters import partial_eval as pe

X = np.arange(3, dtype=np.float32)


# ---------------------------------------------------------------- contexts of users


def test_functions_are_traced_for_each_value_of_a_users_context():
    def traces(J):
        context, seen = J.make_user_context("none"), []

        @J.jit
        def f(x):
            seen.append(context.value)
            return x

        f(X)
        with context("a"):
            f(X)
            with context("b"):
                f(X)
            f(X)
        f(X)
        context.set_global("c")
        f(X)
        return seen, context.value, context.get_global()

    assert traces(OURS) == traces(THEIRS) == (["none", "a", "b", "c"], "c", "c")


def test_a_new_context_keeps_what_was_traced():
    traced = []
    f = jax.jit(lambda x: traced.append(1) or x)
    f(X)
    context = jax.make_user_context()
    f(X)
    assert len(traced) == 1
    assert (context.value, repr(context)) == (None, "<user context = None>")
    with pytest.raises(TypeError, match="unhashable"):
        context([])


# ---------------------------------------------------------------- debug, memory, ffi, profiler


@pytest.mark.parametrize("ordered", [False, True])
def test_effects_of_debugging_have_classes(ordered):
    def found(J):
        shown = lambda x: J.debug.print("{}", x, ordered=ordered)
        called = lambda x: J.debug.callback(print, x, ordered=ordered)
        effects = [e for f in (shown, called) for e in J.make_jaxpr(f)(1.0).effects]
        classes = (J.debug.DebugEffect, J.debug.OrderedDebugEffect)
        return [str(e) for e in effects], [[isinstance(e, c) for c in classes] for e in effects]

    assert found(OURS) == found(THEIRS)
    assert jax.debug.DebugEffect() == jax.debug.DebugEffect()


def test_there_is_one_memory():
    spaces = jax.memory.Space
    assert [repr(s) for s in spaces] == [repr(s) for s in THEIRS.memory.Space]
    for space in spaces:
        np.testing.assert_array_equal(jax.device_put(X, space), X)
        np.testing.assert_array_equal(jax.jit(lambda x, space=space: jax.device_put(x, space))(X), X)
    assert repr(jax.typeof(X).memory_space) == repr(THEIRS.typeof(X).memory_space)
    laid_out = jax.device_put(X, jax.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P("x")))
    assert jax.device_put(laid_out, spaces.Host).sharding == laid_out.sharding.with_memory_kind("pinned_host")


def test_type_ids_are_refused_as_jax_refuses_them():
    for J in (OURS, THEIRS):
        with pytest.raises(ValueError, match="register_ffi_type_id is not supported"):
            J.ffi.register_ffi_type_id("state", None)


def test_options_of_the_profiler(tmp_path):
    ours, theirs = jax.profiler.ProfileOptions(), THEIRS.profiler.ProfileOptions()
    names = [n for n in dir(theirs) if not n.startswith("_")]
    assert {n: getattr(ours, n) for n in names} == {n: getattr(theirs, n) for n in names}
    ours.host_tracer_level = 3
    with pytest.raises(AttributeError):
        ours.host_level = 3
    with jax.profiler.trace(tmp_path, profiler_options=ours):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["rank0.trace.json"]


# ---------------------------------------------------------------- interpreters


def test_the_primitive_of_sums_of_tangents():
    make = lambda J: lambda x: J.interpreters.ad.add_jaxvals_p.bind(x, x)
    assert str(OURS.make_jaxpr(make(OURS))(X)) == str(THEIRS.make_jaxpr(make(THEIRS))(X))
    np.testing.assert_array_equal(ad.add_jaxvals_p.bind(X, X), 2 * X)


def test_dead_constants_are_taken_out():
    table, other = np.arange(3.0), np.arange(2.0)

    def pruned(J, used, instantiate):
        closed = J.make_jaxpr(lambda x, y: (x + J.numpy.asarray(table), J.numpy.asarray(other) * y))(X, 2.0)
        jaxpr, consts, inputs = J.interpreters.partial_eval.dce_jaxpr_consts(closed.jaxpr, used, instantiate)
        return len(jaxpr.constvars), len(jaxpr.invars), [e.primitive.name for e in jaxpr.eqns], inputs, sum(consts)

    for used in ([True, False], [False, True], [False, False], [True, True]):
        for instantiate in (False, True):
            ours, theirs = (pruned(J, used, instantiate) for J in (OURS, THEIRS))
            assert ours[2:4] == theirs[2:4]
            assert ours[1] == theirs[1]
            assert ours[0] == ours[4]


def test_rules_for_dead_code():
    pair_p = core.Primitive("pair_with_dce", multiple_results=True)
    pair_p.def_impl(lambda *xs: [2 * x for x in xs])
    pair_p.def_abstract_eval(lambda *xs: list(xs))

    def rule(used, eqn):
        invars = [v for v, u in zip(eqn.invars, used, strict=True) if u]
        outvars = [v for v, u in zip(eqn.outvars, used, strict=True) if u]
        return used, core.new_jaxpr_eqn(invars, outvars, eqn.primitive, eqn.params, eqn.effects, eqn.source)

    jaxpr = jax.make_jaxpr(lambda x, y: pair_p.bind(x, y))(X, X).jaxpr
    assert pair_p not in pe.dce_rules
    assert pe.dce_jaxpr(jaxpr, [True, False])[1] == [True, True]
    pe.dce_rules[pair_p] = rule
    assert pe.dce_rules[pair_p] is rule
    pruned, used = pe.dce_jaxpr(jaxpr, [False, True])
    assert used == [False, True]
    assert len(pruned.eqns[0].invars) == 1
    assert pe.dce_jaxpr(jaxpr, [False, False])[0].eqns == []
    del pe.dce_rules[pair_p]
    assert pair_p not in pe.dce_rules
    eqn = jax.make_jaxpr(lambda x, y: jax.jit(lambda a, b: (jnp.sin(a), jnp.cos(b)))(x, y))(X, X).eqns[0]
    used, smaller = pe.dce_rules[eqn.primitive]([True, False], eqn)
    assert used == [True, False]
    assert len(smaller.outvars) == 1


# ---------------------------------------------------------------- extend.core


def test_calls_of_wrapped_functions():
    double = linear_util.wrap_init(lambda x: [2 * x])
    call_p = core.CallPrimitive("calls_double")
    assert core.call_impl(double, 3, name="unused") == [6]
    assert call_p.bind(double, 3) == call_p.bind(3, subfuns=(double,)) == [6]
    np.testing.assert_array_equal(jax.jit(lambda x: call_p.bind(x, subfuns=(double,))[0])(X), 2 * X)
    assert call_p.multiple_results
    with pytest.raises(TypeError, match="subfuns"):
        call_p.bind(3)


def programs():
    mesh = jax.make_mesh((1,), ("x",))
    mapped = jax.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P())
    return [
        lambda x: jnp.sin(x) * 2,
        jax.grad(lambda x: jnp.tanh(x).sum()),
        lambda x: lax.scan(lambda c, v: (c + v, c), x[0], x),
        lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
        lambda x: lax.while_loop(lambda v: v[0] < 3, lambda v: v + 1, x),
        mapped,
        jax.vmap(lambda v: jnp.searchsorted(jnp.arange(4.0), v)),
    ]


def test_programs_are_well_formed():
    for f in programs():
        assert core.check_jaxpr(jax.make_jaxpr(f)(X).jaxpr) is None


def broken():
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) + x)(X).jaxpr
    sin, add = jaxpr.eqns
    other = core.Var(jax.core.ShapedArray((4,), np.float32))
    yield "read an unassigned variable", jaxpr.replace(eqns=[add])
    yield "read an unassigned variable", jaxpr.replace(outvars=[other])
    yield "assigned twice", jaxpr.replace(eqns=[sin, sin, add])
    yield "have types", jaxpr.replace(eqns=[sin.replace(outvars=[other]), add.replace(invars=[other, other])])
    yield "rejects its operands", jaxpr.replace(eqns=[sin, add.replace(invars=[*sin.outvars, other])],
                                                      constvars=[other])  # fmt: skip
    yield "twice among the arguments", jaxpr.replace(invars=[*jaxpr.invars, *jaxpr.invars])


def test_what_is_wrong_with_a_program_is_told():
    for message, jaxpr in broken():
        with pytest.raises(core.JaxprTypeError, match=message):
            core.check_jaxpr(jaxpr)
