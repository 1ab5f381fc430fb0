"""Types of mesh axes in context: `use_abstract_mesh`, `auto_axes`, `explicit_axes`."""

import numpy as np
import pytest
from oracle import OURS, THEIRS

import mpijax as jax
from mpijax import numpy as jnp
from mpijax._src.mesh import thread_resources
from mpijax.sharding import (
    AbstractMesh,
    AxisType,
    ManualAxisType,
    auto_axes,
    explicit_axes,
    get_abstract_mesh,
    use_abstract_mesh,
)

X = np.arange(4, dtype=np.float32)


@pytest.fixture
def mesh():
    with jax.set_mesh(jax.make_mesh((1,), ("x",))) as mesh:
        yield mesh


def types():
    return get_abstract_mesh().axis_types


def test_an_abstract_mesh_in_context():
    def seen(J):
        mesh = J.sharding.AbstractMesh((2, 1), ("x", "y"), (J.sharding.AxisType.Explicit,) * 2)
        out = []
        with J.sharding.use_abstract_mesh(mesh):
            out.append(J.sharding.get_abstract_mesh() == mesh)
            for other in (J.sharding.AbstractMesh((3,), ("z",)), "mesh"):
                try:
                    with J.sharding.use_abstract_mesh(other):
                        out.append("entered")
                except ValueError as error:
                    out.append(str(error).split(".")[0])
        return *out, J.sharding.get_abstract_mesh().empty

    assert seen(OURS) == seen(THEIRS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_mesh_of_with_is_no_mesh_in_context():
    """Libraries look for a mesh in context, and else for that of `with mesh:`, which has devices."""

    def seen(J):
        out = []
        devices = np.array(J.devices()[:1])
        look = lambda x: out.append(repr(J.sharding.get_abstract_mesh())) or J.lax.with_sharding_constraint(x, J.P("x"))
        with J.sharding.Mesh(devices, ("x",)):
            out += [repr(J.sharding.get_mesh()), J.jit(look)(X).shape]
            with J.set_mesh(J.sharding.Mesh(devices, ("y",))):
                out.append(J.sharding.get_abstract_mesh().axis_names)
            out.append(J.sharding.get_abstract_mesh().empty)
        return out

    assert seen(OURS) == seen(THEIRS)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    with mesh:
        assert thread_resources.env.physical_mesh is mesh
    assert thread_resources.env.physical_mesh.empty


def test_functions_are_traced_for_each_mesh():
    traced = []
    f = jax.jit(lambda x: traced.append(get_abstract_mesh().shape_tuple) or x)
    f(X)
    with use_abstract_mesh(AbstractMesh((2,), ("x",))):
        f(X)
        f(X)
    f(X)
    assert traced == [(), (("x", 2),)]


def test_the_body_of_a_shard_map_has_its_own_mesh(mesh):
    def body(x):
        seen.append(types())
        with use_abstract_mesh(get_abstract_mesh().update(axis_types=AxisType.Auto)):
            seen.append(types())
        return x

    seen = []
    with use_abstract_mesh(get_abstract_mesh().update(axis_types=AxisType.Auto)):
        jax.shard_map(body, mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x"))(X)
        seen.append(types())
    assert seen == [(AxisType.Manual,), (AxisType.Auto,), (AxisType.Auto,)]


@pytest.mark.parametrize("jitted", [False, True])
def test_results_of_auto_axes_are_laid_out(mesh, jitted):
    seen = []

    def f(x, factor=1):
        seen.append(types())
        return {"a": factor * x, "b": x[0]}

    shardings = {"a": jax.P("x"), "b": jax.P()}
    here = auto_axes(f, out_sharding=shardings)
    later = auto_axes(axes="x")(f)
    assert types() == (AxisType.Explicit,)
    for call in (here, lambda x, **kw: later(x, out_sharding=shardings, **kw)):
        out = (jax.jit(call) if jitted else call)(X, factor=2.0)
        np.testing.assert_array_equal(out["a"], 2 * X)
        assert out["a"].sharding.spec == jax.P("x")
    assert seen == [(AxisType.Auto,)] * 2
    with pytest.raises(TypeError, match="Missing required keyword argument: 'out_sharding'"):
        later(X)
    with pytest.raises(ValueError, match="not have the axis 'z'"):
        auto_axes(f, axes="z", out_sharding=shardings)(X)


def test_without_a_mesh_auto_axes_changes_nothing():
    np.testing.assert_array_equal(auto_axes(jnp.sin, out_sharding=jax.P())(X), jnp.sin(X))
    sharding = jax.NamedSharding(jax.make_mesh((1,), ("y",)), jax.P("y"))
    assert auto_axes(jnp.sin, out_sharding=sharding)(X).sharding == sharding


def test_auto_axes_takes_the_mesh_in_context(mesh):
    other = jax.NamedSharding(jax.make_mesh((1,), ("y",)), jax.P("y"))
    with pytest.raises(ValueError, match="should have the same mesh"):
        auto_axes(jnp.sin, out_sharding=other)(X)


def test_arguments_of_explicit_axes_are_laid_out(mesh):
    seen = []

    def f(x, y):
        seen.append((types(), x.sharding.spec))
        return x + y

    with use_abstract_mesh(get_abstract_mesh().update(axis_types=AxisType.Auto)):
        out = explicit_axes(f, in_sharding=(jax.P("x"), jax.P()))(X, X)
    np.testing.assert_array_equal(out, 2 * X)
    explicit_axes(f)(X, X, in_sharding=jax.P("x"))
    assert seen == [((AxisType.Explicit,), jax.P("x"))] * 2
    with pytest.raises(TypeError, match="Missing required keyword argument: 'in_sharding'"):
        explicit_axes(f)(X, X)


def test_explicit_axes_needs_a_mesh():
    with pytest.raises(ValueError, match="Context mesh cannot be empty"):
        explicit_axes(jnp.sin, in_sharding=jax.P())(X)


def test_axes_of_a_body_stay_manual(mesh):
    f = jax.shard_map(auto_axes(jnp.sin, out_sharding=jax.P()), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x"))
    with pytest.raises(NotImplementedError, match="Manual"):
        f(X)


def test_types_of_manual_axes():
    def kinds(J):
        M = J.sharding.ManualAxisType
        same = M(varying=frozenset({"x"})) == M(varying=frozenset({"x"}))
        text = []
        for name in ("unreduced", "reduced"):
            try:
                M(varying=frozenset({"x"}), **{name: frozenset({"x"})})
            except ValueError as error:
                text.append(str(error))
        return same, text

    assert kinds(OURS) == kinds(THEIRS)
    assert jax.typeof(X).mat == ManualAxisType()


def test_the_sharding_that_a_type_says_is_one_that_results_take():
    """It is over a mesh without devices: that in context, or none."""

    def draw(x):
        sharding = jax.typeof(x).sharding
        return jax.random.normal(jax.random.key(0), x.shape, out_sharding=sharding), jnp.zeros(3, out_sharding=sharding)

    draws = [draw(X[:3]), jax.jit(draw)(X[:3])]
    mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Explicit,))
    abstract = jax.NamedSharding(mesh.abstract_mesh, jax.P("x"))
    with jax.set_mesh(mesh):
        draws += [draw(X[:3]), jax.jit(draw)(jax.device_put(X[:3], jax.NamedSharding(mesh, jax.P("x"))))]
        for put in (jax.reshard, lambda x, s: jax.jit(jnp.copy, out_shardings=s)(x)):
            assert put(X, abstract).sharding == jax.NamedSharding(mesh, jax.P("x"))
        assert jnp.ones(3, out_sharding=abstract).sharding.mesh == mesh
    for drawn, zeros in draws:
        np.testing.assert_array_equal(drawn, draws[0][0])
        np.testing.assert_array_equal(zeros, [0, 0, 0])


@pytest.mark.parametrize(
    ("use", "axes", "message"),
    [
        (lambda s: jax.lax.with_sharding_constraint(X, s), (), "empty NamedSharding"),
        (lambda s: jax.reshard(X, s), ("x",), "`AbstractMesh`|`jax.sharding.AbstractMesh`"),
        (lambda s: jax.jit(jnp.sin, out_shardings=s), (), "empty NamedSharding"),
        (lambda s: jax.jit(jnp.sin, out_shardings=s)(X), ("x",), "Its mesh has no devices"),
        (lambda s: jax.device_put(X, s), ("x",), "is_fully_addressable is not implemented"),
    ],
)
def test_a_mesh_without_devices_holds_no_array(use, axes, message):
    with pytest.raises(ValueError, match=message):
        use(jax.NamedSharding(AbstractMesh((1,) * len(axes), axes), jax.P()))


@pytest.mark.parametrize("J", [OURS, THEIRS], ids=["ours", "jax"])
def test_a_partition_spec_is_a_sequence_of_entries(J):
    spec = J.P("x", ("y",), ("a", "b"), None, None)
    assert spec.partitions == ("x", "y", ("a", "b"), None, None)
    assert spec.index(("y",)) == 1 and spec.index(("a", "b")) == 2
    assert spec.count(None) == 2 and spec.count("z") == 0
    assert ("z",) + J.P("x") + ("y",) == J.P("z", "x", "y")
    assert spec.update(partitions=("q", None)) == J.P("q", None) and spec.update() == spec
    with pytest.raises(ValueError):
        spec.index("z")
