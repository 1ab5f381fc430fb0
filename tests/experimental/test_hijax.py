"""`experimental.hijax`, beside JAX: the same library of types and operations, the same programs."""

from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from types import SimpleNamespace

import jax.experimental.hijax  # noqa: F401  # before mpijax takes its place
import numpy as np
import pytest
from experimental import hijax_types as library

import mpijax
from mpijax.experimental.hijax import operators


@cache
def world(name):
    """JAX or mpijax, with the library made for it."""
    module = import_module(name)
    import_module(f"{name}.interpreters.batching")
    jnp, hijax = import_module(f"{name}.numpy"), import_module(f"{name}.experimental.hijax")
    made = (library.scaled_type, library.wrapped_type, library.operations)
    scaled, wrapped, ops = (make(module, jnp, hijax) for make in made)
    spec = import_module("jax._src.hijax" if name == "jax" else "mpijax.core.types.abstract").MappingSpec
    pair = library.pair_type(module, jnp, hijax, spec)
    return SimpleNamespace(jax=module, jnp=jnp, hijax=hijax, scaled=scaled, wrapped=wrapped, pair=pair, ops=ops)


def numbers(result):
    """The arrays of a result, whichever package it is of; values of the library as what they consist of."""
    if isinstance(result, library.Scaled):
        return [np.asarray(result.whole), np.asarray(result.factor)]
    if isinstance(result, library.Pair):
        return [np.asarray(result.x), np.asarray(result.y)]
    if isinstance(result, library.Wrapped):
        return [np.asarray(result.array)]
    if isinstance(result, dict):
        return [x for key in sorted(result) for x in numbers(result[key])]
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in numbers(part)]
    return [np.asarray(result)]


def same(program):
    """Compare what a program makes of JAX and of mpijax."""
    ours, theirs = (numbers(program(world(name))) for name in ("mpijax", "jax"))
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-6)


VECTOR = np.array([1.0, -2.5, 3.0], np.float32)


def plain(w, fun):
    return fun


def jitted(w, fun):
    return w.jax.jit(fun)


HOW = pytest.mark.parametrize("how", [plain, jitted])


# ---------------------------------------------------------------- values of a type


@HOW
def test_a_value_is_argument_and_result(how):
    def program(w):
        value = w.scaled.scale(w.jnp.asarray(VECTOR))
        run = how(w, lambda d: {"back": w.scaled.unscale(d["v"]) + d["x"], "v": d["v"]})
        return [run({"v": value, "x": 1.0}), run({"v": value, "x": 2.0})]

    same(program)


def test_the_program_has_the_type():
    def text(w):
        return str(w.jax.make_jaxpr(lambda x: w.wrapped.wrap(w.wrapped.unwrap(x) * 2))(library.Wrapped(VECTOR)))

    assert text(world("mpijax")) == text(world("jax"))


def test_shapes_and_stages():
    def program(w):
        value = library.Wrapped(w.jnp.asarray(VECTOR))
        double = w.jax.jit(lambda x: w.wrapped.add(x, x))
        assert w.jax.eval_shape(double, value) == w.wrapped.ty((3,))
        lowered = double.lower(value)
        lowered.as_text()
        low = double.trace(value).lojax.jaxpr
        assert not low.is_high and double.trace(value).jaxpr.is_high
        return lowered.compile()(value)

    same(program)


@HOW
def test_attributes_come_from_the_type(how):
    def program(w):
        run = how(w, lambda x: w.wrapped.unwrap(x).sum())
        shapes = []
        outer = w.jax.jit(lambda x: shapes.append(x.shape) or x.times(x.doubled))
        value = library.Wrapped(w.jnp.asarray(VECTOR))
        of_an_array_too = w.jax.jit(lambda x: x.copy(twice=True))
        result = [run(value), outer(value), of_an_array_too(value)]
        with pytest.raises(AttributeError, match="cumsum"):
            w.jax.jit(lambda x: x.cumsum())(value)
        assert shapes == [(3,)]
        return result

    same(program)


def test_operators_come_from_the_type():
    def program(w):
        value = library.Wrapped(w.jnp.asarray(VECTOR))
        run = w.jax.jit(lambda x, y: [x + x, x[1] + y, len(x), y[:2] + y[0]])
        return run(value, w.jnp.asarray(VECTOR))

    same(program)


@dataclass(frozen=True)
class Variable:
    """A value that hands on attributes of what it holds, and can be taken for an array."""

    held: object

    def __getattr__(self, name):
        return getattr(self.held, name)

    def __jax_array__(self):
        return self.held


@dataclass(frozen=True)
class VariableTy(mpijax.experimental.hijax.HiType):
    def lo_ty(self):
        return [mpijax.core.ShapedArray((3,), np.float32)]

    def lower_val(self, value):
        return [value.held]

    def raise_val(self, held):
        return Variable(held)

    def to_tangent_aval(self):
        return self

    def vspace_zero(self):
        return Variable(mpijax.numpy.zeros(3))


@HOW
def test_a_value_that_can_be_taken_for_an_array_keeps_its_type(how):
    mpijax.experimental.hijax.register_hitype(Variable, lambda _: VariableTy())
    value = Variable(mpijax.numpy.asarray(VECTOR))
    assert mpijax.typeof(value) == VariableTy()
    run = how(world("mpijax"), lambda x, y: (x, value, y))
    for out in (
        run(value, 1.0),
        mpijax.jvp(run, (value, 1.0), (value, 1.0))[0],
        mpijax.vmap(lambda y: run(value, y), out_axes=(None, None, 0))(mpijax.numpy.ones(2)),
    ):
        assert type(out[0]) is type(out[1]) is Variable
    np.testing.assert_array_equal(mpijax.numpy.add(value, 1), VECTOR + 1)


def test_a_value_that_is_closed_over():
    def program(w):
        value = library.Wrapped(w.jnp.asarray(VECTOR))
        return [w.jax.jit(lambda: w.wrapped.multiply(value, value))(), w.jax.jit(lambda: value)()]

    same(program)


def test_a_type_stands_for_a_value():
    def program(w):
        ty = w.wrapped.ty((3,))
        double = w.jax.jit(lambda x: w.wrapped.add(x, x))
        assert w.jax.eval_shape(double, ty) == ty
        return double.lower(ty).compile()(library.Wrapped(w.jnp.asarray(VECTOR)))

    same(program)


def test_functions_of_arrays_refuse_values():
    value = library.Wrapped(world("mpijax").jnp.asarray(VECTOR))
    with pytest.raises(AttributeError, match="values of this type are not arrays"):
        mpijax.jit(mpijax.numpy.sin)(value)
    with pytest.raises(NotImplementedError, match="sin does not support values of types that libraries define"):
        mpijax.lax.sin(value)


def test_a_type_without_a_method_says_what_needs_it():
    @mpijax.jit
    def loop(xs):
        return mpijax.lax.scan(lambda c, x: (c, x), 0, xs, length=2)

    w = world("mpijax")
    with pytest.raises(NotImplementedError, match=r"ScaledTy must define leading_axis_spec: scan"):
        loop(w.scaled.scale(w.jnp.asarray(VECTOR)))


# ---------------------------------------------------------------- derivatives


@HOW
def test_gradient_by_a_value(how):
    def program(w):
        value = library.Wrapped(w.jnp.asarray(VECTOR))
        loss = how(w, lambda x: w.wrapped.unwrap(w.wrapped.multiply(x, w.wrapped.multiply(x, x))).sum())
        return [w.jax.grad(loss)(value), w.jax.jit(w.jax.grad(loss))(value), w.jax.value_and_grad(loss)(value)]

    same(program)


@HOW
def test_gradient_through_a_value_with_another_type_of_tangents(how):
    def program(w):
        loss = how(w, lambda x: (w.scaled.unscale(w.scaled.scale(x)) ** 2).sum())
        return [w.jax.grad(loss)(w.jnp.asarray(VECTOR)), w.jax.jit(w.jax.grad(loss))(w.jnp.asarray(VECTOR))]

    same(program)


@HOW
def test_jvp_vjp_and_linearize(how):
    def program(w):
        value, tangent = library.Wrapped(w.jnp.asarray(VECTOR)), library.Wrapped(w.jnp.ones(3))
        square = how(w, lambda x: w.wrapped.multiply(x, x))
        out, pullback = w.jax.vjp(square, value)
        same_out, pushforward = w.jax.linearize(square, value)
        return [w.jax.jvp(square, (value,), (tangent,)), out, pullback(out), same_out, pushforward(tangent)]

    same(program)


def test_types_of_tangents_are_checked():
    w = world("mpijax")
    value = library.Wrapped(w.jnp.asarray(VECTOR))
    with pytest.raises(TypeError, match="expected tangent type"):
        mpijax.jvp(lambda x: x, (value,), (w.jnp.ones(3),))
    with pytest.raises(ValueError, match="argument to VJP function"):
        mpijax.vjp(lambda x: x, value)[1](w.jnp.ones(3))
    with pytest.raises(TypeError, match="scalar-output"):
        mpijax.grad(lambda x: x)(value)


@pytest.mark.parametrize("kind, slope", [("custom_jvp", 10), ("custom_vjp", 7), ("checkpoint", 2 * VECTOR)])
@HOW
def test_functions_with_rules_of_their_own(how, kind, slope):
    """JAX 0.10.2 fails inside of `custom_vjp` and `checkpoint`."""
    w = world("mpijax")
    square, unwrap = (lambda x: w.wrapped.multiply(x, x)), w.wrapped.unwrap
    fun = getattr(mpijax, kind)(square)
    if kind == "custom_jvp":
        fun.defjvp(lambda p, t: (square(*p), w.wrapped.wrap(10 * unwrap(t[0]))))
    elif kind == "custom_vjp":
        fun.defvjp(lambda x: (square(x), x), lambda x, ct: (w.wrapped.wrap(7 * unwrap(ct)),))
    value = library.Wrapped(w.jnp.asarray(VECTOR))
    np.testing.assert_allclose(how(w, fun)(value).array, VECTOR**2)
    gradient = mpijax.grad(how(w, lambda x: unwrap(fun(x)).sum()))(value)
    np.testing.assert_allclose(gradient.array, np.broadcast_to(slope, (3,)), rtol=1e-6)


# ---------------------------------------------------------------- batches, loops and branches


@HOW
def test_vmap_over_values(how):
    """JAX 0.10.2 takes no ints as axes of such values."""
    w = world("mpijax")
    given = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    rows = library.Wrapped(w.jnp.asarray(given))
    run = how(w, lambda x, y: (w.wrapped.multiply(x, x), w.wrapped.unwrap(x).sum() * y))
    for axis in (0, 1):
        many = mpijax.vmap(run, in_axes=(axis, None), out_axes=(axis, 0), axis_size=given.shape[axis])
        one, two = many(rows, 2.0)
        np.testing.assert_allclose(one.array, given**2)
        np.testing.assert_allclose(two, 2 * given.sum(1 - axis))


@HOW
def test_vmap_with_axes_of_the_type(how):
    """JAX 0.10.2 fails where `jit` is inside of `vmap`."""

    def program(w):
        make, get, spec = w.pair.make, w.pair.get, w.pair.spec
        swapped = (how if w.jax is mpijax else plain)(w, lambda pair: make(get(pair, "y") + 1, get(pair, "x")))
        rows, shared = w.jnp.arange(6.0).reshape(2, 3), w.jnp.arange(3.0)
        once = w.jax.vmap(swapped, in_axes=spec(0, None), out_axes=spec(None, 0), axis_size=2)
        columns = w.jax.vmap(swapped, in_axes=(spec(1, 0),), out_axes=spec(0, 1), axis_size=3)
        table = w.jnp.arange(24.0).reshape(2, 3, 4)
        twice = w.jax.vmap(
            w.jax.vmap(swapped, in_axes=spec(0, 0), out_axes=spec(0, 0), axis_size=2),
            in_axes=spec(2, 2), out_axes=spec(2, 2), axis_size=4,
        )  # fmt: skip
        return [once(make(rows, shared)), columns(make(rows, shared)), twice(make(table, table))]

    same(program)


def test_vmap_of_loops_over_values_with_axes_of_their_own():
    w = world("mpijax")
    make, get, spec = w.pair.make, w.pair.get, w.pair.spec

    def turn(pair):
        return make(get(pair, "y"), get(pair, "x") + get(pair, "y"))

    def both(pair):
        scanned, stacked = mpijax.lax.scan(lambda c, _: (turn(c), get(c, "x")), pair, None, length=3)
        return scanned, stacked, mpijax.lax.while_loop(lambda p: get(p, "x") < 5, turn, pair)

    ones = w.jnp.ones(2, w.jnp.float32)
    pairs = make(ones, w.jnp.asarray([1.0, 2.0]))
    scanned, stacked, looped = mpijax.vmap(
        both, in_axes=spec(0, 0), out_axes=(spec(0, 0), 0, spec(0, 0)), axis_size=2
    )(pairs)
    np.testing.assert_array_equal(scanned.x, [3, 5])
    np.testing.assert_array_equal(stacked, [[1, 1, 2], [1, 2, 3]])
    np.testing.assert_array_equal(looped.x, [5, 5])


@HOW
def test_scan_carries_and_stacks_values(how):
    def program(w):
        def loop(start, xs):
            def body(c, x):
                product = w.wrapped.multiply(c, w.wrapped.wrap(x))
                return product, (product, w.wrapped.unwrap(c))

            return w.jax.lax.scan(body, start, xs)

        start, xs = library.Wrapped(w.jnp.float32(2)), w.jnp.arange(1.0, 4.0)
        return how(w, loop)(start, xs)

    same(program)


@HOW
def test_gradient_of_scan(how):
    """JAX 0.10.2 has no constant for the zeros that an iteration makes."""
    w = world("mpijax")

    def last(start, xs):
        body = lambda c, x: (w.wrapped.multiply(c, w.wrapped.wrap(x)), None)
        return w.wrapped.unwrap(how(w, lambda c, xs: mpijax.lax.scan(body, c, xs)[0])(start, xs))

    start, xs = library.Wrapped(w.jnp.float32(2)), w.jnp.arange(1.0, 4.0)
    for take in (plain, jitted):
        by_start, by_xs = take(w, mpijax.grad(last, (0, 1)))(start, xs)
        np.testing.assert_allclose(by_start.array, 6)
        np.testing.assert_allclose(by_xs, [12, 6, 4])


@HOW
def test_scan_over_values(how):
    def program(w):
        def loop(xs):
            return w.jax.lax.scan(lambda c, x: (c + w.wrapped.unwrap(x).sum(), x), 0.0, xs, length=2)

        return how(w, loop)(library.Wrapped(w.jnp.arange(6.0).reshape(2, 3)))

    same(program)


@HOW
@pytest.mark.parametrize("taken", [True, False])
def test_cond(how, taken):
    def program(w):
        def choose(p, x):
            return w.jax.lax.cond(p, lambda x: w.wrapped.multiply(x, x), lambda x: w.wrapped.add(x, x), x)

        value = library.Wrapped(w.jnp.asarray(VECTOR))
        return how(w, choose)(taken, value)

    same(program)


@pytest.mark.parametrize("taken", [True, False])
def test_gradient_of_cond(taken):
    """JAX 0.10.2 has no constant for the zeros that a branch makes."""
    w = world("mpijax")

    def loss(p, x):
        branches = (lambda x: w.wrapped.multiply(x, x), lambda x: w.wrapped.add(x, x))
        return w.wrapped.unwrap(mpijax.lax.cond(p, *branches, x)).sum()

    for grad in (mpijax.grad(loss, 1), mpijax.jit(mpijax.grad(loss, 1))):
        found = grad(taken, library.Wrapped(w.jnp.asarray(VECTOR)))
        np.testing.assert_allclose(found.array, 2 * VECTOR if taken else [2, 2, 2])


@HOW
def test_while_loop(how):
    def program(w):
        def loop(x):
            going = lambda x: w.wrapped.unwrap(x).sum() < 100
            return w.jax.lax.while_loop(going, lambda x: w.wrapped.add(x, x), x)

        return how(w, loop)(library.Wrapped(w.jnp.arange(3.0)))

    same(program)


@HOW
def test_several_results(how):
    same(lambda w: how(w, w.wrapped.halves)(library.Wrapped(w.jnp.asarray(VECTOR))))


# ---------------------------------------------------------------- operations with rules


@HOW
def test_power(how):
    def program(w):
        cube = how(w, lambda x: w.ops.power(x, 3))
        xs = w.jnp.asarray(VECTOR)
        loss = lambda x: w.jax.vmap(cube)(x).sum()
        nested = w.jax.vmap(w.jax.vmap(cube), in_axes=1, out_axes=1)(w.jnp.arange(6.0).reshape(2, 3))
        return [
            cube(xs), w.jax.jvp(cube, (xs,), (xs,)), w.jax.vmap(cube)(xs), w.jax.grad(cube)(w.jnp.float32(2)),
            w.jax.vmap(w.jax.grad(cube))(xs), w.jax.grad(loss)(xs), w.jax.grad(w.jax.grad(cube))(w.jnp.float32(2)),
            nested,
        ]  # fmt: skip

    same(program)


def test_rules_get_symbolic_zeros():
    def program(w):
        w.ops.seen.clear()
        found = [w.jax.grad(w.ops.product, i)(2.0, 3.0) for i in (0, 1, (0, 1))]
        assert w.ops.seen == [(True, False), (False, True), (True, True)]
        return found

    same(program)


def test_vmap_by_the_rule_for_dims():
    def program(w):
        x, y = w.jnp.arange(24.0).reshape(2, 3, 4), w.jnp.arange(3.0)
        inner = w.jax.vmap(w.ops.product, in_axes=(0, None))
        other = w.jax.vmap(w.ops.product, in_axes=(None, 0))
        return [
            w.jax.vmap(inner, in_axes=(2, None), out_axes=2)(x, y),
            w.jax.vmap(other, in_axes=(1, None), out_axes=2)(x[0], w.jnp.arange(6.0).reshape(2, 3)),
        ]

    same(program)


def test_gradient_of_a_batch_that_shares_an_operand():
    """JAX 0.10.2 takes no backward rule with accumulators here."""
    w = world("mpijax")
    loss = lambda x, y: mpijax.vmap(w.ops.product, in_axes=(0, None))(x, y).sum()
    dx, dy = mpijax.grad(loss, (0, 1))(w.jnp.asarray(VECTOR), 2.0)
    np.testing.assert_allclose(dx, [2, 2, 2])
    np.testing.assert_allclose(dy, VECTOR.sum())


@HOW
def test_linearize_by_its_rule_of_a_pytree(how):
    def program(w):
        run = how(w, lambda x: w.ops.scaling({"x": x, "by": 3.0 * x}))
        out, pushforward = w.jax.linearize(run, w.jnp.float32(2))
        return [out, pushforward(w.jnp.float32(1))]

    same(program)


@HOW
def test_primitives_whose_rules_are_set_one_by_one(how):
    """With the methods missing: rules of an instance, as JAX's own library has them."""

    def program(w):
        twice, split = w.hijax.HiPrimitive("twice"), w.hijax.HiPrimitive("split")
        twice.def_abstract_eval(lambda x: x)
        twice.to_lojax = lambda x: library.Wrapped(2 * x.array)
        w.jax.interpreters.ad.primitive_jvps[twice] = lambda p, t: (twice.bind(*p), twice.bind(*t))
        split.multiple_results = True
        split.def_effectful_abstract_eval(lambda x: ([x, x], set()))
        split.to_lojax = lambda x: [x, library.Wrapped(x.array - 1)]
        value = library.Wrapped(w.jnp.asarray(VECTOR))
        run = how(w, twice.bind)
        return [run(value), how(w, split.bind)(value), w.jax.jvp(run, (value,), (value,))]

    same(program)


def test_a_rule_that_is_missing_says_how_to_set_it():
    w = world("mpijax")
    value = library.Wrapped(w.jnp.asarray(VECTOR))
    with pytest.raises(NotImplementedError, match="halves has no rule for jvp.*primitive_jvps"):
        mpijax.jvp(w.wrapped.halves, (value,), (value,))
    with pytest.raises(NotImplementedError, match="halves has no rule for vmap.*primitive_batchers"):
        mpijax.vmap(w.wrapped.halves, axis_size=3)(value)


@HOW
def test_linearize_prefers_rules_that_can_be_evaluated(how):
    """An operation with `jvp` and `vjp_fwd`: JAX 0.10.2 asks for `lin`."""
    w = world("mpijax")
    out, pushforward = mpijax.linearize(how(w, lambda x: w.ops.power(x, 3)), w.jnp.float32(2))
    assert (out, pushforward(w.jnp.float32(1))) == (8, 12)


def test_both_backward_rules_are_refused():
    hijax = mpijax.experimental.hijax

    class Both(hijax.VJPHiPrimitive):
        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = (aval,), aval, {}
            super().__init__()

        def vjp_bwd(self, residuals, ct, accumulator):
            accumulator.accum(ct)

        def vjp_bwd_retval(self, residuals, ct):
            return (ct,)

    with pytest.raises(AttributeError, match="Define one of them"):
        Both(mpijax.typeof(1.0))


def test_an_operation_nobody_reads_is_left_out():
    w = world("mpijax")
    text = str(mpijax.jit(lambda x: (w.ops.power(x, 3), x)[1]).lower(2.0).compile().as_text())
    assert "kernel" not in text.lower()


# ---------------------------------------------------------------- references and shards


@HOW
def test_references_to_values(how):
    w = world("mpijax")
    value = library.Wrapped(w.jnp.asarray(VECTOR))
    ref = mpijax.new_ref(value)

    @partial(how, w)
    def f():
        inner = mpijax.new_ref(ref[...])
        before = inner[...]
        inner[:] = w.wrapped.multiply(before, before)
        ref[...] = inner.get()
        return before, mpijax.freeze(mpijax.empty_ref(w.wrapped.ty((2,))))

    before, empty = f()
    np.testing.assert_array_equal(before.array, VECTOR)
    np.testing.assert_array_equal(empty.array, [0, 0])
    np.testing.assert_array_equal(ref[...].array, VECTOR**2)
    with pytest.raises(NotImplementedError, match="as a whole"):
        ref[0]
    with pytest.raises(ValueError, match="Invalid type for `swap`"):
        ref[...] = library.Wrapped(w.jnp.ones(2))


@dataclass(frozen=True)
class ShardedSpec(mpijax.experimental.hijax.HiPspec):
    """Of a `Sharded`."""

    spec: object

    def to_lo(self):
        return (self.spec,)


@dataclass(frozen=True)
class ShardedTy(mpijax.experimental.hijax.HiType):
    """A type of values that can be cut into shards."""

    of: object

    def lo_ty(self):
        return [self.of]

    def lower_val(self, value):
        return [value.array]

    def raise_val(self, array):
        return Sharded(array)

    def to_tangent_aval(self):
        return self

    def vspace_zero(self):
        return Sharded(mpijax.numpy.zeros(self.of.shape, self.of.dtype))

    def normalize(self):
        return ShardedTy(self.of.normalize())

    def shard(self, mesh, manual_axes, check_vma, spec):
        return ShardedTy(self.of.shard(mesh, manual_axes, check_vma, spec.spec))

    def unshard(self, mesh, check_vma, spec):
        return ShardedTy(self.of.unshard(mesh, check_vma, spec.spec))


@dataclass(frozen=True)
class Sharded:
    array: object


mpijax.experimental.hijax.register_hitype(Sharded, lambda value: ShardedTy(mpijax.typeof(value.array)))


class Times(mpijax.experimental.hijax.VJPHiPrimitive):
    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (aval, aval), aval, {}
        super().__init__()

    def expand(self, x, y):
        return Sharded(x.array * y.array)

    def vjp_fwd(self, nonzero, x, y):
        return self(x, y), (x, y)

    def vjp_bwd_retval(self, residuals, ct):
        x, y = residuals
        return self(ct, y), self(ct, x)


@HOW
def test_shard_map(how):
    mesh = mpijax.make_mesh((mpijax.device_count(),), ("x",), (mpijax.sharding.AxisType.Auto,))
    spec = ShardedSpec(mpijax.P("x"))
    size = 2 * mpijax.device_count()

    def times(x, y):
        assert mpijax.typeof(x).of.shape == (2,)
        return Times(mpijax.typeof(x))(x, y)

    mapped = mpijax.shard_map(times, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    x, y = (Sharded(mpijax.numpy.arange(size) + float(i)) for i in (1, 2))
    out, pullback = mpijax.vjp(how(world("mpijax"), mapped), x, y)
    np.testing.assert_array_equal(out.array, np.asarray(x.array) * np.asarray(y.array))
    dx, dy = pullback(Sharded(mpijax.numpy.ones(size)))
    np.testing.assert_array_equal(dx.array, y.array)
    np.testing.assert_array_equal(dy.array, x.array)


def test_shard_map_with_operations_of_a_library():
    w = world("mpijax")
    mesh = mpijax.make_mesh((mpijax.device_count(),), ("x",), (mpijax.sharding.AxisType.Auto,))
    cube = mpijax.shard_map(lambda x: w.ops.power(x, 3), mesh=mesh, in_specs=mpijax.P("x"), out_specs=mpijax.P("x"))
    x = mpijax.numpy.arange(2.0 * mpijax.device_count())
    np.testing.assert_array_equal(mpijax.jit(cube)(x), np.asarray(x) ** 3)
    np.testing.assert_array_equal(mpijax.grad(lambda x: cube(x).sum())(x), 3 * np.asarray(x) ** 2)


def test_traced_arrays_keep_the_methods_that_need_values():
    operators.follow_types()
    with pytest.raises(mpijax.errors.ConcretizationTypeError, match="tobytes"):
        mpijax.jit(lambda x: x.tobytes())(np.ones(3))
