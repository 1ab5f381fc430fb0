"""Extended dtypes of libraries against JAX's: conversions, derivatives by the library's rules, arrays outside programs."""

import dataclasses
import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from oracle import OURS, THEIRS


def element(J, shape, dtype, **rules):
    """A library's dtype, stored as arrays of this shape and dtype."""
    dtypes = importlib.import_module(f"{J.name}._src.dtypes")

    class scalar(dtypes.extended):
        pass

    @dataclasses.dataclass(frozen=True)
    class Element(dtypes.ExtendedDType):
        name = "element"
        type = scalar
        _rules = SimpleNamespace(
            physical_element_aval=lambda _: J.core.ShapedArray(shape, np.dtype(dtype)),
            **{"allow_conversion": True, **rules},
        )

    return Element()


def largest(J):
    """A dtype of scales: cotangents of it are combined by the maximum. As Flax's of float8."""

    def as_floats(x):
        return J.lax.convert_element_type(x, np.dtype("float32"))

    return element(
        J, (), "float32", tangent_dtype=lambda dt: dt,
        zero=lambda dt: J.lax.convert_element_type(np.float32(-np.inf), dt),
        add=lambda dt, x, y: J.lax.convert_element_type(J.lax.max(as_floats(x), as_floats(y)), dt),
        full=lambda shape, value, dt: J.lax.convert_element_type(J.lax.full(shape, value, np.float32), dt),
    )  # fmt: skip


@pytest.mark.parametrize("words", [(), (2,), (3, 4)])
def test_values_go_through_programs(words):
    x = np.arange(5 * 3 * 12, dtype=np.int32).reshape(5, 3, 12)[..., : int(np.prod(words))].reshape(5, 3, *words)
    found = []
    for J in (THEIRS, OURS):
        dtype = element(J, words, "int32")

        def f(x, J=J, dtype=dtype):
            y = J.lax.convert_element_type(x, dtype)
            assert y.dtype == dtype and y.shape == x.shape[:2]
            back = J.lax.convert_element_type(y.T[::-1, 1:], "int32")
            return back * 2, J.vmap(lambda e: J.lax.convert_element_type(e, "int32") + 1, in_axes=1)(y)

        found.append([np.asarray(out) for out in J.jit(f)(x)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(theirs, ours)


def test_cotangents_are_combined_by_the_library():
    x, scale = np.float32(3.14), np.float32(1.0)
    found = []
    for J in (THEIRS, OURS):
        dtype = largest(J)

        @J.custom_vjp
        def inner(carry, scale):
            return carry * 2

        def backward(saved, g, J=J, dtype=dtype):
            new = (J.lax.convert_element_type(saved, "float32") + J.numpy.max(g)) / 2
            return g * 3, J.lax.convert_element_type(new, dtype)

        inner.defvjp(lambda c, s, f=inner: (f(c, s), s), backward)

        def outer(x, scale, J=J, dtype=dtype, inner=inner):
            scale = J.lax.convert_element_type(scale, dtype)
            return J.lax.scan(lambda c, _: (inner(inner(c, scale), scale), None), x, None, length=3)[0]

        found.append(J.jit(J.grad(outer, (0, 1)))(x, scale))
    np.testing.assert_allclose(*found)


def test_values_outside_programs():
    dtype = largest(OURS)
    x = OURS.jit(OURS.lax.convert_element_type, static_argnums=1)(np.arange(3, dtype=np.float32), dtype)
    assert x.dtype == dtype and x.shape == (3,)
    y = OURS.lax.convert_element_type(OURS.jit(lambda x: x[1:])(x), "float32")
    np.testing.assert_array_equal(y, np.arange(1, 3, dtype=np.float32))
    np.testing.assert_array_equal(OURS.lax.convert_element_type(OURS.lax.full((2,), 4.0, dtype), "float32"), [4, 4])


def test_what_cannot_be_converted():
    x = np.zeros((5, 3), np.int32)
    for J in (THEIRS, OURS):
        one, other, closed = (
            element(J, (3,), "int32"),
            element(J, (3,), "int32"),
            element(J, (3,), "int32", allow_conversion=False),
        )

        @J.jit
        def f(x, J=J, one=one, other=other, closed=closed):
            y = J.lax.convert_element_type(x, one)
            for value, dtype, message in [
                (y, other, "cannot directly convert"),
                (x.astype("float32"), one, "can only convert to extended dtype"),
                (x[:, :2], one, "can only convert to extended dtype"),
                (x[:, 0], one, "can only convert to extended dtype"),
                (y, "float32", "can only convert from extended dtype"),
                (x, closed, "Cannot convert_element_type"),
                (J.random.key(0), "uint32", "Cannot convert_element_type"),
            ]:
                with pytest.raises(ValueError, match=message):
                    J.lax.convert_element_type(value, dtype)

        f(x)


def pulled_through_integers(J, p):
    """Value and cotangents of a branch that multiplies by integers with a derivative."""
    dtype = J.experimental.primal_tangent_dtype(J.numpy.int8, J.numpy.float32)

    @J.custom_vjp
    def product(w, x):
        return w.astype("int8").astype("float32") * x

    def backward(saved, g):
        w, x = saved
        return g * x, g * w.astype("int8").astype("float32")

    product.defvjp(lambda w, x: (product(w, x), (w, x)), backward)

    @J.jit
    def pulled(w, x, ct):
        out, pull = J.vjp(lambda w, x: J.lax.cond(p, lambda: product(w, x), lambda: x), w.astype(dtype), x)
        return out, *pull(ct)

    return pulled(np.int8([3, -2, 1]), np.float32([2, 4, 8]), np.float32([1, 10, 100]))


def test_dtypes_with_tangents_of_another_dtype():
    for p in (True, False):
        for theirs, ours in zip(*(pulled_through_integers(J, p) for J in (THEIRS, OURS)), strict=True):
            assert theirs.dtype == ours.dtype
            np.testing.assert_array_equal(theirs, ours)
    make = OURS.experimental.primal_tangent_dtype
    assert repr(make("int8", "float32")) == "PrimalTangentDType{i8/f32}"
    assert make("int8", "float32") == make("int8", "float32") != make("int8", "float16")
    assert OURS.lax.full((2,), 3, make("int8", "float32")).astype("int8").tolist() == [3, 3]
