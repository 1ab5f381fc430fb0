"""jit: what it returns, when it traces again, static and donated arguments, what it closes over."""

import copy
import gc
import inspect
import pickle
import weakref
from collections import namedtuple
from collections.abc import Hashable
from functools import partial

import numpy as np
import pytest
from oracle import OURS, THEIRS, check
from quickly import one_in

import mpijax

X3 = np.arange(3, dtype=np.float32)
Point = namedtuple("Point", "x y")


def traces(J, calls, **options) -> list[int]:
    """How often a function has been traced after each of `calls(f, J)`."""
    count = [0]

    def f(*args, **kwargs):
        count[0] += 1
        return 0

    jitted = J.jit(f, **options)
    counts = []
    for call in calls:
        call(jitted, J)
        counts.append(count[0])
    return counts


RETRACING = {
    "equal types": [lambda f, J: f(X3), lambda f, J: f(X3 * 2), lambda f, J: f(J.numpy.ones(3))],
    "shape": [lambda f, J: f(X3), lambda f, J: f(X3[:2]), lambda f, J: f(X3[None])],
    "dtype": [lambda f, J: f(X3), lambda f, J: f(X3.astype(np.int32)), lambda f, J: f(X3.astype(np.float64))],
    "python numbers": [lambda f, J: f(1), lambda f, J: f(2), lambda f, J: f(1.0), lambda f, J: f(True)],
    "weak types": [lambda f, J: f(1.0), lambda f, J: f(np.float32(1)), lambda f, J: f(J.numpy.sin(1.0))],
    "keywords": [
        lambda f, J: f(1, b=2),
        lambda f, J: f(1, b=3),
        lambda f, J: f(1, c=2),
        lambda f, J: f(1, 2),
    ],
    "order of keywords": [lambda f, J: f(a=1, b=2), lambda f, J: f(b=1, a=2)],
    "structure": [
        lambda f, J: f((1, 2)),
        lambda f, J: f([1, 2]),
        lambda f, J: f({"a": 1}),
        lambda f, J: f({"b": 1}),
    ],
    "None": [lambda f, J: f(1, None), lambda f, J: f(1, None), lambda f, J: f(1, 2)],
    "options": [lambda f, J: f(X3), lambda f, J: _in(J.enable_x64(True), f, X3), lambda f, J: f(X3)],
    "x64 arrays": [lambda f, J: _in(J.enable_x64(True), f, X3.astype(np.float64)), lambda f, J: f(X3)],
    "precision": [lambda f, J: f(X3), lambda f, J: _in(J.default_matmul_precision("float32"), f, X3)],
    "inside another jit": [lambda f, J: f(X3), lambda f, J: J.jit(lambda x: f(x) + f(x))(X3)],
    "inside grad": [lambda f, J: f(1.0), lambda f, J: J.grad(lambda x: f(x) + x)(1.0)],
    "inside vmap": [
        lambda f, J: f(np.float32(1)),
        lambda f, J: J.vmap(f)(X3),
        lambda f, J: J.vmap(f)(X3[:2]),
    ],
    "inside make_jaxpr": [lambda f, J: f(X3), lambda f, J: J.make_jaxpr(f)(X3)],
    "lower": [lambda f, J: f.lower(X3), lambda f, J: f(X3), lambda f, J: f.lower(X3).compile()],
    "eval_shape": [lambda f, J: f.eval_shape(X3), lambda f, J: f(X3), lambda f, J: J.eval_shape(f, X3)],
    "cleared cache": [lambda f, J: f(X3), lambda f, J: f.clear_cache(), lambda f, J: f(X3)],
    "empty arrays": [lambda f, J: f(X3[:0]), lambda f, J: f(X3[:0]), lambda f, J: f(X3[:0, None])],
}


def _in(context, f, *args):
    with context:
        return f(*args)


@pytest.mark.parametrize("name", RETRACING)
@pytest.mark.one_in(3)
def test_traces_again_when_jax_does(name):
    assert traces(OURS, RETRACING[name]) == traces(THEIRS, RETRACING[name])


STATIC = {
    "by position": (
        {"static_argnums": 1},
        [lambda f, J: f(X3, 2), lambda f, J: f(X3, 3), lambda f, J: f(X3, 2)],
    ),
    "by name": (
        {"static_argnames": "n"},
        [lambda f, J: f(X3, n="a"), lambda f, J: f(X3, n="b"), lambda f, J: f(X3, n="a")],
    ),
    "negative": (
        {"static_argnums": (0,)},
        [lambda f, J: f("a", 1), lambda f, J: f("a", 2), lambda f, J: f("b", 2)],
    ),
    "1 is not True": (
        {"static_argnums": 1},
        [lambda f, J: f(X3, 1), lambda f, J: f(X3, True), lambda f, J: f(X3, 1.0)],
    ),
    "tuples": (
        {"static_argnums": 1},
        [lambda f, J: f(X3, (1, 2)), lambda f, J: f(X3, (1, 2)), lambda f, J: f(X3, (1, 3))],
    ),
}


@pytest.mark.parametrize("name", STATIC)
def test_static_arguments_trace_again_when_jax_does(name):
    options, calls = STATIC[name]
    assert traces(OURS, calls, **options) == traces(THEIRS, calls, **options)


def test_two_jits_of_one_function_share_traces():
    def count(J):
        seen = []

        def f(x):
            seen.append(x)
            return x

        J.jit(f)(X3), J.jit(f)(X3), J.jit(f, keep_unused=True)(X3)
        return len(seen)

    assert count(OURS) == count(THEIRS)


PROGRAMS = {
    "arithmetic": (lambda J: lambda x: x * 2 + 1, (X3,)),
    "pytrees": (lambda J: lambda p: {"a": p[0] + 1, "b": [p[1]["c"], None, ()]}, ([X3, {"c": 2.0}],)),
    "named tuples": (lambda J: lambda p: Point(p.y, p.x * 2), (Point(X3, 1),)),
    "arguments as results": (lambda J: lambda x, y: (y, x, x), (X3, 1)),
    "constants as results": (lambda J: lambda x: (1, 2.5, True, X3, J.numpy.float32(2)), (X3,)),
    "nothing": (lambda J: lambda: (), ()),
    "no result": (lambda J: lambda x: None, (X3,)),
    "unused arguments": (lambda J: lambda x, y, z: y, (X3, 2, X3)),
    "closed over arrays": (lambda J: (lambda c: lambda x: x + c)(np.ones(3, np.float32)), (X3,)),
    "closed over tracers": (lambda J: lambda x: J.jit(lambda y: y * x)(x + 1), (X3,)),
    "nested": (lambda J: lambda x: J.jit(J.jit(lambda y: y + 1))(J.jit(lambda y: y * 2)(x)), (X3,)),
    "numpy scalars": (lambda J: lambda x, y: x + y, (np.float16(1), np.int8(2))),
    "python branches on static facts": (
        lambda J: lambda x: x * 2 if x.ndim == 1 and x.dtype == "float32" else x,
        (X3,),
    ),
    "loops": (lambda J: lambda x: sum(x * i for i in range(4)), (X3,)),
    "compile-time values": (lambda J: lambda x: _folded(J, x), (X3,)),
    "empty": (lambda J: lambda x: (x * 2, x.sum()), (X3[:0],)),
    "defaults": (lambda J: lambda x, n=2: x * n, (X3,)),
}


def _folded(J, x):
    with J.ensure_compile_time_eval():
        n = int(J.numpy.arange(3).sum())
    return x * n if n > 2 else x


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(3)
def test_results_are_jaxs(name):
    make, args = PROGRAMS[name]
    check(make, *args)


def test_keyword_arguments():
    for J in (THEIRS, OURS):
        f = J.jit(lambda x, *, y=1, **rest: x * y + rest.get("z", 0))
        assert (float(f(2)), float(f(2, y=3)), float(f(2, z=1, y=2))) == (2, 6, 5)


def test_static_arguments_are_python_values():
    @partial(OURS.jit, static_argnames=("shape", "name"))
    def f(x, shape, name="a"):
        assert isinstance(shape, tuple) and isinstance(name, str)
        return x.reshape(shape) if name == "a" else x

    assert f(np.zeros(6), (2, 3)).shape == (2, 3)
    assert f(np.zeros(6), (2, 3), name="b").shape == (6,)
    assert f(np.zeros(6), shape=(3, 2)).shape == (3, 2)


def test_methods_and_decorators():
    class Scale:
        def __init__(self, by):
            self.by = by

        @partial(OURS.jit, static_argnums=0)
        def __call__(self, x):
            return x * self.by

        @OURS.jit
        def shifted(x):
            return x + 1

    assert float(Scale(3)(2.0)) == 6
    assert float(Scale.shifted(2.0)) == 3

    @OURS.jit
    def documented(x):
        """A text."""
        return x

    assert (documented.__name__, documented.__doc__) == ("documented", "A text.")
    assert documented.__wrapped__(3) == 3


def test_partials_and_callable_objects():
    assert float(OURS.jit(partial(lambda a, b: a - b, 3))(1)) == 2


def test_donated_arrays_are_deleted_and_others_are_not():
    def used(J):
        a, b = J.numpy.arange(3.0), J.numpy.arange(3.0)
        out = J.jit(lambda x, y: x + y, donate_argnums=0)(a, b)
        return a.is_deleted(), b.is_deleted(), np.asarray(out).tolist()

    assert used(OURS) == used(THEIRS) == (True, False, [0, 2, 4])


def test_donations_of_which_no_use_can_be_made_are_told_once():
    for J in (OURS, THEIRS):
        f = J.jit(lambda x, y: (x + 1, y.sum()), donate_argnums=(0, 1))
        with pytest.warns(UserWarning, match=r"donated buffers were not usable: int32\[2\]"):
            f(J.numpy.ones(3), J.numpy.arange(2))
        f(J.numpy.ones(3), J.numpy.arange(2))


def test_device_put_copies_if_it_may_not_alias():
    for J in (OURS, THEIRS):
        x = J.device_put(np.arange(3), J.devices()[0])
        assert J.device_put(x) is J.device_put(x, may_alias=True) is x
        y = J.device_put(x, may_alias=False)
        x.delete()
        assert y.tolist() == [0, 1, 2]


def test_what_a_jitted_function_is_called():
    def named(x):
        return x

    for J in (OURS, THEIRS):
        assert repr(J.jit(named)) == f"<PjitFunction of {named!r}>"


def returning(x):
    return lambda: x


def test_constants_go_with_the_function_that_holds_them():
    for J in (OURS, THEIRS):
        x = J.numpy.ones(10)
        f = J.jit(returning(x))
        f()
        x = weakref.ref(x)
        assert x() is not None
        gc.disable()
        try:
            del f
            assert x() is None
        finally:
            gc.enable()


def test_donation_by_name_of_a_pytree():
    state = {"w": OURS.numpy.ones(4), "n": OURS.numpy.ones(2)}
    new = OURS.jit(lambda x, state: OURS.tree.map(lambda s: s * x, state), donate_argnames="state")(2.0, state=state)
    assert all(s.is_deleted() for s in state.values())
    assert np.asarray(new["w"]).tolist() == [2, 2, 2, 2]


def test_disable_jit_runs_python_each_time():
    seen = []
    f = OURS.jit(lambda x: seen.append(x) or x + 1)
    with OURS.disable_jit():
        f(OURS.numpy.ones(3)), f(OURS.numpy.ones(3))
    assert len(seen) == 2 and not any(isinstance(x, _tracer()) for x in seen)


def _tracer():
    from mpijax.core.tracing.tracer import Tracer

    return Tracer


def test_programs_do_not_keep_their_first_arguments_alive():
    f = OURS.jit(lambda x: OURS.nn.relu(x) * 2)
    x = OURS.numpy.ones(3)
    alive = weakref.ref(x)
    f(x)
    del x
    gc.collect()
    assert alive() is None


def test_functions_are_released_with_their_programs():
    def call():
        closed_over = OURS.numpy.ones(3)
        OURS.jit(lambda x: x + closed_over)(1.0)
        return weakref.ref(closed_over)

    alive = call()
    gc.collect()
    assert alive() is None


def test_stages():
    f = OURS.jit(lambda x, y: {"out": OURS.numpy.sin(x) * y})
    traced = f.trace(X3, 2.0)
    assert str(traced.jaxpr).startswith("{ lambda ; a:f32[3] b:f32[]. let")
    lowered = f.lower(OURS.ShapeDtypeStruct((3,), np.float32), 2.0)
    assert lowered.as_text("jaxpr") == str(traced.jaxpr)
    compiled = lowered.compile()
    np.testing.assert_allclose(compiled(X3, 2.0)["out"], np.sin(X3) * 2, rtol=1e-6)
    assert compiled.cost_analysis()["kernels"] == 1
    assert compiled.memory_analysis().output_size_in_bytes == 12
    with pytest.raises(TypeError, match="types for which this computation was compiled"):
        compiled(X3[:2], 2.0)


def test_make_jaxpr_returns_shapes_and_takes_static_arguments():
    closed, shapes = OURS.make_jaxpr(lambda x, n: [x] * n, static_argnums=1, return_shape=True)(X3, 2)
    assert len(closed.jaxpr.outvars) == 2
    assert shapes == [OURS.ShapeDtypeStruct((3,), np.float32)] * 2


def times(x, *rest, n=1):
    return x * len(rest[-1]) if rest else x * len(n)


def by_name(x, n):
    return x * len(n)


@pytest.mark.parametrize(
    "call",
    [
        lambda J: J.make_jaxpr(by_name, static_argnums=1)(1.0, n="ab"),
        lambda J: J.make_jaxpr(by_name, static_argnums=-1)(1.0, "ab"),
        lambda J: J.make_jaxpr(by_name, static_argnums=5)(1.0, "ab"),
        lambda J: J.make_jaxpr(by_name, static_argnums=1)(1.0, n=[]),
        lambda J: J.make_jaxpr(times, static_argnums=-1)(1.0, 2.0, "ab"),
        lambda J: J.make_jaxpr(lambda *x: x[0], static_argnums=-1)(1.0, "ab"),
        lambda J: J.make_jaxpr(lambda *x: x[0], static_argnums=-3)(1.0, "ab"),
        lambda J: J.jit(times, static_argnums=-1).trace(1.0, 2.0, 3.0, "ab").jaxpr,
        lambda J: J.jit(times, static_argnums=-1, donate_argnums=-3).lower(X3, 1.0, "ab").args_info[0][0].donated,
    ],
)
def test_the_last_argument_is_static_and_static_arguments_have_names(call):
    def result(J):
        try:
            return str(call(J))
        except (TypeError, ValueError) as error:
            return type(error)

    assert result(OURS) == result(THEIRS)


@pytest.mark.parametrize("J", [OURS, THEIRS], ids=["ours", "jax"])
def test_only_programs_that_run_need_values(J):
    """A type alone may be a constant of what is traced; libraries ask for shapes of functions that return one."""
    struct = J.ShapeDtypeStruct((2,), np.float32)
    assert J.eval_shape(lambda: struct) == struct
    assert J.eval_shape(lambda x: (x, J.eval_shape(lambda: [struct])), struct) == (struct, [struct])
    assert J.eval_shape(lambda x: J.lax.add(x, struct), struct) == struct
    assert str(J.make_jaxpr(lambda: struct)()) == "{ lambda a:f32[2]; . let  in (a,) }"
    with pytest.raises(TypeError, match="A ShapeDtypeStruct does not have a value"):
        J.jit(lambda: struct)()


def test_eval_shape_computes_nothing():
    shape = OURS.eval_shape(lambda x: {"y": x @ x.T}, OURS.ShapeDtypeStruct((100_000, 100_000), np.float32))
    assert shape == {"y": OURS.ShapeDtypeStruct((100_000, 100_000), np.float32)}


@pytest.mark.parametrize("transform", ["jit", "grad", "vmap", "jvp", "linearize", "jit grad", "vmap grad", "grad grad"])
def test_tracers_print_as_jaxs(transform):
    def shown(J):
        seen = []

        def f(x):
            seen.append(repr(x))
            return x

        for name in reversed(transform.split()):
            f = {
                "jvp": lambda f: lambda x: J.jvp(f, (x,), (x,)),
                "linearize": lambda f: lambda x: J.linearize(f, x),
            }.get(name, lambda f, name=name: getattr(J, name)(f))(f)
        f(X3 if transform in ("vmap", "vmap grad", "jvp") else 1.0)
        return seen

    assert shown(OURS) == shown(THEIRS)


@pytest.mark.parametrize("J", [THEIRS, OURS], ids=lambda J: J.name)
def test_libraries_see_what_a_jitted_function_is(J):
    def f(x, *, scale=2.0):
        return x * scale

    jitted = J.jit(f)
    assert type(jitted).__name__ == "PjitFunction"
    for follow in (True, False):
        assert inspect.signature(jitted, follow_wrapped=follow) == inspect.signature(f)
    with pytest.raises(ValueError, match="no signature found for builtin"):
        inspect.signature(J.jit(max))


def test_the_mesh_in_scope_belongs_to_the_signature():
    seen = []
    meshes = [OURS.make_mesh((1,), (name,)) for name in ("i", "j")]

    @OURS.jit
    def f(x):
        return OURS.shard_map(lambda y: seen.append(1) or y, in_specs=OURS.P(), out_specs=OURS.P())(x)

    for mesh in (*meshes, *meshes):
        with mesh:
            f(X3)
    with OURS.set_mesh(meshes[0]) as mesh:
        assert mesh is meshes[0]
        f(X3)
    assert len(seen) == 3  # two meshes of `with`, and one of set_mesh
    with pytest.raises(ValueError, match="The context mesh cannot be empty"):
        f(X3)


def test_operations_name_the_users_line():
    def first(x):
        return OURS.nn.log_softmax(x).sum()

    def second(x):
        return OURS.nn.log_softmax(OURS.numpy.sin(x)).sum()

    for f in (first, second):
        for transformed in (
            f,
            OURS.grad(f),
            OURS.jit(OURS.grad(f)),
            OURS.vmap(f, in_axes=None, out_axes=None, axis_size=2),
        ):
            text = OURS.jit(transformed).lower(X3).as_text()
            assert f"({f.__name__})" in text and text.count("test_jit.py:") == text.count(f"({f.__name__})"), text


def test_an_object_whose_type_is_made_at_each_reading_is_refused():
    class Odd:
        aval = property(lambda self: object())

    for f in (OURS.jit(lambda x: x), OURS.numpy.sin, OURS.lax.neg):
        for _ in range(50):
            with pytest.raises((TypeError, AttributeError)):
                f(Odd())
    gc.collect()


@pytest.mark.parametrize(
    "made",
    [
        lambda J: lambda x: (x, x),
        lambda J: lambda x: (x * 2, x * 2),
        lambda J: lambda x: (J.numpy.zeros(3), J.numpy.zeros(3)),
        lambda J: lambda x: (J.numpy.asarray(X3), J.numpy.asarray(X3)),
        lambda J: lambda x: ((y := x + 1), y.reshape(3, 1)[:, 0]),
        lambda J: lambda x: (J.lax.cond(x[0] > 1, lambda: x, lambda: x + 1), x),
    ],
)
@pytest.mark.parametrize("donated", [(), 0])
@pytest.mark.one_in(3)
def test_results_have_memory_of_their_own(made, donated):
    """Each result can be donated, whatever it equals; a second call makes new ones."""

    def run(J):
        f = J.jit(made(J), donate_argnums=donated)
        step = J.jit(lambda y, z: (y + 1, z - 1), donate_argnums=(0, 1))
        out = []
        for _ in range(2):
            x = J.numpy.asarray(X3 + 0)
            y, z = f(x)
            out += [y is z, *step(y, z)]
            if donated == ():
                out.append(x)
        return out

    for ours, theirs in zip(run(OURS), run(THEIRS), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_types_of_results_tell_the_shardings_asked_for():
    for J in (OURS, THEIRS):
        sharding = J.NamedSharding(J.sharding.Mesh(J.devices()[:1], ("x",)), J.P("x"))
        f = J.jit(lambda x: {"a": x * 2, "b": x.sum()}, out_shardings={"a": sharding, "b": None})
        for found in (f.eval_shape(X3), J.eval_shape(f, X3)):
            assert found["a"].sharding == sharding and found["a"].shape == (3,) and found["b"].sharding is None


def documented(x, y):
    """A text."""
    return x * y


@pytest.mark.parametrize("name", ["vmap", "grad", "value_and_grad", "jacfwd", "jacrev", "hessian"])
def test_docstrings_begin_with_what_was_made_of_the_function(name):
    mine, jaxs = (getattr(J, name)(documented).__doc__ for J in (OURS, THEIRS))
    start = jaxs.partition(".")[0]
    assert "documented" in start and mine.startswith(start) and mine.endswith("A text.")


def test_names_of_functions_that_make_jaxprs():
    mine, jaxs = (J.make_jaxpr(documented) for J in (OURS, THEIRS))
    assert (mine.__name__, mine.__qualname__) == (jaxs.__name__, jaxs.__qualname__)
    assert (mine.__module__, jaxs.__module__) == ("mpijax", "jax")


def test_transposes_go_into_and_out_of_jit():
    for J in (OURS, THEIRS):
        transposed = J.jit(lambda c, J=J: J.linear_transpose(lambda x: c * x, 1.0))(2.0)
        assert J.jit(lambda f, x: f(x))(transposed, 3.0) == (6.0,)


def test_numbers_that_no_integer_holds_become_floats():
    for J in (OURS, THEIRS):
        assert float(J.lax.convert_element_type(2**100, np.float32)) == 2.0**100
        with pytest.raises(OverflowError):
            J.lax.convert_element_type(2**100, np.int32)


def test_arrays_have_no_hash():
    for J in (OURS, THEIRS):
        assert not isinstance(J.numpy.ones(1), Hashable)


def test_explanations_tell_of_functions_defined_again(caplog):
    for J in (OURS, THEIRS):
        caplog.clear()
        with J.explain_cache_misses(True):
            for _ in range(2):
                J.jit(lambda x: 2 * x)(3)
        first, second = (r.message for r in caplog.records if "TRACING CACHE MISS" in r.message)
        text = "but seen another function defined on the same line"
        assert text not in first and text in second


def test_the_host_has_everything_already():
    class Told:
        calls = 0

        def copy_to_host_async(self):
            self.calls += 1

    for J in (OURS, THEIRS):
        x = [J.numpy.ones(2), 3, Told()]
        assert J.copy_to_host_async(x) is x and x[2].calls == 1


def test_results_of_jvp_that_are_arguments_are_arrays():
    for J in (OURS, THEIRS):
        assert all(isinstance(x, J.Array) for x in J.jvp(J.numpy.asarray, (1.0,), (2.0,)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_of_traced_arrays_are_equations(copied):
    check(lambda J: lambda x: copied(x) + 1, X3, eager=False, jitted=False)


def test_masked_arrays_are_refused():
    masked = np.ma.array([1, 2], mask=[True, False])
    for f in (OURS.jit(lambda x: x), OURS.make_jaxpr(lambda x: x), OURS.lax.neg, OURS.device_put):
        with pytest.raises(ValueError, match="masked arrays are not supported"):
            f(masked)
    np.testing.assert_array_equal(OURS.numpy.array(masked), [1, 2])


def widened(J):
    def fun(x):
        with J.enable_x64():
            return 2 * x.astype(J.numpy.float64)

    return fun


def scanned(J):
    def body(carry, x):
        with J.enable_x64():
            wide = (carry + x).astype(J.numpy.int64)
        return carry, (wide, wide.astype(J.numpy.int32))

    return lambda x: J.lax.scan(body, J.numpy.int32(2), x.astype(np.int32))


def squared(J):
    f = J.custom_jvp(lambda x: x**2.0)
    f.defjvp(lambda xs, ts: (f(xs[0]), ts[0] * J.numpy.sin(xs[0])))

    def fun(x):
        with J.enable_x64():
            return f(J.numpy.array(x, J.numpy.float64))

    return fun


WIDE_INSIDE = {
    "jit": lambda J: J.jit(widened(J)),
    "vmap": lambda J: J.vmap(widened(J)),
    "map": lambda J: lambda x: J.lax.map(widened(J), x),
    "scan": scanned,
    "cond": lambda J: lambda x: J.lax.cond(x[0] > 0, widened(J), widened(J), x),
    "checkpoint": lambda J: J.checkpoint(widened(J)),
    "grad": lambda J: J.grad(lambda x: widened(J)(x).sum()),
    "second derivative": lambda J: J.vmap(J.grad(J.grad(squared(J)))),
    "jvp": lambda J: lambda x: J.jvp(squared(J), (x,), (x,)),
    "outside again": lambda J: lambda x: (lambda y: (y * y, y + 1, J.numpy.sin(y), y[0]))(widened(J)(x)),
}


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
@pytest.mark.parametrize("name", one_in(3, WIDE_INSIDE))
def test_programs_of_64_bits_in_part(name):
    check(WIDE_INSIDE[name], X3, jaxpr=False, rtol=1e-6)


def test_jits_of_a_function_with_equal_options_share_compiled_programs():
    """A loop that calls `jit(f)(x)` compiles once."""
    found = []
    for J in (THEIRS, OURS):

        def f(x, n=1):
            return x + n

        sharding = J.sharding.SingleDeviceSharding(J.devices()[0])

        def make(f=f, sharding=sharding, jit=J.jit):
            return jit(f), jit(f, donate_argnums=0), jit(f, out_shardings=sharding), jit(f, static_argnames="n")

        first, again = make(), make()
        sizes = []
        for jitted in first[:3]:
            jitted(J.numpy.ones(3))
            sizes.append([other._cache_size() for other in again[:3]])
        first[3](X3, n=2)
        assert again[3]._cache_size()
        again[0].clear_cache()
        found.append((sizes, first[0]._cache_size()))
    assert found[0] == found[1] == ([[1, 0, 0], [1, 1, 0], [1, 1, 1]], 0)


def scaled(x, by):
    return by(2) * x


def test_jitted_functions_are_pickled_with_their_options():
    """JAX's need cloudpickle, which asks objects the same."""
    again = pickle.loads(pickle.dumps(mpijax.jit(scaled, static_argnames="by")))
    np.testing.assert_array_equal(again(X3, by=float), 2 * X3)
    holder = []  # of a function that refers to itself
    holder.append(mpijax.jit(partial(map, holder)))
    (copied,) = pickle.loads(pickle.dumps(holder))
    assert copied is not holder[0] and copied.__wrapped__.args[0][0] is copied
