"""`buffer_callback` against JAX's: what the function gets, values, batches, aliases, errors."""

import importlib

import numpy as np
import pytest
from oracle import OURS, THEIRS, jaxpr_text, run, sample

X, XS = sample(3), sample(4, 3)
BOTH = pytest.mark.parametrize("J", [THEIRS, OURS], ids=["jax", "mpijax"])
EAGER_AND_JIT = pytest.mark.parametrize("transform", [lambda J, f: f, lambda J, f: J.jit(f)], ids=["eager", "jit"])


def module(J):
    return importlib.import_module(f"{J.name}.experimental.buffer_callback")


def like(x, J):
    return J.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype)


def buffered(J, callback, *results, **options):
    types = tuple(like(x, J) for x in results)
    return module(J).buffer_callback(callback, types[0] if len(types) == 1 else types, **options)


def double(context, out, x):
    np.multiply(x, 2, out=np.asarray(out))
    return None


@BOTH
@EAGER_AND_JIT
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64", "bfloat16"])
@pytest.mark.one_in(3)
def test_what_the_function_gets(J, transform, dtype):
    seen = []

    def copy(context, out, x):
        seen.extend((b.shape, str(b.dtype), b.ndim, b.writeable, b.__dlpack_device__()) for b in (out, x))
        seen.append(context.stage.name)
        with pytest.raises(J.errors.JaxRuntimeError, match="GPU context is not available"):
            context.stream  # noqa: B018
        with pytest.raises(ValueError, match="dtype parameter is not supported"):
            np.asarray(x, np.int16)
        with pytest.raises(ValueError, match="copy=True is not supported"):
            np.array(x, copy=True)
        np.asarray(out)[...] = np.asarray(x)

    x = np.asarray(J.numpy.asarray(XS > 0 if dtype == "bool" else XS, dtype))
    np.testing.assert_array_equal(transform(J, buffered(J, copy, x))(x), x)
    assert seen == [((4, 3), dtype, 2, True, (1, 0)), ((4, 3), dtype, 2, False, (1, 0)), "EXECUTE"]


@BOTH
@EAGER_AND_JIT
def test_trees_of_arguments_and_results(J, transform):
    def sums(context, outs, pair, *, factor):
        total, shape = outs
        np.asarray(total)[...] = np.asarray(pair["a"]).sum() * np.asarray(factor)
        np.asarray(shape)[...] = pair["b"][0].shape

    f = buffered(J, sums, np.float32(0), np.zeros(2, np.int32))
    total, shape = transform(J, lambda x, y: f({"a": x, "b": [y]}, factor=x[0]))(X, XS)
    np.testing.assert_allclose(total, X.sum() * X[0], rtol=1e-6)
    assert shape.tolist() == [4, 3]


@BOTH
@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"])
def test_vmap(J, method):
    shapes = []

    def add(context, out, x, y):
        shapes.append((x.shape, y.shape, out.shape))
        np.add(x, y, out=np.asarray(out))

    f = J.vmap(buffered(J, add, X, vmap_method=method), in_axes=(0, None))
    np.testing.assert_array_equal(J.jit(f)(XS, X), XS + X)
    row, rows = (3,), (4, 3)
    expected = {"expand_dims": (rows, (1, 3), rows), "broadcast_all": (rows, rows, rows)}
    assert set(shapes) == {expected.get(method, (row, row, row))}


@BOTH
def test_an_aliased_result_is_the_memory_of_the_argument(J):
    def add_one(context, out, x):
        assert np.asarray(out).ctypes.data == np.asarray(x).ctypes.data
        np.asarray(out)[...] += 1

    f = J.jit(lambda x: (buffered(J, add_one, X, input_output_aliases={0: 0})(x * 2), x))
    out, x = f(X)
    np.testing.assert_array_equal(out, X * 2 + 1)
    np.testing.assert_array_equal(x, X)


@BOTH
def test_calls_with_side_effects_are_kept(J):
    calls = []

    def note(context, out):
        calls.append(1)

    def f(x):
        buffered(J, note, X, has_side_effect=True)()
        buffered(J, note, X)()
        return x

    J.jit(f)(X).block_until_ready()
    J.effects_barrier()
    assert calls == [1]


def test_arguments_are_read_only():
    def writes(context, out, x):
        np.asarray(x)[...] = 0

    with pytest.raises(OURS.errors.JaxRuntimeError, match="read-only"):
        buffered(OURS, writes, X)(X)


def in_a_loop(J):
    f = buffered(J, double, np.float32(0))
    return lambda x: J.lax.scan(lambda c, v: (f(c) + v, f(v)), np.float32(0), x)


def test_loops():
    for theirs, ours in zip(scanned(THEIRS), scanned(OURS), strict=True):
        np.testing.assert_array_equal(theirs, ours)


def scanned(J):
    return J.jit(in_a_loop(J))(X)


@pytest.mark.parametrize("options", [{}, {"has_side_effect": True, "input_output_aliases": {0: 0}}])
def test_jaxprs_are_jaxs(options):
    theirs, ours = (jaxpr_text(J, lambda J: buffered(J, double, X, **options), (X,)) for J in (THEIRS, OURS))
    assert ours == theirs


def returns(context, out, x):
    return 3


def fails(context, out, x):
    raise KeyError("no such row")


@pytest.mark.parametrize(
    "call",
    [
        lambda J: buffered(J, returns, X)(X),
        lambda J: J.jit(buffered(J, fails, X))(X),
        lambda J: J.vmap(buffered(J, double, X))(XS),
        lambda J: J.jvp(buffered(J, double, X), (X,), (X,)),
        lambda J: J.grad(lambda x: buffered(J, double, X)(x).sum())(X),
        lambda J: module(J).buffer_callback(double, 3.0),
        lambda J: buffered(J, double, X, input_output_aliases={1: 0})(X),
        lambda J: buffered(J, double, X, input_output_aliases={0: 0})(XS),
    ],
)
def test_errors_are_of_jaxs_classes(call):
    theirs, ours = run(lambda: call(THEIRS)), run(lambda: call(OURS))
    assert theirs[0] == "error" and (theirs[0], theirs[1]) == (ours[0], ours[1])


def test_an_exception_in_the_function_is_shown():
    with pytest.raises(OURS.errors.JaxRuntimeError, match="no such row") as caught:
        OURS.jit(buffered(OURS, fails, X))(X)
    assert isinstance(caught.value.__cause__, KeyError)
