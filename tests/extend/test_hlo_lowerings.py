"""Lowering rules written for JAX, which build StableHLO."""

import subprocess
import sys

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax
from mpijax._src.lib.mlir.dialects import hlo
from mpijax.extend.core import Primitive
from mpijax.interpreters import mlir

X = np.float32([0.25, 0.5, 0.75])


def primitive(rule, count=1):
    p = Primitive("of_the_test", multiple_results=count > 1)
    p.def_abstract_eval(lambda x, *_: [x] * count if count > 1 else x)
    mlir.register_lowering(p, rule)
    return jax.jit(p.bind)


def test_names_are_those_of_stablehlo():
    theirs = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    assert [name for name in hlo.__all__ if not hasattr(theirs, name)] == []
    assert [op for op, name, _ in hlo._TABLE if getattr(theirs, op).OPERATION_NAME != f"stablehlo.{name.rstrip('_')}"] == []


@pytest.mark.parametrize("op, function", [("NegOp", "negate"), ("SineOp", "sine"), ("Log1pOp", "log_plus_one"), ("RsqrtOp", "rsqrt")])
def test_unary_operations(op, function):
    wanted = getattr(lax, hlo._CLASSES[op])(X)
    np.testing.assert_array_equal(primitive(lambda _, x: getattr(hlo, op)(x).results)(X), wanted)
    np.testing.assert_array_equal(primitive(lambda _, x: [getattr(hlo, function)(x)])(X), wanted)


def test_an_operation_is_an_operand_of_another():
    fused = primitive(lambda _, x, y, z: [hlo.AddOp(hlo.MulOp(x, y), z).result])
    np.testing.assert_array_equal(fused(X, X, X), X * X + X)
    np.testing.assert_array_equal(primitive(lambda _, x: [hlo.abs(x), hlo.negate(x)], 2)(X)[1], -X)


def test_the_result_has_the_type_of_abstract_evaluation():
    with pytest.raises(TypeError, match=r"returns bool\[3\], but its abstract evaluation returns f(loat)?32\[3\]"):
        primitive(lambda _, x: [hlo.is_finite(x)])(X)


def test_an_operation_that_takes_attributes_is_missing():
    with pytest.raises(NotImplementedError, match="generates MLIR for XLA") as caught:
        primitive(lambda _, x: hlo.CompareOp(x, x, "GT").results)(X)
    assert "has no 'CompareOp'. It has the elementwise operations" in str(caught.value.__cause__)


def test_the_imports_of_the_tutorial_on_primitives():
    program = """if True:
        from jax._src import api
        from jax._src.interpreters import mlir
        from jax._src.lax import lax
        from jax._src.lib.mlir.dialects import hlo
        assert api.grad(lambda x: lax.add(lax.mul(x, x), 1.0))(2.0) == 4.0 and mlir.register_lowering and hlo.AddOp
    """
    subprocess.run([sys.executable, "-m", "mpijax.as_jax", "-c", program], check=True)
