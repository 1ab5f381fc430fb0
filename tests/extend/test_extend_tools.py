"""What interpreters of one's own are built from: `extend.linear_util`, `api_util`, partial evaluation, the trace state."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import dataclasses
import gc
import importlib
import inspect
import subprocess
import sys
import warnings

import numpy as np
import pytest
from oracle import OURS, THEIRS, clean

X = np.arange(3, dtype=np.float32)
IN_BOTH = pytest.mark.parametrize("J", [THEIRS, OURS], ids=["jax", "mpijax"])
REGISTERED = []  # JAX knows classes by their addresses: the next class at the address of a freed one would be taken for it


def part(J, name):
    return importlib.import_module(f"{J.name}.{name}")


def wrapped(J, f, *args):
    return part(J, "extend.linear_util").wrap_init(f, debug_info=part(J, "api_util").debug_info("a test", f, args, {}))


# ---------------------------------------------------------------- linear_util


@IN_BOTH
def test_the_transformation_added_last_is_outermost(J):
    lu = part(J, "extend.linear_util")
    order = []

    @lu.transformation
    def scaled(factor, x):
        order.append(factor)
        out = yield (x * factor,), {}
        yield out + 1

    @lu.transformation2
    def negated(f, x):
        order.append("negated")
        return -f(x)

    f = negated(scaled(wrapped(J, lambda x: x * x), 3))
    assert f.call_wrapped(2) == -37 and order == ["negated", 3]
    assert f.__name__ == "<lambda>" and len(f.transforms) == 2


@IN_BOTH
def test_auxiliary_values_are_there_after_the_call_and_only_once(J):
    lu = part(J, "extend.linear_util")

    @lu.transformation_with_aux
    def counted(*args):
        out = yield args, {}
        yield out, len(args)

    f, aux = counted(wrapped(J, lambda x, y: x + y))
    with pytest.raises(lu.StoreException, match="empty"):
        aux()
    assert f.call_wrapped(1, 2) == 3 and aux() == 2
    with pytest.raises(lu.StoreException, match="occupied"):
        f.call_wrapped(1, 2)
    g, other = counted(wrapped(J, lambda x: x))
    assert lu.merge_linear_aux(aux, other) == (True, 2) and lu.merge_linear_aux(other, aux) == (False, 2)
    with pytest.raises(lu.StoreException, match="neither store occupied"):
        lu.merge_linear_aux(other, other)


@IN_BOTH
def test_equal_wrapped_functions_share_what_is_remembered(J):
    lu = part(J, "extend.linear_util")
    calls = []

    @lu.transformation_with_aux2
    def doubled(f, store, x):
        store.store("aux")
        return 2 * f(x)

    @lu.cache
    def run(fun, x):
        calls.append(x)
        return fun.call_wrapped(x)

    def f(x):
        return x + 1

    results = []
    for x in (1, 1, 2):
        g, aux = doubled(wrapped(J, f))
        results.append((run(g, x), aux()))
    assert results == [(4, "aux"), (4, "aux"), (6, "aux")] and calls == [1, 2]
    run.cache_clear()
    assert run(doubled(wrapped(J, f))[0], 1) == 4 and calls == [1, 2, 1]


# ---------------------------------------------------------------- api_util


@IN_BOTH
def test_flat_functions(J):
    util = part(J, "api_util")
    leaves, tree = J.tree.flatten(((X, {"a": X}), {"k": 2.0}))
    f, out_tree = util.flatten_fun(wrapped(J, lambda x, d, k: {"out": (x + d["a"], k)}), tree)
    np.testing.assert_array_equal(f.call_wrapped(*leaves)[0], 2 * X)
    assert str(out_tree()) == "PyTreeDef({'out': (*, *)})"
    g, out_tree = util.flatten_fun_nokwargs(wrapped(J, lambda x, y: [x, y]), J.tree.structure((1, 2)))
    assert g.call_wrapped(3, 4) == [3, 4] and out_tree() == J.tree.structure([1, 2])


@IN_BOTH
def test_positions_of_arguments(J):
    util = part(J, "api_util")
    f, dynamic = util.argnums_partial(wrapped(J, lambda a, b, c: (a, b, c)), (0, 2), (1, "b", 3))
    assert dynamic == (1, 3) and f.call_wrapped(10, 30) == (10, "b", 30)
    with pytest.raises(ValueError, match="non-hashable"):
        util.argnums_partial(wrapped(J, lambda a, b: a), (0,), (1, []))
    assert util.rebase_donate_argnums((3, 4), (0, 1)) == (1, 2)
    with pytest.raises(ValueError, match="cannot intersect"):
        util.rebase_donate_argnums((0,), (0,))
    tree = J.tree.structure((((1, 2), 3), {"a": 4, "b": (5, 6)}))
    assert util.donation_vector((0,), ("b",), tree) == (True, True, False, False, True, True)
    assert util.safe_map(lambda x, y: x + y, [1, 2], [3, 4]) == [4, 6]
    assert (
        util.shaped_abstractify(X).str_short()
        == util.shaped_abstractify(J.ShapeDtypeStruct((3,), "float32")).str_short()
    )


# ---------------------------------------------------------------- partial evaluation


@IN_BOTH
def test_what_is_known_is_computed_and_the_rest_is_a_program(J):
    pe = part(J, "interpreters.partial_eval")
    ran = []

    def f(x, y):
        known = J.jit(lambda x, y: (J.numpy.sin(x), x * y))(x, y)
        ran.append(known[0])
        return known[0], known[1] + 1, J.numpy.ones(()) * 3

    aval = J.typeof(X)
    jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(
        wrapped(J, f, X, X), [pe.PartialVal.known(X), pe.PartialVal.unknown(aval)]
    )
    assert [o.is_known() for o in outs] == [True, False, True] and outs[2].get_known() == 3.0
    np.testing.assert_allclose(outs[0].get_known(), np.sin(X), rtol=1e-6)
    pv, const = outs[1]
    assert (pv.shape, pv.dtype, const) == ((3,), np.float32, None)
    np.testing.assert_allclose(J.core.eval_jaxpr(jaxpr, consts, 2 * X)[0], X * 2 * X + 1)


@IN_BOTH
def test_results_of_loops_and_branches_may_be_known(J):
    """As Flax's `nn.scan` needs it: layers that a loop initialises depend on its keys, not on what it carries."""
    pe = part(J, "interpreters.partial_eval")

    def f(x, y):
        def body(carry, z):
            count, weight = carry
            return (count + 1, weight * x[0]), (J.numpy.sin(z), z * weight)

        (count, weight), (sines, mixed) = J.lax.scan(body, (0, x[1]), y)
        chosen, other = J.lax.cond(count > 1, lambda x: (2.0, x), lambda x: (3.0, 2 * x), x)
        return [count, weight, sines, mixed, chosen, other]

    jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(
        wrapped(J, f, X, X), [pe.PartialVal.unknown(J.typeof(X)), pe.PartialVal.known(X)]
    )
    assert [o.is_known() for o in outs] == [True, False, True, False, True, False]
    assert outs[0].get_known() == 3 and outs[4].get_known() == 2.0
    np.testing.assert_allclose(outs[2].get_known(), np.sin(X), rtol=1e-6)
    weight, mixed, other = J.core.eval_jaxpr(jaxpr, consts, X)
    np.testing.assert_allclose(weight, X[1] * X[0] ** 3, rtol=1e-6)
    np.testing.assert_allclose(mixed, [z * X[1] * X[0] ** k for k, z in enumerate(X)], rtol=1e-6)
    np.testing.assert_array_equal(other, X)


@IN_BOTH
def test_known_results_can_be_made_results_of_the_program(J):
    pe = part(J, "interpreters.partial_eval")
    jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(
        wrapped(J, lambda x: [x * 2, x], X), [pe.PartialVal.known(X)], instantiate=[True, False]
    )
    assert [o.is_known() for o in outs] == [False, True]
    np.testing.assert_array_equal(J.core.eval_jaxpr(jaxpr, consts)[0], 2 * X)


def test_rules_given_by_the_user_are_left_where_something_is_unknown():
    J, pe = OURS, part(OURS, "interpreters.partial_eval")
    f = J.custom_jvp(lambda x, y: x * y)
    f.defjvp(lambda p, t: (f(*p), t[0]))
    args = [pe.PartialVal.known(X), pe.PartialVal.unknown(J.typeof(X))]
    jaxpr, (out, known), consts = pe.trace_to_jaxpr_nounits(wrapped(J, lambda x, y: [f(x, y), f(x, x)], X, X), args)
    assert [e.primitive.name for e in jaxpr.eqns] == ["mul"] and not out.is_known()
    np.testing.assert_array_equal(known.get_known(), X * X)


def test_programs_of_wrapped_functions_are_those_of_make_jaxpr():
    texts = []
    for J in (THEIRS, OURS):
        pe = part(J, "interpreters.partial_eval")
        jaxpr, avals, consts = pe.trace_to_jaxpr_dynamic(wrapped(J, lambda x: [J.numpy.sin(x) * 2], X), [J.typeof(X)])
        texts.append((clean(str(jaxpr)), [(a.shape, a.dtype) for a in avals], consts))
    assert texts[0] == texts[1]


# ---------------------------------------------------------------- the current trace


@IN_BOTH
def test_the_trace_state_tells_transformations_apart(J):
    core = part(J, "extend.core")
    outside = core.get_opaque_trace_state()
    inside = []
    J.jit(lambda x: inside.extend([core.get_opaque_trace_state(), core.get_opaque_trace_state()]) or x)(1.0)
    assert outside == core.get_opaque_trace_state() and inside[0] != outside
    gc.collect()
    assert isinstance(core.find_top_trace(()), J.core.Trace)


@IN_BOTH
def test_what_is_around(J):
    core = part(J, "extend.core")
    seen = []

    def look(x):
        seen.append(
            (
                core.unsafe_am_i_under_a_jit_DO_NOT_USE(),
                core.unsafe_am_i_under_a_vmap_DO_NOT_USE(),
                core.unsafe_get_axis_names_DO_NOT_USE(),
                core.nonempty_axis_env_DO_NOT_USE(),
            )
        )
        return x

    look(X)
    J.jit(look)(X)
    J.vmap(look, axis_name="i")(X)
    J.jit(J.vmap(look))(X)
    assert seen[:3] == [(False, False, [], False), (True, False, [], False), (False, True, ["i"], True)]
    assert seen[3][:2] == (True, True)


@IN_BOTH
def test_operations_on_known_values_run_at_once_and_the_others_are_traced(J):
    @J.jit
    def f(x):
        with J.ensure_compile_time_eval():
            table = J.numpy.cumsum(J.numpy.ones(3))
            assert not isinstance(table, J.core.Tracer) and int(table[-1]) == 3
            y = J.vmap(J.numpy.sin)(x) + table[-1]
            assert isinstance(y, J.core.Tracer)
        return J.grad(lambda x: (y * x).sum())(x)

    np.testing.assert_allclose(f(X), np.sin(X) + 3, rtol=1e-6)
    with J.ensure_compile_time_eval():
        assert float(J.numpy.sum(X)) == 3.0


@IN_BOTH
def test_small_tools(J):
    core = part(J, "extend.core")
    assert core.concrete_or_error(int, 3.5) == 3 and core.concrete_or_error(None, "a") == "a"
    with pytest.raises(J.errors.ConcretizationTypeError, match="for a reason"):
        J.jit(lambda x: core.concrete_or_error(int, x, "for a reason"))(1)
    assert core.primal_dtype_to_tangent_dtype(np.dtype("int32")) == J.float0
    assert core.primal_dtype_to_tangent_dtype(np.dtype("float32")) == np.float32
    closed = J.make_jaxpr(lambda x: x + x)(X)
    (eqn,) = closed.jaxpr.eqns
    var = core.gensym()(eqn.outvars[0].aval)
    new = core.new_jaxpr_eqn(eqn.invars, [var], eqn.primitive, eqn.params, core.no_effects)
    jaxpr = closed.jaxpr.replace(eqns=[new], outvars=[var])
    np.testing.assert_array_equal(core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, []))(X)[0], 2 * X)


def test_names_that_moved_say_where():
    core = importlib.import_module("mpijax.core")
    with pytest.warns(DeprecationWarning, match="Use jax.extend.core.DropVar"):
        assert core.DropVar is part(OURS, "extend.core").DropVar
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert core.Tracer and core.ShapedArray


# ---------------------------------------------------------------- libraries


def test_lines_of_a_library_are_not_the_users():
    info = part(OURS, "extend.source_info_util")
    library = {}
    exec(compile("def double(x):\n    return x + x\n", "/a/library/doubling.py", "exec"), library)
    before = OURS.make_jaxpr(library["double"])(X).jaxpr.eqns[0].source_info
    info.register_exclusion("/a/library")
    after = OURS.make_jaxpr(library["double"])(X).jaxpr.eqns[0].source_info
    assert before.file == "/a/library/doubling.py" and after.file == __file__
    assert __file__ in info.summarize(after)


def test_what_is_known_of_a_traced_function():
    def step(x, *, scale):
        return x * scale["a"]

    for J in (THEIRS, OURS):
        info = part(J, "api_util").debug_info("a test", step, (X,), {"scale": {"a": X}})
        assert (info.traced_for, info.func_name, info.arg_names) == ("a test", "step", ("x", "scale['a']"))
        assert __file__ in info.func_src_info
        other = part(J, "extend.core").DebugInfo(info.traced_for, info.func_src_info, info.arg_names, ("0",))
        assert other.result_paths == ("0",) and other.arg_names == info.arg_names


@pytest.mark.parametrize("J", [THEIRS, OURS])
def test_equations_that_are_evaluated_again_keep_their_lines(J):
    """As evaluators of Jaxprs do it that are copies of JAX's."""
    info = part(J, "extend.source_info_util")
    closed = J.make_jaxpr(lambda x: x * 2)(X)

    def again(x):
        (eqn,) = closed.jaxpr.eqns
        with info.user_context(eqn.source_info.traceback):
            return eqn.primitive.bind(x, np.float32(2), **eqn.primitive.get_bind_params(eqn.params))

    def line(jaxpr):
        return info.summarize(jaxpr.eqns[0].source_info).split()[0]

    assert line(J.make_jaxpr(again)(X).jaxpr) == line(closed.jaxpr)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("J", [THEIRS, OURS])
def test_the_function_of_a_custom_rule_is_among_the_parameters_of_bind(J, kind):
    f = getattr(J, kind)(lambda x: x * 3)
    if kind == "custom_jvp":
        f.defjvp(lambda primals, tangents: (f(*primals), 10 * tangents[0]))
    else:
        f.defvjp(lambda x: (f(x), None), lambda _, ct: (10 * ct,))
    (eqn,) = J.make_jaxpr(f)(2.0).jaxpr.eqns
    params = eqn.primitive.get_bind_params(eqn.params)
    assert params["subfuns"][0].call_wrapped(2.0)[0] == 6
    again = lambda x: eqn.primitive.bind(x, **params)[0]
    assert again(2.0) == 6
    assert J.grad(again)(2.0) == J.grad(J.jit(again))(2.0) == 10


def test_private_names_are_the_public_ones():
    for private, public in [
        ("_src.core", "extend.core"),
        ("_src.flatten_util", "flatten_util"),
        ("_src.api_util", "api_util"),
        ("_src.tree_util", "tree_util"),
        ("_src.linear_util", "extend.linear_util"),
        ("_src.checkify", "experimental.checkify"),
    ]:
        for name in part(OURS, public).__all__:
            assert getattr(part(OURS, private), name) is getattr(part(OURS, public), name)
    assert part(OURS, "_src.core").trace_state_clean()
    assert issubclass(part(OURS, "_src.dtypes").TypePromotionError, ValueError)
    assert part(OURS, "_src.dtypes").supports_inf("float32")
    for name in ("int32", "int64", "bfloat16", "float64", "complex64"):
        complexes = [part(J, "_src.dtypes").to_complex_dtype(np.dtype(name)) for J in (OURS, THEIRS)]
        assert complexes[0] == complexes[1]
    assert part(OURS, "_src.dispatch").wait_for_tokens() is None
    assert part(OURS, "_src.pjit").jit_p is OURS.make_jaxpr(OURS.jit(lambda x: x))(X).eqns[0].primitive
    assert part(OURS, "_src.interpreters.ad").primitive_jvps is part(OURS, "interpreters.ad").primitive_jvps
    assert part(OURS, "_src.scipy.special").gammaln is part(OURS, "scipy.special").gammaln
    assert part(OURS, "_src.lax.control_flow").scan is OURS.lax.scan
    assert [part(J, "_src.xla_bridge").get_backend().platform for J in (OURS, THEIRS)] == ["cpu", "cpu"]
    assert part(OURS, "_src.numpy.util").promote_dtypes_complex(1.0)[0].dtype == "complex64"
    assert part(OURS, "_src.tree_util").prefix_errors([1], (1,))


@pytest.mark.parametrize("J", [THEIRS, OURS])
def test_the_private_registry_takes_nodes_apart(J):
    class Pair:
        def __init__(self, *parts):
            self.parts = parts

        def __eq__(self, other):
            return self.parts == other.parts

    @dataclasses.dataclass
    class Layer:
        weight: object
        name: str

    J.tree_util.register_pytree_node(Pair, lambda p: (p.parts, None), lambda _, parts: Pair(*parts))
    J.tree_util.register_dataclass(Layer, ["weight"], ["name"])
    registry = part(J, "_src.tree_util")._registry
    for node in [(1, [2]), [1, 2], {"b": 1, "a": 2}, Pair(1, (2, 3)), Layer(1, "first")]:
        entry = registry[type(node)]
        children, data = entry.to_iter(node)
        assert entry.from_iter(data, children) == node
    assert int not in registry
    with pytest.raises(KeyError):
        registry[int]


@pytest.mark.parametrize("J", [THEIRS, OURS])
def test_check_close_allows_what_the_dtype_does(J):
    close = part(J, "_src.public_test_util").check_close
    close({"a": X, "b": 1}, {"a": X * np.float32(1 + 1e-7), "b": 1})
    close(J.numpy.ones(2, "bfloat16"), J.numpy.full(2, 1.01, "bfloat16"))
    close(X, X + np.float32(1e-4), atol={"float32": 1e-3})
    for x, y in [(X, X * np.float32(1.001)), (np.arange(3), np.arange(3) + 1), (X, X[:1]), (X, np.float64(X) + 1e-3)]:
        with pytest.raises(AssertionError):
            close(x, y)


@pytest.mark.parametrize("J", [THEIRS, OURS])
def test_sizes_that_are_numbers(J):
    (a,) = part(J, "export").symbolic_shape("a")
    seen = []
    with pytest.warns(DeprecationWarning, match="is_constant_dim is deprecated"):
        is_constant = J.core.is_constant_dim
    J.jit(lambda n: seen.append(is_constant(n)))(3)
    assert [is_constant(x) for x in (3, np.int64(3), a, "a")] + seen == [True, True, False, False, False]
    with pytest.warns(DeprecationWarning, match="is_constant_shape is deprecated"):
        assert J.core.is_constant_shape((3, 4)) and not J.core.is_constant_shape((3, a))


@pytest.mark.parametrize(
    "given", [(None, None), ((0, 2), None), (None, "b"), (1, ["c"]), (None, ("b", "d")), (3, None)]
)
def test_positions_and_names_of_arguments_complete_each_other(given):
    def f(a, b, c=0, *rest, d=1):
        return a

    signature = inspect.signature(f)
    ours, theirs = (part(J, "_src.api_util").infer_argnums_and_argnames(signature, *given) for J in (OURS, THEIRS))
    assert ours == theirs


@IN_BOTH
def test_types_of_other_libraries_stand_for_arrays(J):
    """They are entered beside those of NumPy, under the names that JAX has for the tables."""

    class Grid:
        dtype = np.dtype("float64")

        def __init__(self, *values):
            self.values = values
            self.shape = (len(values),)

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.values, dtype or self.dtype)

    class Inner(Grid):
        pass

    class Proxy(Grid):
        __class__ = type(J.numpy.ones(2))

        def __getattr__(self, name):
            return getattr(J.numpy.array(self.values, "float32"), name)

    REGISTERED.extend((Grid, Inner, Proxy))
    with pytest.warns(DeprecationWarning, match="pytype_aval_mappings is deprecated"):
        types = J.core.pytype_aval_mappings
    with pytest.raises(TypeError, match="not a valid JAX type"):
        J.jit(lambda x: x * 2)(Grid(1, 2))
    types[Grid] = types[np.ndarray]
    handlers = part(J, "interpreters.xla").canonicalize_dtype_handlers
    handlers[Grid] = handlers[Inner] = handlers[Proxy] = handlers[np.ndarray]
    for x in (Grid(1, 2), Inner(1, 2), Proxy(1, 2)):
        assert J.typeof(x).str_short() == "float32[2]"
        out = J.jit(lambda x: x * 2)(x)
        assert out.dtype == "float32" and out.tolist() == [2, 4]
        assert J.lax.mul(x, x).tolist() == [1, 4]
        assert J.jit(lambda x: J.lax.sin(x) * 0)(x).tolist() == [0, 0]
    del types[Grid]


def test_private_modules_are_there_without_an_import():
    code = """if True:
        import mpijax as jax
        import mpijax._src
        assert jax._src.xla_bridge._backends == {}
        jax.devices()
        assert list(jax._src.xla_bridge._backends) == ["cpu"]
        assert not hasattr(jax._src, "nothing") and not hasattr(jax._src.xla_bridge, "nothing")
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_of_the_interface():
    assert OURS.__version_info__ == part(OURS, "version").__version_info__ == THEIRS.__version_info__


def test_calls_are_written_down_as_their_operations():
    J = OURS
    primitives = part(J, "extend.core.primitives")
    closed = J.make_jaxpr(lambda x: x * 2)(X)
    text = str(J.make_jaxpr(lambda x: primitives.closed_call_p.bind(x, call_jaxpr=closed))(X))
    assert text == str(J.make_jaxpr(lambda x: primitives.call_p.bind(wrapped(J, lambda x: [x * 2], X), x))(X))
    assert text == str(J.make_jaxpr(lambda x: [x * 2])(X))


@IN_BOTH
def test_types_have_a_sharding_that_splits_nothing(J):
    sharding = J.typeof(np.ones((2, 3))).sharding
    P = J.sharding.PartitionSpec
    assert sharding.spec == P(None, None) and sharding.mesh.empty and sharding.mesh == J.sharding.get_abstract_mesh()
    assert sharding.update(spec=P(None)).spec == P(None)
    assert J.core.ShapedArray((3,), np.dtype("float32"), sharding=None).shape == (3,)


@IN_BOTH
@pytest.mark.parametrize("kind", ["Auto", "Explicit", "Manual"])
def test_kinds_of_all_axes_of_a_mesh(J, kind):
    mesh = J.sharding.Mesh(np.array(J.local_devices()[:1]), "x", (getattr(J.sharding.AxisType, kind),))
    found = [name for name in ("auto", "explicit", "manual") if getattr(mesh, f"are_all_axes_{name}")]
    assert found == [kind.lower()]


@IN_BOTH
def test_meshes_without_devices(J):
    Mesh, kinds = J.sharding.AbstractMesh, J.sharding.AxisType
    mesh = Mesh((2, 3), ("a", "b"), (kinds.Auto, kinds.Manual))
    assert mesh == Mesh((2, 3), ("a", "b"), (kinds.Auto, kinds.Manual)) != Mesh((2, 3), ("a", "c"))
    assert dict(mesh.shape) == {"a": 2, "b": 3} and mesh.size == 6 and not mesh.empty
    assert (mesh.auto_axes, mesh.manual_axes, mesh.explicit_axes) == (("a",), ("b",), ())
    assert not mesh.are_all_axes_auto and mesh.update(axis_sizes=(1, 1)).size == 1
    with pytest.raises(ValueError, match="AbstractMesh does not implement devices"):
        mesh.devices  # noqa: B018


@IN_BOTH
@pytest.mark.one_in(2)
def test_the_type_of_arrays_has_their_methods_before_there_are_any(J):
    code = f"""if True:
        import {J.name} as jax
        assert all(callable(getattr(jax.Array, name)) for name in ["item", "sum", "addressable_data"])
        assert hasattr(jax.Array, "shape") and not hasattr(jax.Array, "nothing")
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@IN_BOTH
def test_types_name_those_of_their_tangents(J):
    aval = J.typeof(np.arange(3, dtype=np.float32))
    assert aval.at_least_vspace() == aval.to_tangent_aval() == aval
    assert J.typeof(np.arange(3)).at_least_vspace().dtype == J.dtypes.float0


@IN_BOTH
def test_backends(J):
    backend = part(J, "extend.backend")
    assert backend.get_backend().platform == backend.get_backend("cpu").platform == "cpu"
    assert backend.get_backend() is J.devices()[0].client is backend.backends()["cpu"]
    assert backend.get_default_device() is J.devices()[0]
    with pytest.raises(RuntimeError, match="nothing"):
        backend.get_backend("nothing")
    with J.default_device(J.devices()[-1]):
        assert backend.get_default_device() is J.devices()[-1]


@IN_BOTH
def test_traces_of_libraries_pass_calls_with_custom_derivatives_on(J):
    """As Quax and Haiku do: the library's trace wraps the function and its rule, and binds the primitive again."""
    lu, core = part(J, "extend.linear_util"), part(J, "_src.core")
    seen = []

    class Tracer(core.Tracer):
        __slots__ = ("value",)

        def __init__(self, trace, value):
            self._trace, self.value = trace, value

        aval = property(lambda self: J.typeof(self.value))

    class Trace(core.Trace):
        def __init__(self, parent, tag):
            super().__init__()
            self.outer, self.tag = parent, tag

        def bound(self, primitive, tracers, params):
            seen.append(primitive.name)
            values = [self.value(t) for t in tracers]
            return primitive.bind_with_trace(self.outer, tuple(values), tuple(map(J.typeof, values)), params)

        def value(self, x):
            return x.value if isinstance(x, Tracer) and x._trace.tag is self.tag else x

        def process_primitive(self, primitive, tracers, params):
            outs = self.bound(primitive, tracers, params)
            return [Tracer(self, o) for o in outs] if primitive.multiple_results else Tracer(self, outs)

        def process_custom_jvp_call(self, primitive, fun, jvp, tracers, *, symbolic_zeros):
            params = {"subfuns": (run_in(fun, self.tag), run_in(jvp, self.tag)), "symbolic_zeros": symbolic_zeros}
            return [Tracer(self, o) for o in self.bound(primitive, tracers, params)]

        def process_custom_vjp_call(self, primitive, fun, fwd, bwd, tracers, out_trees, symbolic_zeros):
            subfuns = (run_in(fun, self.tag), run_in(fwd, self.tag), bwd)
            params = {"subfuns": subfuns, "out_trees": out_trees, "symbolic_zeros": symbolic_zeros}
            return [Tracer(self, o) for o in self.bound(primitive, tracers, params)]

    @lu.transformation2
    def run_in(f, tag, *xs):
        with core.take_current_trace() as parent:
            trace = Trace(parent, tag)
            with core.set_current_trace(trace):
                outs = f(*[x if isinstance(x, bool) else Tracer(trace, x) for x in xs])
            return [trace.value(o) for o in outs]

    def traced(f):
        return lambda x: run_in(wrapped(J, lambda x: [f(x)], x), core.TraceTag()).call_wrapped(x)[0]

    @J.custom_jvp
    def tripled(x):
        return J.numpy.sin(x)

    tripled.defjvp(lambda primals, tangents: (tripled(*primals), 3 * tangents[0]))

    @J.custom_vjp
    def fivefold(x):
        return J.numpy.sin(x)

    fivefold.defvjp(lambda x: (fivefold(x), x), lambda x, ct: (5 * ct,))
    x = J.numpy.float32(0.3)
    for f, name, slope in ((tripled, "custom_jvp_call", 3), (fivefold, "custom_vjp_call", 5)):
        g = traced(f)
        with J.checking_leaks():
            values = g(x), J.jit(g)(x), J.vmap(g)(x[None])[0]
            slopes = J.grad(g)(x), J.jit(J.grad(g))(x), J.grad(J.jit(g))(x), J.grad(traced(g))(x)
        np.testing.assert_allclose(values, np.sin(np.float32(0.3)), rtol=1e-6)
        np.testing.assert_allclose(slopes, slope)
        assert name in seen

    class Plain(core.Trace):
        pass

    with pytest.raises(NotImplementedError, match="must override process_custom_jvp_call"):
        with core.set_current_trace(Plain()):
            tripled(x)


@IN_BOTH
def test_tracers_of_libraries_may_give_their_type_to_the_base_class(J):
    """As Haiku's `to_dot` does."""
    core = part(J, "_src.core")

    class Tracer(core.Tracer):
        def __init__(self, trace, value):
            super().__init__(trace, J.typeof(value))

    class Trace(core.Trace):
        def process_primitive(self, primitive, tracers, params):
            return primitive.name

    trace = Trace()
    x = Tracer(trace, np.ones(3, np.float32))
    assert x.aval == J.typeof(np.ones(3, np.float32)) and x.shape == (3,)
    with core.set_current_trace(trace):
        assert J.lax.sin_p.bind(x) == "sin"


def test_words_of_threefry_keys_are_jaxs():
    """Quax's examples compute with them."""
    values = []
    for J in (OURS, THEIRS):
        threefry = part(J, "_src.random.threefry2x32")
        key = threefry.threefry_seed(J.numpy.asarray(7))
        words = [key, threefry.threefry_split(key, (2, 3)), threefry.threefry_fold_in(key, J.numpy.uint32(5))]
        values.append([*words, *(threefry.threefry_random_bits(key, width, (2, 3)) for width in (8, 16, 32))])
    for ours, wanted in zip(*values, strict=True):
        np.testing.assert_array_equal(ours, wanted)
        assert ours.dtype == wanted.dtype


@IN_BOTH
def test_every_primitive_is_one_of_extend(J):
    Primitive = part(J, "extend.core").Primitive
    assert isinstance(J.lax.sin_p, Primitive) and isinstance(part(J, "extend.core").primitives.jit_p, Primitive)

    class Named(Primitive):
        pass

    assert not isinstance(J.lax.sin_p, Named) and not isinstance("sin", Primitive)
    assert isinstance(Named("named_here"), Primitive)
