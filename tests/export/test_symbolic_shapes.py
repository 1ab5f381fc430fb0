"""Sizes with names: arithmetic and bounds beside JAX's and beside all values, and programs exported for several sizes."""

import itertools
import random
from fractions import Fraction
from functools import partial

import jax as theirs
import numpy as np
import pytest
from jax import export as their_export
from jax._src.export import shape_poly
from quickly import one_in
from scipy.optimize import linprog

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import export, lax
from mpijax.core.shapes import dimensions
from mpijax.core.shapes.linear_programs import INFEASIBLE, UNBOUNDED, minimum
from mpijax.sharding import PartitionSpec as P

F32 = np.float32


def sizes(module, text, names="a b c", constraints=()):
    """An expression over sizes with names, in mpijax or JAX; `up` and `low` are max and min."""
    ours = module is export
    core = dimensions if ours else __import__("jax").core
    scope = dict(zip(names.split(), module.symbolic_shape(names.replace(" ", ","), constraints=constraints), strict=True))
    return eval(text, {"up": core.max_dim, "low": core.min_dim}, scope)


EXPRESSIONS = """
    2*b*a | -2*b*a**2 + b**2 | a*b + a**2 + b + a | 2 + a*a*b + a*b*b + a*b + a*a + a + b | a - b | 5 - a | -2*a
    3*a*((a + 2) % (b + 2)) | 3*((a + 2)//(b + 2))*2 | a*(a//4) + a//4 + b*(a//4) + b*(a % 4) + a*a + b + 15
    up(a, b) | low(a, a - 2) | up(a - 2, 0) | up(a % 2 - 1, 0) | divmod(3*a - 2, 3) | divmod(256*a*b, 32) | a + 3 - a
    divmod(3*a*a*b + 2*b*b*a, a*b) | divmod(a*a - b*b, a + b) | divmod(3, a) | divmod(2*a*b + b*b, a + b) | (4*a)*0
    a >= 1 | 4*a + b + 3 >= 8 | -2*((-b)//2) >= b | a % 5 < 5 | up(a, b) >= low(a, b) | a == 1 | a != b | a + b == b + a
"""


@pytest.mark.parametrize("text", EXPRESSIONS.replace("\n", "|").split("|"))
def test_arithmetic_is_jaxs(text):
    if text.strip():
        assert str(sizes(export, text.strip())) == str(sizes(their_export, text.strip()))


BOUNDED = [
    *((e, ()) for e in "5*a-2 2*a-3*b+5*c-1 3*a*b*b+5*a-7 -5-a%(-5) a-5%a -a+(b-5)%a (b+1)%-2 (a+5)//-2 -11//(a+1)".split()),
    *((e, ()) for e in "a-a//2 a-2*(a//2) up(15-a,0)//3 low(a-5,1) b-up(b-a,0) up(1-b,0) up(a,b)-a a-up(a-3,0)".split()),
    ("b - a", ("a + 2 <= b", "b <= a + 5", "a + b >= c")), ("c - 2*a - 5", ("a + 2 <= b", "b <= a + 5", "a + b >= c")),
    ("5*a - 2", ("2 * a >= 5", "3 * a <= 10")), ("2*b - a", ("-2*a + -3*b >= -10",)), ("a", ("max(a, b) == 5", "min(a, b) == 3")),
    ("b//2 - c//3", ("c >= a + 3", "floordiv(b, 2) == floordiv(max(c, a), 3) + 2")), ("a - b - 2", ("2*a >= 2*b + 3", "-2*a + 2*b >= -5")),
]  # fmt: skip


@pytest.mark.parametrize("text, constraints", BOUNDED)
def test_bounds_are_jaxs(text, constraints):
    jaxs = shape_poly._bounds_decision(sizes(their_export, text, constraints=constraints), shape_poly.BoundsPrecision.BEST)
    assert dimensions.bounds(sizes(export, text, constraints=constraints)) == jaxs


def test_no_value_is_outside_of_the_bounds():
    rng, ops = random.Random(3), ["+", "-", "*", "//", "%", "up", "low"]
    scope = dict(zip("ab", export.symbolic_shape("a, b", constraints=["a <= 2*b + 1"]), strict=True))
    scope |= {"up": dimensions.max_dim, "low": dimensions.min_dim}
    grid = [(a, b) for a, b in itertools.product(range(1, 8), repeat=2) if a <= 2 * b + 1]
    for _ in range(60):
        text = "a"
        for op in rng.choices(ops, k=3):
            other = rng.choice(["b", "3", "(a + b)", "(2*b - 1)", "2"])
            text = f"{op}({text}, {other})" if op in ("up", "low") else f"({text} {op} {other})"
        low, high = dimensions.bounds(eval(text, {}, scope))
        values = [eval(text, {}, {"a": a, "b": b, "up": max, "low": min}) for a, b in grid]
        assert low <= min(values) and max(values) <= high, (text, low, high)
        assert [dimensions.evaluate(eval(text, {}, scope), {"a": a, "b": b}) for a, b in grid] == values


def test_linear_programs():
    rng, seen = random.Random(0), set()
    for _ in range(80):
        m, n = rng.randint(1, 5), rng.randint(1, 8)
        rows = [[rng.randint(-3, 3) for _ in range(n)] for _ in range(m)]
        totals, costs = [rng.randint(-4, 4) for _ in rows], [rng.randint(-3, 5) for _ in range(n)]
        solved = linprog(costs, A_eq=rows, b_eq=totals, options={"presolve": False})
        found = minimum(costs, rows, totals)
        seen.add(solved.status)
        assert found == {2: INFEASIBLE, 3: UNBOUNDED}.get(solved.status) or (
            isinstance(found, Fraction) and abs(float(found) - solved.fun) < 1e-6
        )
    assert seen == {0, 2, 3}


TEXTS = [
    ("", None), ("()", None), (None, (2, 3)), ("2, _", (2, 3)), ("2, ...", (2, 3)), (" ( 2 , 3 ) ", None), ("a^2*b - 2, max(a, b)", None),
    ("2.5", None), ("a + a a", None), ("a ^ a", None), ("_", None), ("a ;", None), (")(", None), ("2a", None), ("'a'", None), ("mod(a)", None),
    ("floordiv(a, b, c)", None), ("..., 3", None), ("3", (4,)), ("b, 3", (None, 4)), ("b, 6, c, _", (4, 6, 7)), ("b, 7, c, ...", (4, 7)),
]  # fmt: skip


@pytest.mark.parametrize("text, like", TEXTS)
def test_shapes_are_read_as_by_jax(text, like):
    try:
        wanted = str(their_export.symbolic_shape(text, like=like))
    except ValueError as error:
        with pytest.raises(ValueError, match="syntax error in symbolic shape"):
            export.symbolic_shape(text, like=like)
        assert "syntax error" in str(error)
    else:
        assert str(export.symbolic_shape(text, like=like)) == wanted


def test_scopes():
    (a,), (other,) = export.symbolic_shape("a", constraints=["a >= 5", "a <= 10"]), export.symbolic_shape("a")
    assert a != other and {a: 1}.get(other) is None and dimensions.bounds(a) == (5, 10)
    with pytest.raises(ValueError, match="Invalid mixing of symbolic scopes"):
        assert a + other
    with pytest.raises(jax.errors.InconclusiveDimensionOperation, match=r"'a' >= '6' is inconclusive.*\n.*\n  a >= 5"):
        assert a >= 6
    for wrong in ("a <= a - 1", "a == a + 1", "a <= 0"):
        with pytest.raises(ValueError, match="Unsatisfiable explicit constraint"):
            export.SymbolicScope(["a >= 1", wrong])
    with pytest.raises(ValueError, match="must contain one of"):
        export.SymbolicScope(["a != 0"])
    with pytest.raises(ValueError, match="sequence of strings"):
        export.SymbolicScope("a >= 0")


# ---------------------------------------------------------------- programs


def X(*shape):
    return np.sin(np.arange(np.prod(shape, dtype=int)) * 1.7).astype(F32).reshape(shape)


# By name: a function of (jax, jnp, lax, *arguments), shapes with names, constraints, and the shapes of two calls.
PROGRAMS = {
    "sizes as values": (lambda j, n, lx, x: (x.shape[0] * x + x.size, n.arange(2 * x.shape[0]), n.sqrt(x.shape[0]),
                                             lx.shape_as_value((*x.shape, 3))),
                        ["a, b"], (), [[(2, 3)], [(5, 1)]]),
    "mean": (lambda j, n, lx, x: (x.mean(), x.var(0), (x > 0).sum(), x.argmax(0)), ["b, 3"], (), [[(2, 3)], [(5, 3)]]),
    "layer": (lambda j, n, lx, x, w: j.nn.softmax(n.tanh(x @ w)), ["b, n", "n, 4"], (), [[(2, 3), (3, 4)], [(1, 5), (5, 4)]]),
    "gradient": (lambda j, n, lx, x, w: j.grad(lambda w: n.mean(n.sin(x @ w) ** 2))(w), ["b, n", "n, 4"], (),
                 [[(2, 3), (3, 4)], [(1, 5), (5, 4)]]),
    "vmap of jit": (lambda j, n, lx, x: j.vmap(j.jit(lambda r: n.outer(r, r).reshape(-1)))(x), ["b, n"], (), [[(2, 3)], [(1, 4)]]),
    "reshape": (lambda j, n, lx, x: (x.reshape(x.shape[0], -1), x.reshape(2, -1), x.T, n.concatenate([x, x], 1)), ["b, 2, c"], (),
                [[(3, 2, 4)], [(1, 2, 1)]]),
    "slices": (lambda j, n, lx, x: (x[1:], x[::2], x[::-1], x[-1], x[:, :2], x[-x.shape[1]:]), ["a, b"], ("b >= 2",),
               [[(5, 3)], [(2, 6)]]),
    "updates": (lambda j, n, lx, x: (x.at[0].set(1), x.at[1:].add(1)), ["a, b"], (), [[(5, 3)], [(1, 2)]]),
    "indices": (lambda j, n, lx, x, y: (x[n.argsort(y)], n.take_along_axis(x, n.argsort(x, 0), 0), n.pad(x, 1)), ["a, b", "a"], (),
                [[(5, 3), (5,)], [(1, 2), (1,)]]),
    "windows": (lambda j, n, lx, x: lx.reduce_window(x, F32(0), lx.add, (2, 2), (2, 1), "SAME"), ["a, b"], (), [[(5, 3)], [(1, 2)]]),
    "convolution": (lambda j, n, lx, x, w: lx.conv_general_dilated(x, w, (2,), "SAME"), ["b, 2, t", "3, 2, 4"], (),
                    [[(1, 2, 7), (3, 2, 4)], [(2, 2, 1), (3, 2, 4)]]),
    "loops": (lambda j, n, lx, x: (lx.scan(lambda c, r: (c + r, c.sum()), x[0], x), lx.fori_loop(0, x.shape[0], lambda i, s: s + i, 0)),
              ["a, b"], (), [[(5, 3)], [(1, 2)]]),
    "positions": (lambda j, n, lx, x: (n.nonzero(x > 0, size=4), n.triu_indices(x.shape[0])), ["a, b"], (),
                  [[(5, 3)], [(2, 4)]]),
    "largest": (lambda j, n, lx, x, y: (lx.approx_max_k(x, y.shape[0]), lx.approx_min_k(x, 2, 0)), ["a, b", "k"],
                ("a >= 2", "k <= b"), [[(5, 3), (2,)], [(2, 4), (4,)]]),
    "branches": (lambda j, n, lx, x: lx.cond(x.sum() > 0, lambda v: v * v.shape[0], n.zeros_like, x), ["a"], (), [[(5,)], [(2,)]]),
    "einsum": (lambda j, n, lx, x, y, z: n.einsum("ij,jk,kl->il", x, y, z), ["a, b", "b, c", "c, 2"], (),
               [[(2, 3), (3, 4), (4, 2)], [(1, 1), (1, 2), (2, 2)]]),
    "factorizations": (lambda j, n, lx, x: (lx.linalg.lu(x)[1:], *map(abs, lx.linalg.qr(x, full_matrices=False)),
        lx.linalg.svd_p.bind(x, full_matrices=False, compute_uv=False, subset_by_index=None)),
        ["a, b"], (), [[(3, 4)], [(4, 2)]]),
    "random": (lambda j, n, lx, x: j.random.uniform(j.random.key(1), x.shape), ["a, b"], (), [[(2, 3)], [(4, 1)]]),
    "constraint": (lambda j, n, lx, x, y: x[: y.shape[0]] + y[2:], ["a", "b"], ("b >= 2", "min(a, b) == b - 2"), [[(16,), (18,)], [(1,), (3,)]]),
    "equal sizes": (lambda j, n, lx, x, y: x @ y + x.shape[0], ["a, b", "b, c"], ("a == b", "c >= 2"),
                    [[(3, 3), (3, 4)], [(2, 2), (2, 2)]]),
    "equations": (lambda j, n, lx, x: 2 * x.shape[0] + 3 * x.shape[1] + x.shape[2], ["2*a, 4*b, a+b+18"], (), [[(16, 24, 32)], [(2, 4, 20)]]),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
@pytest.mark.one_in(2)
def test_one_program_for_several_sizes(name):
    fun, texts, constraints, calls = PROGRAMS[name]

    def specs(module, j):
        arrays = tuple(j.ShapeDtypeStruct(s, F32) for s in calls[0])
        return module.symbolic_args_specs(arrays, tuple(texts), constraints=constraints)

    def f(*args):
        return fun(jax, jnp, lax, *args)

    exported = export.export(jax.jit(f))(*specs(export, jax))
    wanted = theirs.eval_shape(lambda *args: fun(theirs, theirs.numpy, theirs.lax, *args), *specs(their_export, theirs))
    assert exported.uses_global_constants
    assert [str(a.shape) for a in exported.out_avals] == [str(x.shape) for x in theirs.tree.leaves(wanted)]
    loaded = export.deserialize(exported.serialize())
    assert str(loaded.program) == str(exported.program)
    for shapes in calls:
        args = [X(*s) for s in shapes]
        for ours, direct in zip(jax.tree.leaves(loaded.call(*args)), jax.tree.leaves(jax.jit(f)(*args)), strict=True):
            assert (ours.dtype, ours.shape) == (direct.dtype, direct.shape) and not ours.weak_type  # as in JAX, a file has no weak types
            np.testing.assert_allclose(ours, direct, rtol=1e-5, atol=1e-6)


def cubes(text, **keywords):
    spec = jax.ShapeDtypeStruct(export.symbolic_shape(text, **keywords), F32)
    return export.export(jax.jit(lambda x: (x**3).sum() * x.shape[0]))(spec)


def test_derivatives_of_programs_for_several_sizes():
    loaded = export.deserialize(cubes("a, 2").serialize(vjp_order=2))
    assert str(loaded.vjp().in_avals) == "(ShapedArray(float32[a,2]), ShapedArray(float32[]))"
    for n in (3, 5):
        np.testing.assert_allclose(jax.grad(loaded.call)(X(n, 2)), 3 * n * X(n, 2) ** 2, rtol=1e-5)
        second = jax.grad(lambda x: jax.grad(loaded.call)(x).sum())(X(n, 2))
        np.testing.assert_allclose(second, 6 * n * X(n, 2), rtol=1e-5)


def test_programs_in_programs_keep_names():
    inner = cubes("a, b")
    spec = jax.ShapeDtypeStruct(export.symbolic_shape("n"), F32)
    outer = export.export(jax.jit(lambda x: inner.call(x[:, None] * jnp.ones(2))))(spec)
    np.testing.assert_allclose(outer.call(X(4)), 8 * (X(4) ** 3).sum(), rtol=1e-5)
    with pytest.raises(ValueError, match="Expected value >= 1 for dimension variable 'a'"):
        export.export(jax.jit(lambda x: cubes("a + 1").call(x)))(spec)


WRONG_CALLS = {
    "constant": ("a, 3", (), (2, 4), r"Shape mismatch for args\[0\].shape\[1\] \(expected same constant\)"),
    "rank": ("a, 3", (), (2,), r"Rank mismatch for args\[0\]"),
    "twice": ("a, a", (), (2, 3), r"dimension size args\[0\].shape\[1\] \(= 3\) and the specification 'a' \(= 2\)"),
    "remainder": ("3*b, 2", (), (5, 2), "Division had remainder 2 when computing the value of 'b'"),
    "too small": ("3*b + 10, 2", (), (10, 2), "Expected value >= 1 for dimension variable 'b'"),
    "equality": ("a, b", ["a == b"], (2, 3), r"dimension size args\[0\].shape\[1\] \(= 3\) and the specification 'b' \(= 2\)"),
    "replaced name": ("a, b", ["max(a, b) == 4", "a == b"], (3, 3), r"'max\(a, b\) - 4' to be equal to 0, but found -1"),
    "constraint": ("a, 2", ["a >= 2", "a <= 4"], (5, 2), "Expected '- a \\+ 4' to be greater or equal to 0, but found -1"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_calls_with_sizes_that_do_not_fit(name):
    text, constraints, shape, message = WRONG_CALLS[name]
    found = export.deserialize(cubes(text, constraints=constraints).serialize())
    with pytest.raises(ValueError, match=message):
        found.call(X(*shape))


def test_messages_name_the_sizes_found_in_order():
    def messages(J, text, shape):
        spec = J.ShapeDtypeStruct(J.export.symbolic_shape(text), np.float32)
        with pytest.raises(ValueError) as error:
            J.export.export(J.jit(lambda x: 0.0))(spec).call(np.ones(shape, np.float32))
        return str(error.value)

    for text, shape in (
        ("(a + 2*b, a, a + b)", (8, 2, 6)),
        ("(a + 2*b, a, a + b + c)", (2, 2, 6)),
        ("(a + 2*b, a, a + b + c)", (3, 2, 6)),
        ("(2*a + b, a, c*c)", (7, 2, 36)),
    ):
        assert messages(jax, text, shape) == messages(theirs, text, shape)


def test_shard_map_of_symbolic_shapes():
    mesh = jax.make_mesh((1,), ("i",))
    f = jax.shard_map(lambda x: lax.psum(x + lax.axis_index("i"), "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    found = export.export(jax.jit(f))(jax.ShapeDtypeStruct(export.symbolic_shape("a, 2"), F32))
    np.testing.assert_array_equal(found.call(X(3, 2)), X(3, 2))


def test_sizes_that_arguments_do_not_tell():
    with pytest.raises(ValueError, match="Cannot solve for values of dimension variables {'b'}"):
        cubes("b*b, b*d*d, d")
    with pytest.raises(ValueError, match="Encountered dimension variable 'b' that is not appearing in the shapes"):
        cubes("a", constraints=["a >= b"])
    (k,) = export.symbolic_shape("k", constraints=["k <= 3"])
    for f in (lambda x: lax.top_k(x, k)[0], jax.jit(lambda x: jnp.broadcast_to(x, (k, 3)).sum(0))):
        with pytest.raises(ValueError, match="Encountered dimension variable 'k' that is not appearing in the shapes"):
            export.export(jax.jit(f))(X(3))


def test_names_are_for_exported_programs():
    spec = jax.ShapeDtypeStruct(export.symbolic_shape("a, 3"), F32)
    assert str(jax.eval_shape(lambda x: x.T @ x, spec).shape) == "(3, 3)"
    for call in (lambda: jax.jit(jnp.sin).lower(spec), lambda: jnp.zeros(spec.shape)):
        with pytest.raises(ValueError, match=r"type f32\[a,3\].*mpijax.export"):
            call()
    with pytest.raises(NotImplementedError, match="symbolic dimension 'a' has no value outside"):
        jnp.sin(spec.shape[0])


WRONG_PROGRAMS = {
    "a number": (lambda x: x * int(x.shape[0]), jax.errors.InconclusiveDimensionOperation, "'a' used in a context that requires"),
    "a branch": (lambda x: x if x.shape[0] > 3 else -x, jax.errors.InconclusiveDimensionOperation, "'a' > '3' is inconclusive"),
    "a mirror image": (lambda x: jax.numpy.pad(x, 2, mode="reflect"), ValueError, r"axis size \(= a\) is larger than 1"),
    "a wrapped margin": (lambda x: jax.numpy.pad(x, 2, mode="wrap"), jax.errors.InconclusiveDimensionOperation, "how many times"),
    "reshape": (lambda x: x.reshape(3, -1), jax.errors.InconclusiveDimensionOperation, "Cannot divide evenly the sizes of shapes"),
    "float step": (lambda x: jnp.arange(0, x.shape[0], 0.5), ValueError, "must be either dimension expressions or integers"),
    "squeeze": (lambda x: x.squeeze(), ValueError, "axis=None is not supported with shape polymorphism"),
    "scan": (lambda x: lax.associative_scan(jnp.add, x), NotImplementedError, "associative scan over axis of non-constant size"),
}


@pytest.mark.parametrize("name", WRONG_PROGRAMS)
def test_programs_that_need_a_number(name):
    fun, error, message = WRONG_PROGRAMS[name]
    with pytest.raises(error, match=message):
        export.export(jax.jit(fun))(jax.ShapeDtypeStruct(export.symbolic_shape("a"), F32))


def test_sizes_of_several_scopes_are_refused():
    for J in (theirs, jax):
        x, y = (J.ShapeDtypeStruct(J.export.symbolic_shape("w, h"), np.float32) for _ in range(2))
        with pytest.raises(ValueError, match=r"(?s)Invalid mixing of symbolic scopes when exporting .*args\[0\].*args\[1\]"):
            J.export.export(J.jit(lambda x, y: (x, y)))(x, y)


def test_derivatives_by_integers_of_unknown_size():
    def f(n, x):
        return 2 * n.T, x.T * x.T

    n, x = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12, dtype=np.float32).reshape(3, 4)
    specs = export.symbolic_args_specs((n, x), ("2, a", "a, 4"))
    found = export.deserialize(export.export(jax.jit(f))(*specs).serialize(vjp_order=2))
    cts = (np.zeros((3, 2), jax.dtypes.float0), np.ones((4, 3), np.float32))
    for g in (found.call, f):
        out, pullback = jax.vjp(g, n, x)
        assert out[0].tolist() == (2 * n.T).tolist()
        by_n, by_x = pullback(cts)
        assert by_n.dtype == jax.dtypes.float0 and by_n.shape == (2, 3)
        np.testing.assert_array_equal(by_x, 2 * x)


def test_what_tpus_leave_of_symbolic_sizes_is_not_known():
    for J in (theirs, jax):
        with pytest.raises(NotImplementedError, match="aggregate_to_topk=False"):
            J.export.export(J.jit(partial(J.lax.approx_max_k, k=2, aggregate_to_topk=False)))(
                J.ShapeDtypeStruct(J.export.symbolic_shape("n", constraints=["n >= 2"]), F32)
            )


def test_triangles_of_two_symbolic_sizes():
    def f(x):
        return jnp.tril_indices(x.shape[0], -1, x.shape[1]), jnp.triu_indices(x.shape[0], 1, x.shape[1])

    found = export.export(jax.jit(f))(jax.ShapeDtypeStruct(export.symbolic_shape("a, b"), F32))
    for shape in ((5, 3), (2, 4), (1, 1), (3, 3)):
        n, m = shape
        for got, want in zip(found.call(X(*shape)), (np.tril_indices(n, -1, m), np.triu_indices(n, 1, m)), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
