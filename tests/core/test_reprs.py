"""The texts of variables, literals, tracers and placeholders are those of JAX."""

import copy
import pickle
import re

import numpy as np
import pytest
from oracle import OURS, THEIRS

from mpijax._src import literals

IN_BOTH = pytest.mark.parametrize("J", [THEIRS, OURS], ids=["jax", "mpijax"])


@IN_BOTH
@pytest.mark.parametrize(
    "number, text",
    [
        (1, "Literal(TypedInt(1, dtype=int32))"),
        (1.5, "Literal(1.5)"),
        (2j, "Literal(TypedComplex(2j, dtype=complex64))"),
        (np.float32(2), "Literal(2.0)"),
    ],
)
def test_atoms_of_equations(J, number, text):
    eqn = J.make_jaxpr(lambda x: x * number)(J.numpy.asarray(number)).eqns[0]
    assert repr(eqn.invars[1]) == str(eqn.invars[1]) == text
    assert re.fullmatch(r"Var\(id=\d+\):(int32|float32|complex64)\[\]", repr(eqn.outvars[0]))


@IN_BOTH
def test_tracers_of_derivatives_print_their_values_as_print_does(J):
    seen = []

    def f(x):
        seen.append(str(x))
        return x

    x = np.float32(0.1)
    J.grad(f)(J.numpy.asarray(x))
    J.jvp(f, (J.numpy.asarray(x),), (J.numpy.asarray(x),))
    assert seen == ["GradTracer(primal=0.1, typeof(tangent)=f32[])", "JVPTracer(primal=0.1, tangent=0.1)"]


@IN_BOTH
def test_placeholders_of_transposition(J):
    aval = J.core.ShapedArray((2,), np.dtype("float32"))
    assert repr(J.interpreters.ad.UndefinedPrimal(aval)) == "UndefinedPrimal(float32[2])"


@IN_BOTH
def test_types_with_axes_of_shard_map(J):
    types, S = J.sharding.AxisType, J.sharding
    mesh = S.AbstractMesh((2, 2, 2), ("a", "b", "c"), axis_types=(types.Explicit, types.Explicit, types.Manual))
    spec = S.PartitionSpec(unreduced={"a"}, reduced={"b"})
    axes = S.ManualAxisType(varying={"c"})
    aval = J.core.ShapedArray((1, 1), np.float32, sharding=S.NamedSharding(mesh, spec), manual_axis_type=axes)
    assert aval.str_short(True) == "f32[1,1]{V:c, U:a, R:b}"
    assert aval.update(manual_axis_type=S.ManualAxisType()).str_short(True) == "f32[1,1]{U:a, R:b}"


def test_copies_of_typed_numbers():
    for kind, value in (("TypedInt", 3), ("TypedFloat", 2.0), ("TypedComplex", 1 - 2j)):
        number = getattr(literals, kind)(value, np.float32)
        for copied in (pickle.loads(pickle.dumps(number)), copy.deepcopy(number)):
            assert copied == value and type(copied) is type(number) and copied.dtype == np.float32
