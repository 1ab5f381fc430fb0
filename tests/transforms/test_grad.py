"""Derivatives: values against JAX and finite differences; the forms of grad, jvp, vjp and linearize."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, sample
from quickly import one_in

from mpijax.test_util import check_grads

X3, X23, X34, X44 = sample(3), sample(2, 3), sample(3, 4), sample(4, 4)
I3 = np.array([2, 0, 1], np.int32)
RTOL = 2e-5

# Functions of one array (or scalar) that return a scalar.
SCALARS = {
    "polynomial": lambda J: lambda x: (3 * x**3 - x**2 + 2 * x).sum(),
    "elementwise": lambda J: lambda x: (J.numpy.sin(x) * J.numpy.exp(-x) + J.numpy.tanh(x) / (1 + x**2)).sum(),
    "softmax": lambda J: lambda x: (J.nn.softmax(x) ** 2).sum(),
    "logsumexp": lambda J: lambda x: J.nn.logsumexp(x * 2),
    "max": lambda J: lambda x: (J.numpy.maximum(x, 0.3) * x).sum() + x.max(),
    "where": lambda J: lambda x: J.numpy.where(x > 0.2, x**2, J.numpy.sin(x)).sum(),
    "norm": lambda J: lambda x: J.numpy.sqrt((x**2).sum() + 1),
    "indexing": lambda J: lambda x: (x[0] * x[..., -1] + x[::-1] ** 2).sum(),
    "gather": lambda J: lambda x: (x[I3 % x.shape[0]] ** 3).sum(),
    "update": lambda J: lambda x: (x.at[0].multiply(3).at[-1].set(2.0) ** 2).sum(),
    "scatter-add": lambda J: lambda x: (x.at[np.array([0, 0, 1])].add(2 * x[0]) ** 2).sum(),
    "shapes": lambda J: lambda x: (x.reshape(-1)[:, None] * J.numpy.concatenate([x.ravel(), x.ravel()])).sum(),
    "products": lambda J: lambda x: (J.numpy.outer(x, x) @ x.ravel()).sum() + x.ravel() @ x.ravel(),
    "standardized": lambda J: lambda x: (((x - x.mean()) / J.numpy.sqrt(x.var() + 1e-3)) ** 3).sum(),
    "cumulative": lambda J: lambda x: (J.numpy.cumsum(x) * x.ravel()).sum(),
    "sorted": lambda J: lambda x: (J.numpy.sort(x.ravel()) * J.numpy.arange(x.size)).sum(),
    "jitted": lambda J: J.jit(lambda x: (x * J.jit(J.numpy.sin)(x)).sum()),
    "constant": lambda J: lambda x: 3.0,
    "identity through where": lambda J: lambda x: J.numpy.where(True, x, 0).sum(),
    "stop_gradient": lambda J: lambda x: (x * J.lax.stop_gradient(x)).sum(),
    "vmapped": lambda J: lambda x: J.vmap(lambda y: y * J.numpy.cos(y))(x).sum(),
}

SMOOTH = sorted(set(SCALARS) - {"stop_gradient", "max", "where", "constant", "sorted"})


@pytest.mark.parametrize("name", one_in(3, SCALARS))
@pytest.mark.one_in(2)
def test_gradient_is_jaxs(name):
    f, how = SCALARS[name], {"jaxpr": False, "rtol": RTOL, "atol": 1e-5, "compiled": name != "constant"}
    check(lambda J: J.value_and_grad(f(J)), X3, **how)
    check(lambda J: J.grad(f(J)), X23[:, :1], **how)


@pytest.mark.parametrize("name", one_in(2, SMOOTH))
@pytest.mark.one_in(2)
def test_derivatives_to_order_2_are_those_of_finite_differences(name):
    with OURS.enable_x64(True):
        check_grads(SCALARS[name](OURS), (np.linspace(-0.9, 1.1, 3),), order=2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", one_in(3, ["polynomial", "elementwise", "softmax", "products", "jitted", "vmapped"]))
def test_third_derivatives_are_jaxs(name):
    f = SCALARS[name]

    def third(J):
        inner = f(J)
        once = J.grad(lambda s: inner(s * X3))
        return J.grad(J.grad(once))

    check(third, np.float32(0.7), jaxpr=False, compiled=True, rtol=2e-4, atol=1e-4)


FORMS = {
    "argnums tuple": (lambda J: J.grad(lambda x, y, z: (x * y * z).sum(), argnums=(0, 2)), (X3, X3, 2.0)),
    "negative argnums": (lambda J: J.grad(lambda x, y: (x * y).sum(), argnums=-1), (X3, X3)),
    "argnums list": (lambda J: J.grad(lambda x, y: x * y, argnums=[0, 1]), (2.0, 3.0)),
    "pytrees": (lambda J: J.grad(lambda p: (p["a"] * p["b"][0]).sum()), ({"a": X3, "b": [X3, 2.0, ()]},)),
    "keywords": (lambda J: lambda x: J.grad(lambda x, *, n: x**n)(x, n=3), (2.0,)),
    "aux": (lambda J: J.value_and_grad(lambda x: (x.sum(), {"y": x * 2, "n": 3}), has_aux=True), (X3,)),
    "aux in grad": (lambda J: J.grad(lambda x: (x.sum(), (x * 2, 3)), has_aux=True), (X3,)),
    "value and several": (lambda J: J.value_and_grad(lambda x, y: x * y, (0, 1)), (2.0, 3.0)),
    "integers": (lambda J: lambda i: J.grad(lambda x, i: x[i].sum(), allow_int=True)(X3, i), (I3,)),
    "holomorphic": (lambda J: J.grad(lambda z: z**2 * (1 + 1j), holomorphic=True), (np.complex64(1 + 2j),)),
    "complex argument": (lambda J: J.grad(lambda z: J.numpy.real(z * z.conj())), (np.complex64(1 + 2j),)),
    "half precision": (lambda J: J.grad(lambda x: (x**2).sum()), (X3.astype(np.float16),)),
    "jvp": (lambda J: lambda x, t: J.jvp(J.numpy.sin, (x,), (t,)), (X3, X3)),
    "jvp aux": (lambda J: lambda x: J.jvp(lambda y: (y * 2, y + 1), (x,), (x,), has_aux=True), (X3,)),
    "jvp pytrees": (
        lambda J: lambda p: J.jvp(lambda q: {"c": q["a"] * q["b"]}, (p,), (p,)),
        ({"a": X3, "b": 2.0},),
    ),
    "jvp of integers": (lambda J: lambda i: J.jvp(lambda x, i: x[i], (X3, i), (X3, _float0(J, i)))[1], (I3,)),
    "vjp": (
        lambda J: lambda x: J.vjp(lambda y: (y * 2, {"s": y.sum()}), x)[1]((X3, {"s": np.float32(2)})),
        (X3,),
    ),
    "vjp aux": (lambda J: lambda x: J.vjp(lambda y: (y * 2, y + 1), x, has_aux=True)[2], (X3,)),
    "vjp of several": (lambda J: lambda x, y: J.vjp(J.numpy.dot, x, y)[1](np.float32(2)), (X3, X3)),
    "vjp of nothing read": (lambda J: lambda x: J.vjp(lambda y: 3.0 * X3, x)[1](X3), (X3,)),
    "linearize": (lambda J: lambda x: J.linearize(lambda y: y**2, x)[1](X3 * 2), (X3,)),
    "linearize aux": (lambda J: lambda x: J.linearize(lambda y: (y**2, y), x, has_aux=True)[2], (X3,)),
    "forward over reverse": (lambda J: lambda x: J.jvp(J.grad(lambda y: (y**3).sum()), (x,), (X3,)), (X3,)),
    "reverse over forward": (
        lambda J: J.grad(lambda x: J.jvp(lambda y: (y**3).sum(), (x,), (X3,))[1]),
        (X3,),
    ),
    "closure": (lambda J: J.grad(lambda x: J.grad(lambda y: (x * y**2).sum())(x).sum()), (X3,)),
    "closure over jit": (lambda J: J.grad(lambda x: J.jit(lambda y: (x * y).sum())(X3)), (X3,)),
    "python branches on values": (lambda J: J.grad(lambda x: x**2 if x > 1 else x), (2.0,)),
}


def _float0(J, i):
    return np.zeros(i.shape, J.dtypes.float0)


@pytest.mark.parametrize("name", one_in(3, FORMS))
def test_forms_are_jaxs(name):
    make, args = FORMS[name]
    jitted = name not in ("python branches on values", "jvp of integers")
    check(make, *args, jaxpr=False, jitted=jitted and name != "integers", eager=name != "integers", rtol=RTOL)


def test_gradients_of_integers_are_float0():
    grads = OURS.grad(lambda n, x: n * x, argnums=(0, 1), allow_int=True)(3, 2.0)
    assert grads[0].dtype == OURS.dtypes.float0 and float(grads[1]) == 3


def test_results_are_arrays():
    for f in (lambda x: x, lambda x: 2.0, lambda x: x * 2, lambda x: 0 * x):
        assert all(isinstance(g, OURS.Array) for g in (OURS.grad(f)(1.5), OURS.jvp(f, (1.5,), (1.0,))[1]))


@pytest.mark.parametrize("number", [2.0, 2j, np.float32(2), np.float64(2), np.ones(3)], ids=lambda x: type(x).__name__)
def test_arguments_that_are_returned_have_jaxs_dtypes(number):
    """`asarray` makes an array of a Python number. Without 64-bit types, NumPy's numbers and arrays are 32-bit here."""

    def returned(J):
        value, pullback = J.vjp(J.numpy.asarray, number)
        assert isinstance(value, J.Array)
        same = J.vjp(lambda x: x, number)[0]
        aux = J.vjp(lambda x: (x * 1, x), number, has_aux=True)[2]
        return [(np.shape(x), J.typeof(x)) for x in (value, same, aux, *pullback(J.numpy.ones_like(value)))]

    assert str(returned(OURS)) == str(returned(THEIRS))
    same = OURS.vjp(lambda x: x, number)[0]
    assert isinstance(same, (float, complex)) or same.dtype == np.float32


def test_a_linearized_function_does_not_run_python_again():
    seen = []
    _, derivative = OURS.linearize(lambda x: seen.append(x) or x * x, 3.0)
    assert [float(derivative(1.0)), float(derivative(2.0))] == [6, 12] and len(seen) == 1


def test_the_pullback_is_a_pytree_and_can_be_jitted():
    _, pullback = OURS.vjp(lambda x: OURS.numpy.sin(x) * x, X3)
    np.testing.assert_allclose(OURS.jit(pullback)(X3)[0], pullback(X3)[0], rtol=1e-6)


def test_names_and_documentation_are_kept():
    def loss(x):
        """A text."""
        return x

    assert OURS.grad(loss).__name__ == OURS.value_and_grad(loss).__name__ == "loss"


@pytest.mark.parametrize("wrong", ["jvp", "vjp"])
def test_check_grads_finds_wrong_derivatives(wrong):
    @OURS.custom_jvp
    def f(x):
        return x**2

    f.defjvp(lambda primals, tangents: (f(*primals), 2.1 * primals[0] * tangents[0]))
    modes = ("fwd",) if wrong == "jvp" else ("rev",)
    with pytest.raises(AssertionError, match="JVP of f|VJP of f"):
        check_grads(f, (X3,), order=1, modes=modes)
    with pytest.raises(AssertionError):
        THEIRS.test_util.check_grads(_wrong_in_jax(), (X3,), order=1, modes=modes)


def _wrong_in_jax():
    f = THEIRS.custom_jvp(lambda x: x**2)
    f.defjvp(lambda primals, tangents: (f(*primals), 2.1 * primals[0] * tangents[0]))
    return f


DERIVATIVES_OF_NUMBERS = {
    "grad": lambda J, f, x: J.grad(f)(x),
    "value and grad": lambda J, f, x: J.value_and_grad(f)(x)[1],
    "jit": lambda J, f, x: J.jit(J.grad(f))(x),
}


@pytest.mark.parametrize("derivative", DERIVATIVES_OF_NUMBERS.values(), ids=DERIVATIVES_OF_NUMBERS)
@pytest.mark.parametrize("number", [0.75, np.float64(0.75), np.float32(0.75)], ids=lambda x: type(x).__name__)
@pytest.mark.one_in(3)
def test_numbers_keep_their_dtype_where_64_bit_types_are_turned_on(derivative, number):
    def wide(J, factor):
        def f(x):
            with J.enable_x64(True):
                return J.numpy.sin(x) * factor(J)

        return f

    for factor in (lambda J: 2, lambda J: J.numpy.asarray(2.0, "float64")):
        ours, theirs = (derivative(J, wide(J, factor), number) for J in (OURS, THEIRS))
        assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        f = wide(OURS, factor)
        value, slope, second = 2 * np.sin(0.75), 2 * np.cos(0.75), -2 * np.sin(0.75)
        np.testing.assert_allclose(OURS.jvp(f, (number,), (type(number)(1),)), [value, slope], rtol=1e-6)
        np.testing.assert_allclose(OURS.linearize(f, number)[1](type(number)(1)), slope, rtol=1e-6)
        np.testing.assert_allclose(OURS.grad(OURS.grad(f))(number), second, rtol=1e-6)
    assert type(OURS.vjp(lambda x: x, 1.5)[0]) is float


def test_linearize_has_its_jaxpr_under_jax_s_name():
    texts = [str(J.linearize(J.jit(lambda x, J=J: J.numpy.sin(x) * x), 2.0)[1].func.args[0]) for J in (OURS, THEIRS)]
    assert [[text.count(f" {op} ") for op in ("mul", "add_any", "sin", "cos")] for text in texts] == [[3, 1, 0, 0]] * 2


def test_check_grads_takes_trees_and_complex_numbers():
    check_grads(
        lambda p, z: (p["a"] * p["b"]).sum() + OURS.numpy.real(z * z.conj()),
        ({"a": X3, "b": X3}, 1 + 2j),
        order=2,
    )


def test_tolerances_by_dtype_are_told_apart():
    for J in (OURS, THEIRS):
        f = J.custom_jvp(lambda x: x)
        f.defjvp(lambda x, t: (x[0], t[0] * 1.1))
        J.test_util.check_grads(f, (np.float32(1.5),), 1, ["fwd"], 0.5, {np.float32: 0.5, np.float64: 1e-5})
        with pytest.raises(AssertionError, match="tangent"):
            J.test_util.check_grads(f, (np.float32(1.5),), 1, ["fwd"], 1e-3, {np.float32: 1e-2, np.float64: 1e-2})
