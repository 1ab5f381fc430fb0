"""Ahead of time: what trace, lower and compile tell, beside JAX; calls that do not fit; ShapeDtypeStruct."""

import copy
import pickle

import jax as theirs
import numpy as np
import pytest

import mpijax as ours
from mpijax.core.types.abstract import AbstractValue
from mpijax.transforms.parameters import parameters_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def stages(j):
    def fun(a, b, *, c=1.0):
        return {"s": a["x"] @ b.T + c, "t": b.sum(0)}

    traced = j.jit(fun, donate_argnums=1).trace({"x": X}, X, c=np.float32(2))
    lowered = traced.lower()
    return traced, lowered, lowered.compile()


@pytest.fixture(scope="module")
def both():
    made = []
    for library in (theirs, ours):
        with pytest.warns(UserWarning, match=r"Some donated buffers were not usable: float32\[2,3\]"):
            made.append(stages(library))
    return made


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("name", ["in_tree", "out_tree", "donate_argnums", "args_info", "in_avals"])
def test_what_every_stage_tells(both, stage, name):
    jaxs, mine = (s[stage] for s in both)
    assert str(getattr(mine, name)) == str(getattr(jaxs, name))


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_results(both, stage):
    jaxs, mine = (s[stage].out_info for s in both)
    assert [(k, v.shape, v.dtype) for k, v in mine.items()] == [(k, v.shape, v.dtype) for k, v in jaxs.items()]


@pytest.mark.parametrize("j", [theirs, ours])
def test_types_of_arguments_are_split_as_in_shardings_say(j):
    with j.set_mesh(j.make_mesh((1,), ("i",), axis_types=(j.sharding.AxisType.Explicit,))):
        lowered = j.jit(lambda x: x * 2, in_shardings=j.P("i")).lower(X)
        assert str(lowered.in_avals) == str(lowered.compile().in_avals) == "((ShapedArray(float32[2@i,3]),), {})"
        np.testing.assert_array_equal(lowered.compile()(X), 2 * X)


def test_traced(both):
    jaxs, mine = both[0][0], both[1][0]
    assert mine.fun_name == jaxs.fun_name == "fun"
    assert str(mine.out_avals) == str(jaxs.out_avals) and str(mine.jaxpr) == str(jaxs.jaxpr)
    info = mine.args_info[0][1]
    assert info.donated and info.shape == (2, 3) and info.dtype == np.float32
    np.testing.assert_array_equal(mine({"x": X}, X, c=np.float32(2))["t"], X.sum(0))
    with pytest.raises(NotImplementedError, match="'cpu'"):
        mine.lower(lowering_platforms=("tpu",))


def test_lowered(both):
    mine = both[1][1]
    assert mine.as_text() == mine.as_text("stablehlo") and "llvm" not in mine.as_text()
    assert mine.as_text("jaxpr") == str(both[1][0].jaxpr) and "define" in mine.as_text("llvm")
    assert "program: 3 arguments" in mine.as_text(debug_info=True)
    assert mine.compiler_ir("jaxpr") is both[1][0].jaxpr
    assert mine.cost_analysis()["flops"] > 0
    for stage in (both[0][1], mine):
        with pytest.raises(ValueError, match="unknown dialect"):
            stage.as_text("esperanto")


@pytest.mark.parametrize("m, k, n", [(1, 784, 64), (128, 64, 32)])
def test_operations_of_a_layer_are_counted_as_jax_does(m, k, n):
    args = np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.ones(n, np.float32)
    mine, jaxs = (
        j.jit(lambda x, w, b: x @ w + b).lower(*args).compile().cost_analysis()["flops"] for j in (ours, theirs)
    )
    assert mine == jaxs == 2 * m * k * n + m * n


def test_compiled(both):
    jaxs, mine = both[0][2], both[1][2]
    assert str(mine.input_shardings) == str(jaxs.input_shardings)
    assert str(mine.output_shardings) == str(jaxs.output_shardings)
    assert mine.cost_analysis()["flops"] > 0 and mine.runtime_executable() is not None
    memory = mine.memory_analysis()
    assert memory.argument_size_in_bytes == 52 and memory.output_size_in_bytes == 28
    got, expected = (s({"x": X}, np.copy(X), c=np.float32(2)) for s in (mine, jaxs))
    for name in ("s", "t"):
        np.testing.assert_allclose(got[name], expected[name])


WRONG = {
    "structure": (lambda c, j: c(X), "pytree does not match"),
    "keyword": (lambda c, j: c({"x": X}, X), "pytree does not match"),
    "dtype": (lambda c, j: c({"x": X}, X.astype(np.int32), c=np.float32(2)), "Argument types differ"),
    "shape": (lambda c, j: c({"x": X[:1]}, X, c=np.float32(2)), "Argument types differ"),
    "grad": (lambda c, j: j.grad(lambda b: c({"x": X}, b, c=np.float32(2))["t"].sum())(X), "Cannot apply JAX transf"),
    "jit": (lambda c, j: j.jit(lambda b: c({"x": X}, b, c=np.float32(2)))(X), "Cannot apply JAX transformations"),
    "vmap": (lambda c, j: j.vmap(lambda b: c({"x": X}, b, c=np.float32(2)))(X[None]), "Cannot apply JAX transform"),
}


@pytest.mark.parametrize("label", WRONG)
def test_calls_that_do_not_fit(both, label):
    call, message = WRONG[label]
    with pytest.raises(TypeError):
        call(both[0][2], theirs)
    with pytest.raises(TypeError, match=message):
        call(both[1][2], ours)


def test_the_argument_is_named(both):
    with pytest.raises(TypeError, match=r"a\['x'\]' compiled with float32\[2,3\] and called with float32\[1,3\]"):
        both[1][2]({"x": X[:1]}, X, c=np.float32(2))


# ---------------------------------------------------------------- ShapeDtypeStruct

STRUCTS = [
    lambda j: j.ShapeDtypeStruct((2, 3), np.float32),
    lambda j: j.ShapeDtypeStruct([4], "bfloat16"),
    lambda j: j.ShapeDtypeStruct((), np.float64),
    lambda j: j.ShapeDtypeStruct((2,), np.float32, weak_type=True),
    lambda j: j.ShapeDtypeStruct((2,), np.float32, weak_type=True).update(shape=(5,)),
    lambda j: j.ShapeDtypeStruct((2,), np.float32).update(dtype=np.int8),
    lambda j: j.ShapeDtypeStruct.like(np.ones((2, 2), np.int16)),
    lambda j: j.ShapeDtypeStruct.like(2.0),
    lambda j: j.eval_shape(lambda x: x + 1, 2.0),
    lambda j: j.eval_shape(lambda x, *, n: (x @ x.T, {"n": n}), j.ShapeDtypeStruct((2, 3), np.float32), n=np.int8(1)),
    lambda j: j.jit(lambda x: x * 2).eval_shape(j.ShapeDtypeStruct((3,), np.float16)),
    lambda j: (j.ShapeDtypeStruct((2,), np.int8).ndim, j.ShapeDtypeStruct((2, 4), np.int8).size),
    lambda j: len(j.ShapeDtypeStruct((7, 1), np.int8)),
    lambda j: j.ShapeDtypeStruct((2,), np.int8) == j.ShapeDtypeStruct([2], "int8"),
    lambda j: j.ShapeDtypeStruct((2,), np.int8) != j.ShapeDtypeStruct((2,), np.int8, weak_type=True),
    lambda j: len({j.ShapeDtypeStruct((2,), np.int8), j.ShapeDtypeStruct((2,), np.int8)}),
]


@pytest.mark.parametrize("number", range(len(STRUCTS)))
def test_structs(number):
    make = STRUCTS[number]
    assert repr(make(ours)) == repr(make(theirs))


WRONG_STRUCTS = [
    lambda j: j.ShapeDtypeStruct((2,), None),
    lambda j: j.ShapeDtypeStruct(3, np.float32),
    lambda j: len(j.ShapeDtypeStruct((), np.float32)),
    lambda j: j.ShapeDtypeStruct((2,), np.float32, sharding=3),
    lambda j: setattr(j.ShapeDtypeStruct((2,), np.float32), "shape", (3,)),
    lambda j: j.ShapeDtypeStruct((2,), "nonsense"),
]


@pytest.mark.parametrize("number", range(len(WRONG_STRUCTS)))
def test_structs_that_are_refused(number):
    make = WRONG_STRUCTS[number]
    with pytest.raises(Exception) as theirs_error:
        make(theirs)
    with pytest.raises(theirs_error.type):
        make(ours)


def test_structs_are_copied():
    struct = ours.ShapeDtypeStruct((2,), np.float32, weak_type=True)
    assert copy.deepcopy(struct) == struct == pickle.loads(pickle.dumps(struct))


# ---------------------------------------------------------------- parameters of functions


def test_parameters_without_and_with_inspect():
    def plain(a, /, b, *rest, c, **more):
        return a

    def wrapped(a, /, b, *rest, c, **more):
        return a

    wrapped.__wrapped__ = plain
    quick, slow = parameters_of(plain), parameters_of(wrapped)
    assert quick.positional == slow.positional == ("a", "b") and quick.unnamed == slow.unnamed == 1
    assert quick.names == slow.names == {"b", "c"} and quick.unnameable == slow.unnameable == {"a", "rest"}
    assert (quick.variadic, quick.any_keyword) == (True, True)
    assert (slow.variadic, slow.any_keyword) == (True, True)
    assert parameters_of(dict) is None or parameters_of(dict).positional == ()


@pytest.mark.parametrize("any_high", [False, True], ids=["", "libraries-define-types"])
def test_calls_with_known_types_are_checked_once(monkeypatch, any_high):
    monkeypatch.setattr(AbstractValue, "any_high", any_high)
    x = ours.numpy.arange(3.0)
    compiled = ours.jit(lambda x, scale: {"y": x * scale}).lower(x, scale=2.0).compile()
    checked = []
    check = type(compiled)._checked_call
    monkeypatch.setattr(type(compiled), "_checked_call", lambda *args: checked.append(1) or check(*args))
    for scale in (2.0, 3.0, np.float32(4)):
        np.testing.assert_array_equal(compiled(x, scale=scale)["y"], np.arange(3) * scale)
    assert len(checked) == 2  # a Python number, and one of NumPy
    for wrong in (ours.numpy.arange(4.0), ours.numpy.arange(3)):
        with pytest.raises(TypeError, match="compiled with"):
            compiled(wrong, scale=2.0)
    with pytest.raises(TypeError, match="Tracer"):
        ours.jit(lambda x: compiled(x, scale=2.0))(x)
