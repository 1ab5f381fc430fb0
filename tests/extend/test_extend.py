"""Operations defined outside of mpijax: JAX's way and ours, side by side with JAX, and rules that are missing."""

from __future__ import annotations

import dataclasses
import functools
import importlib

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, run, sample

X, Y, Z = sample(3), sample(3, seed=1), sample(3, seed=2)
XS = sample(2, 3)
LIBRARIES = [THEIRS, OURS]


def part(J, name):
    return importlib.import_module(f"{J.name}.{name}")


@functools.cache
def tables(J):
    return [part(J, f"interpreters.{name}") for name in ("ad", "batching", "mlir", "xla")]


def new(J, name="unfinished"):
    return part(J, "extend.core").Primitive(name)


@functools.cache
def mul_add(J):
    """x y + z with every rule, as JAX's documentation on primitives builds it."""
    ad, batching, mlir, _ = tables(J)
    p = new(J, "mul_add")
    p.def_impl(lambda x, y, z: np.asarray(np.multiply(x, y) + z, np.float32))
    p.def_abstract_eval(lambda x, y, z: part(J, "core").ShapedArray(x.shape, x.dtype))
    lowering = mlir.lower_fun(lambda x, y, z: x * y + z, multiple_results=False)
    mlir.register_lowering(p, lowering, platform="cpu")
    mlir.register_lowering(p, lowering, platform="cuda")

    def jvp(primals, tangents):
        x, y, z = primals
        xt, yt, zt = (J.numpy.zeros_like(x) if type(t) is ad.Zero else t for t in tangents)
        return p.bind(x, y, z), p.bind(xt, y, p.bind(x, yt, zt))

    def transpose(ct, x, y, z):
        zero = J.numpy.zeros_like(ct)
        if ad.is_undefined_primal(x):
            return (ad.Zero(x.aval) if type(ct) is ad.Zero else p.bind(ct, y, zero)), None, ct
        return None, (ad.Zero(y.aval) if type(ct) is ad.Zero else p.bind(x, ct, zero)), ct

    def batch(args, dims):
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        return p.bind(*(batching.bdim_at_front(x, d, size) for x, d in zip(args, dims, strict=True))), 0

    ad.primitive_jvps[p] = jvp
    ad.primitive_transposes[p] = transpose
    batching.primitive_batchers[p] = batch
    return p


# ---------------------------------------------------------------- JAX's way


def square_add(J):
    return lambda x, z: mul_add(J).bind(x, x, z)


@pytest.mark.parametrize(
    "make",
    [
        square_add,
        lambda J: lambda x, z: J.jvp(square_add(J), (x, z), (z, x)),
        lambda J: J.grad(lambda x, z: square_add(J)(x, z).sum(), argnums=(0, 1)),
        lambda J: J.vmap(J.grad(square_add(J), argnums=(0, 1))),
        lambda J: lambda x, z: J.vmap(square_add(J), in_axes=(0, None))(J.numpy.stack([x, z]), z),
        lambda J: J.grad(lambda x, z: J.grad(lambda v: (square_add(J)(v, z) ** 2).sum())(x).sum()),
        lambda J: lambda x, z: J.lax.scan(lambda c, v: (square_add(J)(c, v), c), x, J.numpy.stack([z, x]))[0],
        lambda J: lambda x, z: J.lax.fori_loop(0, 2, lambda i, c: square_add(J)(c, z), x),
    ],
)
def test_values_are_jaxs(make):
    check(lambda J: J.jit(make(J)), X, Z, jaxpr=False, eager=True, jitted=False)


@pytest.mark.parametrize(
    "make",
    [
        square_add,
        lambda J: J.grad(lambda x, z: square_add(J)(x, z).sum(), argnums=(0, 1)),
        lambda J: lambda x, z: J.vmap(square_add(J), in_axes=(0, None))(J.numpy.stack([x, z]), z),
        lambda J: lambda x, z: J.jvp(square_add(J), (x, z), (z, x)),
    ],
)
def test_jaxprs_are_jaxs(make):
    theirs, ours = (run(lambda J=J: str(J.make_jaxpr(make(J))(X, Z))) for J in LIBRARIES)
    assert theirs == ours


@pytest.mark.parametrize("J", LIBRARIES, ids=lambda J: J.__name__)
def test_closed_jaxprs_have_the_parts_of_their_jaxpr(J):
    closed = J.make_jaxpr(lambda x: x + XS)(1.0)
    for name in ("constvars", "invars", "outvars", "eqns", "effects", "debug_info"):
        assert getattr(closed, name) is getattr(closed.jaxpr, name)


def test_outside_of_programs_the_implementation_runs():
    seen = []
    p = new(OURS)
    p.def_impl(lambda *xs, k: seen.append(xs) or xs[0])
    x = OURS.numpy.asarray(X)
    assert p.bind(x, 2.0, k=1) is x and seen[0][0] is x and seen[0][1] == 2.0


def test_without_an_implementation_the_lowering_runs():
    _, _, mlir, xla = tables(OURS)
    p = new(OURS)
    p.multiple_results = True
    p.def_abstract_eval(lambda x, *, by: (x, x))
    mlir.register_lowering(p, mlir.lower_fun(lambda x, *, by: (x + by, x * by)))
    for _ in range(2):
        plus, times = p.bind(X, by=3.0)
        np.testing.assert_array_equal(plus, X + 3)
        np.testing.assert_array_equal(times, X * 3)
        p.def_impl(functools.partial(xla.apply_primitive, p))


@pytest.mark.parametrize("in_jaxs_form", [False, True])
@pytest.mark.parametrize("J", LIBRARIES)
def test_parameters_may_have_any_name(J, in_jaxs_form):
    _, _, mlir, _ = tables(J)
    p = typed(J)
    p.def_abstract_eval(lambda x, *, prim, rule: x)
    lowering = mlir.lower_fun(lambda x, *, prim, rule: x * prim + rule, multiple_results=False)
    mlir.register_lowering(p, (lambda ctx, *xs, **ps: lowering(ctx, *xs, **ps)) if in_jaxs_form else lowering)
    np.testing.assert_array_equal(J.jit(lambda x: p.bind(x, prim=2.0, rule=1.0))(X), 2 * X + 1)


def test_the_lowering_is_compiled_with_what_is_around_it():
    text = OURS.jit(lambda x: square_add(OURS)(x, 1.0 + x) * 2).lower(X).compile().as_text()
    assert text.count("kernel") == 1 and "host" not in text


def test_a_second_primitive_of_a_name_is_another_one():
    def times(factor):
        return simple(OURS, "times", lambda x: x * factor).bind

    double, triple = times(2), times(3)
    np.testing.assert_array_equal(OURS.jit(triple)(X), X * 3)
    np.testing.assert_array_equal(OURS.jit(lambda x: double(x) + triple(x))(X), X * 5)


def test_effects_keep_calls():
    lowering = part(OURS, "extend").lowering
    calls = []
    effect = type("Tick", (part(OURS, "extend.core").Effect,), {"kept": property(lambda self: True)})()
    p = new(OURS)
    p.def_effectful_abstract_eval(lambda x: (x, {effect}))
    p.lower = lowering.HostCall(lambda x: calls.append(1) or x)
    OURS.jit(lambda x: (p.bind(x), p.bind(x), x)[2])(X)
    assert len(calls) == 2


# ---------------------------------------------------------------- short forms of rules


def simple(J, name, fun, shape=lambda *avals, **params: avals[0]):
    _, _, mlir, xla = tables(J)
    p = new(J, name)
    p.def_impl(functools.partial(xla.apply_primitive, p))
    p.def_abstract_eval(shape)
    mlir.register_lowering(p, mlir.lower_fun(fun, multiple_results=False))
    return p


@functools.cache
def by_operand(J):
    ad, batching, _, _ = tables(J)
    p = simple(J, "by_operand", lambda x, y: x * y)
    ad.defjvp(p, lambda t, x, y: t * y, None)
    batching.defbroadcasting(p)
    return p


@functools.cache
def by_result(J):
    ad, batching, _, _ = tables(J)
    p = simple(J, "by_result", J.numpy.exp)
    ad.defjvp2(p, lambda t, out, x: t * out)
    batching.defvectorized(p)
    return p


@functools.cache
def linear(J):
    ad, batching, _, _ = tables(J)
    p = simple(J, "linear", lambda x, *, by: x * by)
    ad.deflinear2(p, lambda ct, x, *, by: [p.bind(ct, by=by)])
    batching.defvectorized(p)
    return p


@functools.cache
def bilinear(J):
    ad, _, _, _ = tables(J)
    p = simple(J, "bilinear", lambda x, y: x * y)
    ad.defbilinear(p, lambda ct, x, y: p.bind(ct, y), lambda ct, x, y: p.bind(x, ct))
    return p


@functools.cache
def reducer(J):
    _, batching, _, _ = tables(J)
    shaped = part(J, "core").ShapedArray

    def shape(x, *, axes):
        return shaped(tuple(d for i, d in enumerate(x.shape) if i not in axes), x.dtype)

    p = simple(J, "reducer", lambda x, *, axes: J.numpy.sum(x, axes), shape)
    batching.defreducer(p)
    return p


@pytest.mark.parametrize(
    "make, args",
    [
        (lambda J: J.grad(lambda x, y: by_operand(J).bind(x, y).sum(), argnums=(0, 1)), (X, Y)),
        (lambda J: J.vmap(by_operand(J).bind, in_axes=(0, None)), (XS, np.ones(1, np.float32))),
        (lambda J: J.vmap(by_operand(J).bind, in_axes=(0, 0)), (X, Y)),
        (lambda J: J.vmap(J.grad(lambda x: by_result(J).bind(x).sum())), (XS,)),
        (lambda J: J.grad(lambda x: (linear(J).bind(x, by=3.0) * X).sum()), (X,)),
        (lambda J: J.vmap(lambda x: linear(J).bind(x, by=3.0)), (XS,)),
        (lambda J: J.grad(lambda x, y: bilinear(J).bind(x, y).sum(), argnums=(0, 1)), (X, Y)),
        (lambda J: J.vmap(lambda x: reducer(J).bind(x, axes=(1,)), in_axes=1), (sample(2, 3, 4),)),
        (lambda J: J.vmap(lambda x: reducer(J).bind(x, axes=(0,)), in_axes=2), (sample(2, 3, 4),)),
    ],
)
def test_short_forms_do_what_jaxs_do(make, args):
    check(lambda J: J.jit(make(J)), *args, jaxpr=False, jitted=False, rtol=1e-6)


# ---------------------------------------------------------------- our way


def test_all_rules_in_one_record():
    core, lowering = part(OURS, "extend.core"), part(OURS, "extend").lowering
    p = core.Primitive(
        "cubed",
        type_rule=lambda x: x,
        reference=lambda x: x**3,
        lower=lowering.Elementwise(lambda b, x: lowering.on_floats(b, lambda x: x * x * x, x)),
        jvp=lambda primals, tangents: (p.bind(*primals), 3 * primals[0] ** 2 * tangents[0]),
        batch=lambda axis, args, dims: (p.bind(*args), dims[0]),
    )
    np.testing.assert_array_equal(p.bind(X), X**3)
    np.testing.assert_array_equal(OURS.jit(OURS.vmap(OURS.grad(p.bind)))(X), 3 * X**2)
    assert "cubed" in OURS.jit(p.bind).lower(X).as_text()
    with pytest.raises(NotImplementedError, match="Transpose rule .* for 'cubed' not implemented"):
        p.transpose(X, X)


def test_a_reference_is_called_where_the_lowering_is_no_record():
    core = part(OURS, "extend.core")
    p = core.Primitive("sorted_", type_rule=lambda x: x, reference=np.sort, lower=part(OURS, "extend").lowering.HostCall(np.sort))
    np.testing.assert_array_equal(OURS.jit(p.bind)(X), np.sort(X))


# ---------------------------------------------------------------- missing rules, and what is refused


def typed(J):
    p = new(J)
    p.def_abstract_eval(lambda x: x)
    return p


def lowered(J):
    _, _, mlir, _ = tables(J)
    p = typed(J)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x, multiple_results=False))
    return p


def differentiable(J):
    ad, _, _, _ = tables(J)
    p = lowered(J)
    p.def_impl(lambda x: x)
    ad.primitive_jvps[p] = lambda primals, tangents: (p.bind(*primals), p.bind(*tangents))
    return p


MISSING = [
    (lambda J: new(J).bind(X), "Evaluation rule for 'unfinished' not implemented", "def_impl"),
    (lambda J: J.jit(new(J).bind)(X), "Abstract evaluation for 'unfinished' not implemented", "def_abstract_eval"),
    (lambda J: J.jit(typed(J).bind)(X), "MLIR translation rule for primitive 'unfinished' not found", "lower_fun"),
    (lambda J: J.jvp(lowered(J).bind, (X,), (X,)), "Differentiation rule for 'unfinished' not implemented", "primitive_jvps"),
    (lambda J: J.grad(lambda x: differentiable(J).bind(x).sum())(X), "Transpose rule", "primitive_transposes"),
    (lambda J: J.vmap(lowered(J).bind)(X), "Batching rule for 'unfinished' not implemented", "primitive_batchers"),
]


@pytest.mark.parametrize("J", LIBRARIES)
def test_lowerings_of_marks_hand_operands_on(J):
    """A primitive that marks values is lowered to those; derivatives and vmap go through its own rules."""
    ad, batching, mlir, _ = tables(J)
    p = new(J, "mark")
    p.multiple_results = True
    p.def_abstract_eval(lambda x, y, *, of: (y, x))
    p.def_impl(lambda x, y, *, of: (y, x))
    seen = []

    def lower(context, x, y, *, of):
        seen.append((of, [a.shape for a in context.avals_in], [a.shape for a in context.avals_out]))
        return y, x

    mlir.register_lowering(p, lower)
    ad.primitive_jvps[p] = lambda xs, ts, **params: (p.bind(*xs, **params), [ts[1], ts[0]])
    batching.primitive_batchers[p] = lambda xs, dims, **params: (p.bind(*xs, **params), [dims[1], dims[0]])
    f = J.jit(lambda x: [a * b for a, b in zip(p.bind(x, J.numpy.sum(x), of="it"), (2.0, 3.0))])
    total, same = f(X)
    np.testing.assert_allclose(total, 2 * X.sum())
    np.testing.assert_allclose(same, 3 * X)
    assert seen == [("it", [X.shape, ()], [(), X.shape])]
    np.testing.assert_allclose(J.grad(lambda x: f(x)[0] + f(x)[1].sum())(X), np.full(X.shape, 5))


@pytest.mark.parametrize("table", ["primitive_batchers", "fancy_primitive_batchers", "axis_primitive_batchers"])
@pytest.mark.parametrize("J", LIBRARIES)
def test_rules_get_tuples(J, table):
    """Equinox uses the dimensions that a batching rule got as `out_axes`, whose containers must be those of the results."""
    ad, batching, _, _ = tables(J)
    p = new(J, f"tuples_{table}")
    p.def_impl(lambda x, y: x + y)
    p.def_abstract_eval(lambda x, y: x)
    seen = []

    def batch(*args, **params):
        seen.extend(args[-2:])
        return p.bind(*args[-2]), 0

    def jvp(primals, tangents):
        seen.extend((primals, tangents))
        return p.bind(*primals), p.bind(*map(ad.instantiate_zeros, tangents))

    getattr(batching, table)[p] = batch
    ad.primitive_jvps[p] = jvp
    J.vmap(p.bind)(X, Y)
    J.jvp(p.bind, (X, Y), (Y, X))
    J.linearize(p.bind, X, Y)
    assert len(seen) == 6 and all(type(x) is tuple for x in seen)


@pytest.mark.parametrize("J", LIBRARIES)
def test_lowerings_in_jaxs_form_call_functions_and_python(J):
    _, _, mlir, _ = tables(J)
    p = new(J, "by_functions_and_python")
    p.multiple_results = True
    p.def_abstract_eval(lambda x, *, by: (x, x))
    seen = []

    def in_python(x):
        seen.append(np.asarray(x))
        return np.asarray(x) + 1, np.asarray(x) * 2

    def lower(context, x, *, by):
        (scaled,) = mlir.lower_fun(lambda x, *, by: x * by, multiple_results=False)(context, x, by=by)
        results, _, keepalive = mlir.emit_python_callback(
            context, in_python, None, [scaled], context.avals_in, context.avals_out, has_side_effect=False)
        context.module_context.add_keepalive(keepalive)
        assert context.module_context.platforms[0] == "cpu"
        return results

    mlir.register_lowering(p, lower)
    more, doubled = J.jit(lambda x: p.bind(x + 1, by=3.0))(X)
    np.testing.assert_array_equal(more, 3 * (X + 1) + 1)
    np.testing.assert_array_equal(doubled, 6 * (X + 1))
    np.testing.assert_array_equal(seen, [3 * (X + 1)])


@pytest.mark.parametrize("call, says, fix", MISSING)
def test_missing_rules_are_named_as_jax_names_them(call, says, fix):
    for J in LIBRARIES:
        with pytest.raises(NotImplementedError, match=says) as caught:
            call(J)
    assert fix in str(caught.value)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda ad, b, mlir, p: (p.def_abstract_eval(lambda x: x), mlir.register_lowering(p, lambda ctx, x: [x.type]), p.bind(X)), NotImplementedError, r"(?s)numba_call.*ffi_call.*pure_callback"),
        (lambda ad, b, mlir, p: mlir.ir_constant(3), AttributeError, "does not use MLIR.*numba_call"),
        (lambda ad, b, mlir, p: mlir.register_lowering(OURS.lax.sin_p, mlir.lower_fun(abs)), TypeError, "expected a primitive of mpijax.extend"),
        (lambda ad, b, mlir, p: ad.primitive_jvps.__setitem__(OURS.lax.sin_p, abs), TypeError, "mpijax's own primitive.*custom_jvp"),
        (lambda ad, b, mlir, p: ad.primitive_jvps.__setitem__(p, 3), TypeError, "must be a function"),
        (lambda ad, b, mlir, p: OURS.jit(simple(OURS, "wrong", lambda x: x[0]).bind)(X), TypeError, r"lowering of wrong returns f32\[\], but its abstract evaluation returns f32\[3\]"),
        (lambda ad, b, mlir, p: part(OURS, "extend.core").primitives.no_such_p, AttributeError, "does not have the primitive 'no_such_p'"),
    ],
)
def test_what_cannot_be_done_says_what_can(call, error, message):
    ad, batching, mlir, _ = tables(OURS)
    with pytest.raises(error, match=message):
        call(ad, batching, mlir, new(OURS))


def test_a_library_may_use_a_name_of_mpijax():
    def doubled(J):
        own = simple(J, "sin", lambda x: x + x)
        return own.bind(X), str(J.make_jaxpr(own.bind)(X))

    (ours, text), (theirs, expected) = doubled(OURS), doubled(THEIRS)
    np.testing.assert_array_equal(ours, theirs)
    assert text == expected
    np.testing.assert_allclose(OURS.jit(OURS.lax.sin)(X), np.sin(X), rtol=1e-6)


# ---------------------------------------------------------------- tables and names


@pytest.mark.parametrize("J", [THEIRS, OURS], ids=lambda J: J.name)
def test_rules_may_be_methods_of_a_subclass(J):
    core = importlib.import_module(f"{J.name}.extend.core")

    class Mark(core.Primitive):
        multiple_results = True

        def impl(self, *args, times):
            return list(args)

        def abstract_eval(self, *avals, times):
            return list(avals), core.no_effects

    mark_p = Mark("mark_of_a_subclass")
    J.interpreters.mlir.register_lowering(mark_p, lambda _, *args, times: args)
    assert not mark_p.call_primitive and mark_p.multiple_results
    for call in (mark_p.bind, J.jit(mark_p.bind, static_argnames="times")):
        a, b = call(np.float32(1), np.int32(2), times=3)
        assert (float(a), int(b)) == (1.0, 2)


def test_tables_of_rules_can_be_read_and_emptied():
    ad, batching, _, _ = tables(OURS)
    p, sin = mul_add(OURS), OURS.lax.sin_p
    assert p in ad.primitive_jvps and sin in ad.primitive_jvps and new(OURS) not in ad.primitive_jvps
    assert batching.primitive_batchers[sin]([XS], [1])[1] == 1
    np.testing.assert_array_equal(ad.primitive_jvps[sin]((X,), (Y,))[0], OURS.numpy.sin(X))
    q = differentiable(OURS)
    rule = ad.primitive_jvps[q]
    del ad.primitive_jvps[q]
    assert q not in ad.primitive_jvps and len(ad.primitive_jvps) > 50
    ad.primitive_jvps[q] = rule
    assert ad.primitive_jvps[q] is rule


def test_interpreting_a_program_with_the_names_of_extend():
    core = part(OURS, "extend.core")

    def count(jaxpr):
        inner = sum(count(sub) for eqn in jaxpr.eqns for sub in core.jaxprs_in_params(eqn.params))
        return inner + sum(eqn.primitive is core.primitives.mul_p for eqn in jaxpr.eqns)

    closed = OURS.make_jaxpr(lambda x: OURS.jit(lambda y: y * y)(x) * x)(X)
    assert isinstance(closed, core.ClosedJaxpr) and isinstance(closed.jaxpr, core.Jaxpr)
    assert count(closed.jaxpr) == 2
    np.testing.assert_array_equal(core.jaxpr_as_fun(closed)(X)[0], X**3)
    assert core.unmapped_aval(2, 1, core.mapped_aval(3, 0, core.ShapedArray((3, 4), np.float32))).shape == (4, 2)
    assert core.valid_jaxtype(X) and not core.valid_jaxtype("x")


def test_primitives_have_jaxs_names():
    theirs = {n for n in dir(part(THEIRS, "extend.core").primitives) if n.endswith("_p")}
    ours = part(OURS, "extend.core").primitives
    found = {n for n in theirs if hasattr(ours, n)}
    assert len(found) > 100 and {"add_p", "scan_p", "jit_p", "scatter_add_p", "custom_jvp_call_p"} <= found


def test_dead_code():
    pe = part(OURS, "interpreters.partial_eval")
    jaxpr = OURS.make_jaxpr(lambda x, y: (x + 1, y * 2))(X, Y).jaxpr
    pruned, used = pe.dce_jaxpr(jaxpr, [True, False])
    assert used == [True, False] and len(pruned.eqns) == len(pruned.invars) == 1
    assert len(pe.dce_jaxpr(jaxpr, [True, False], instantiate=True)[0].invars) == 2


@pytest.mark.parametrize("options", [{"frozen": True}, {"frozen": False}, {"eq": False}])
def test_an_effect_may_be_a_dataclass(options):
    base = part(OURS, "extend.core").Effect
    effect = dataclasses.make_dataclass("Tick", [("at", int)], bases=(base,), **options)(3)
    assert isinstance(effect, base) and effect.at == 3
