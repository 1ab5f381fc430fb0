"""Names that JAX has since the version that mpijax follows: compared with their definitions, and JAX's older functions."""

from functools import partial

import jax as theirs
import mpmath
import numpy as np
import pytest
import scipy.special
from quickly import one_in

import mpijax as jax
from mpijax import checkpoint_policies, export, lax
from mpijax import numpy as jnp
from mpijax.test_util import check_grads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5, 6)).astype(np.float32)
NAME = jax.make_jaxpr(lambda x: jax.ad_checkpoint.checkpoint_name(x, "a"))(1.0).eqns[0].primitive


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.one_in(3)
def test_minmax_is_min_and_max(axis, keepdims):
    found = jnp.minmax(X, axis, keepdims=keepdims)
    assert isinstance(found, tuple)
    for one, of in zip(found, (np.min, np.max), strict=True):
        np.testing.assert_array_equal(one, of(X, axis, keepdims=keepdims))
    low, high = jnp.minmax(X, axis, initial=(0.25, 0.5), where=X > 0)
    np.testing.assert_array_equal(low, np.min(X, axis, initial=0.25, where=X > 0))
    np.testing.assert_array_equal(high, np.max(X, axis, initial=0.5, where=X > 0))
    for one, of in zip(jnp.minmax(X, axis, initial=0.25), (np.min, np.max), strict=True):
        np.testing.assert_array_equal(one, of(X, axis, initial=0.25))


def test_minmax_of_nothing_and_into_something():
    with pytest.raises(ValueError, match="identity"):
        jnp.minmax(jnp.zeros(0))
    with pytest.raises(NotImplementedError, match="'out'"):
        jnp.minmax(X, out=(X, X))


SPECIAL = np.array([3, -np.inf, 2, np.nan, 2, np.inf, -1], np.float32)
NUMBERS = {
    "floats": X, "ties": RNG.integers(0, 3, (5, 7)), "least": np.array([-(2**31), 5, 2**31 - 1, -(2**31)], np.int32),
    "unsigned": np.array([0, 255, 7, 0], np.uint8), "bools": np.array([True, False, True]), "special": SPECIAL,
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.one_in(2)
def test_the_largest_are_those_of_lax_and_the_smallest_those_of_a_sort(name, axis, k):
    x = NUMBERS[name]
    values, positions = jnp.top_k(x, k, axis=axis)
    want = theirs.lax.top_k(theirs.numpy.asarray(x), k, axis=axis)
    np.testing.assert_array_equal(values, want[0])
    np.testing.assert_array_equal(positions, want[1])
    values, positions = jax.jit(lambda x: jnp.top_k(x, k, axis=axis, mode="smallest", sorted=False))(x)
    order = np.take(np.argsort(x, axis=axis, kind="stable"), range(k), axis)
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(values, np.take_along_axis(jnp.asarray(x).__array__(), order, axis))
    assert values.dtype == jnp.asarray(x).dtype and positions.dtype == np.int32


def test_top_k_has_derivatives_and_refuses():
    check_grads(lambda x: jnp.top_k(x, 2, mode="smallest")[0], (X,), order=2)
    with pytest.raises(ValueError, match="complex"):
        jnp.top_k(X + 1j, 2)
    with pytest.raises(ValueError, match="mode must be"):
        jnp.top_k(X, 2, mode="middle")
    with pytest.raises(ValueError, match="no larger than size"):
        jnp.top_k(X, 7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_erfcinv_has_all_digits_in_its_tail(dtype):
    tiny = 2 * np.finfo(dtype).tiny  # half of it is not denormal
    x = np.concatenate([np.geomspace(tiny, 1, 200), np.linspace(0.01, 1.99, 199), [0, 2, -1, 2.5, np.nan]]).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        got = np.asarray(jax.scipy.special.erfcinv(x))
        assert got.dtype == dtype
        at = RNG.uniform(0.1, 1.9, 5).astype(dtype)
        slope = jax.vmap(jax.grad(jax.scipy.special.erfcinv))(at)
    want = scipy.special.erfcinv(x.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=20 * np.finfo(dtype).eps, atol=2 * np.finfo(dtype).eps)
    y = scipy.special.erfcinv(at.astype(np.float64))
    np.testing.assert_allclose(slope, -np.sqrt(np.pi) / 2 * np.exp(y * y), rtol=1e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16"])
def test_log2(dtype):
    x = np.concatenate([2.0 ** np.arange(-6, 7), [3, 0.7]]).astype(jnp.dtype(dtype))
    got = jax.jit(lax.log2)(x)
    assert got.dtype == x.dtype
    want = [complex(mpmath.log(complex(v), 2)) for v in x.astype(np.complex128)]
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(got).astype(np.complex128), want, rtol=4 * eps, atol=2 * eps)
    with pytest.raises(TypeError):
        lax.log2(np.int32(3))


def test_bounds_of_sizes():
    a, b = export.symbolic_shape("a, b", constraints=("a >= 3", "a <= 7", "b >= a"))
    sizes = {
        a: (3, 7), 2 * a + 1: (7, 15), b: (3, np.inf), b - a: (0, np.inf), -b: (-np.inf, -3), a * a: (9, 49),
        a // 2: (1, 3), 5: (5, 5),
    }  # fmt: skip
    for size, want in sizes.items():
        low, high = export.symbolic_dim_bounds(size)
        assert (low, high) == want, size


COLLECTIVES = {
    "psum": ({}, "i"),
    "all_gather": ({"tiled": True}, "i"),
    "psum_scatter": ({"scatter_dimension": 1, "tiled": True}, "i"),
    "all_to_all": ({"split_axis": 1, "concat_axis": 0, "tiled": True}, "i"),
    "ppermute": ({"perm": [(0, 1), (1, 2), (2, 0)]}, "i"),
}


@pytest.mark.parametrize("name", one_in(2, COLLECTIVES))
def test_a_started_collective_is_done_later(name):
    arguments, axis = COLLECTIVES[name]
    x = RNG.normal(size=(3, 2, 3)).astype(np.float32)

    def later(x):
        future = getattr(lax, f"{name}_start")(x, axis, **arguments)
        assert isinstance(future, lax.Future)
        return jax.jit(lambda f, y: f.done() + y)(future, jnp.sin(x).sum())

    def at_once(x):
        return getattr(theirs.lax, name)(x, axis, **arguments) + theirs.numpy.sin(x).sum()

    def slope(s, f):
        return s.grad(lambda x: (f(x) ** 2).sum())

    for change, other in ((lambda f: f, lambda f: f), (partial(slope, jax), partial(slope, theirs))):
        got = jax.vmap(change(later), axis_name="i")(x)
        np.testing.assert_allclose(got, theirs.vmap(other(at_once), axis_name="i")(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inline", jax.Inline)
def test_inlining(inline):
    inner = jax.jit(lambda x: jnp.sin(x) * 2, inline=inline)
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(lambda x: inner(x) + 1)(1.0).eqns]
    assert ("jit" not in names) == (inline is jax.Inline.JAX_EARLY), names
    assert float(jax.jit(lambda x: inner(x) + 1)(1.0)) == pytest.approx(2 * np.sin(1) + 1)


def test_policies_are_a_module_with_all_of_jaxs():
    from mpijax.checkpoint_policies import dots_saveable

    assert dots_saveable is jax.checkpoint_policies.dots_saveable is jax.ad_checkpoint.checkpoint_policies.dots_saveable
    assert {n for n in vars(theirs.checkpoint_policies) if not n.startswith("_")} <= set(checkpoint_policies.__all__)
    policy = checkpoint_policies.SaveAndOffloadOnlyTheseNames(frozenset("a"), frozenset("b"), "device", "pinned_host")
    named = {name: policy(jax.lax.sin_p if name is None else NAME, name=name) for name in ("a", "b", "c", None)}
    offload, recompute = jax.ad_checkpoint.Offloadable("device", "pinned_host"), jax.ad_checkpoint.Recompute
    assert named == {"a": jax.ad_checkpoint.Saveable, "b": offload, "c": recompute, None: recompute}
    assert isinstance(jax.checkpoint_policies.save_only_these_names("a"), checkpoint_policies.SaveOnlyTheseNames)
    assert isinstance(jax.checkpoint_policies.save_any_names_but_these("a"), checkpoint_policies.SaveAnyNamesButThese)


def test_meshes_by_their_short_names():
    mesh = jax.make_mesh((1,), ("x",))
    with jax.set_mesh(mesh):
        assert jax.get_mesh() == mesh and jax.get_abstract_mesh() == mesh.abstract_mesh
    with jax.use_abstract_mesh(mesh.abstract_mesh):
        assert jax.get_abstract_mesh() == mesh.abstract_mesh
    assert jax.get_abstract_mesh().empty


def test_kinds_of_sums_that_are_not_taken_yet():
    kinds = jax.sharding.UnreducedKind
    assert jax.P("x").unreduced_kind is None
    spec = jax.P("y", unreduced={"x"})
    assert spec.unreduced_kind is kinds.sum and spec == jax.P("y", unreduced={"x"}, unreduced_kind=kinds.sum)
    assert repr(jax.P(None, unreduced={"x"}, unreduced_kind=kinds.sum)) == repr(theirs.P(None, unreduced={"x"}))
    for kind in (kinds.max, kinds.min):
        with pytest.raises(NotImplementedError, match="pmax"):
            jax.P(unreduced={"x"}, unreduced_kind=kind)
    with pytest.raises(ValueError, match="should be `None`"):
        jax.P("x", unreduced_kind=kinds.sum)
    with pytest.raises(TypeError, match="UnreducedKind"):
        jax.P(unreduced={"x"}, unreduced_kind="sum")


def test_what_is_missing_says_what_to_do():
    with pytest.raises(AttributeError, match="'custom_remat': write a custom_vjp"):
        jax.custom_remat  # noqa: B018
    with pytest.raises(ImportError, match="experimental.overlap"):
        __import__("mpijax.experimental.overlap")


def test_a_profile_in_memory(tmp_path):
    profiler = jax.profiler
    with profiler.trace() as session:
        assert isinstance(session, profiler.ProfileSession) and session.is_running and session.profile_data is None
        with profiler.TraceAnnotation("inside", size=3):
            jnp.sum(jnp.arange(3))
        with pytest.raises(RuntimeError, match="Only one profile"):
            profiler.start_trace()
        with pytest.raises(RuntimeError, match="no data yet"):
            session.export_profile_data(tmp_path)
    assert not session.is_running
    data = session.profile_data
    assert [plane.name for plane in data.planes] == ["/host:CPU"] and data.find_plane_with_name("/gpu") is None
    (event,) = [e for line in data.find_plane_with_name("/host:CPU").lines for e in line.events]
    assert event.name == "inside" and dict(event.stats) == {"size": 3}
    assert 0 < event.duration_ns < 60e9 and event.end_ns == event.start_ns + event.duration_ns
    for number, profile in enumerate((session, data)):
        profiler.export_profile_data(profile, tmp_path / str(number))
    one, two = ((tmp_path / str(number) / "rank0.trace.json").read_text() for number in (0, 1))
    assert one == two and "inside" in one


def test_a_profile_is_started_again_and_stopped_once():
    session = jax.profiler.ProfileSession()
    for name in ("first", "second"):
        session.start()
        with jax.profiler.TraceAnnotation(name):
            pass
        assert session.stop() is session.profile_data
        assert [e["name"] for e in session.profile_data.trace_events] == [name]
    for stop in (session.stop, jax.profiler.stop_trace):
        with pytest.raises(RuntimeError, match="No profile started"):
            stop()
    started = jax.profiler.start_trace()
    assert jax.profiler.stop_trace() is started.profile_data
    for name in ("ProfileEvent", "ProfilePlane"):
        wanted = {n for n in dir(getattr(theirs.profiler, name)) if not n.startswith("_")}
        assert wanted <= {*dir(getattr(jax.profiler, name)), *getattr(jax.profiler, name).__dataclass_fields__}
