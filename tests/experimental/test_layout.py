"""Layouts in memory against JAX's: where a Format is taken, and what is refused."""

import copy
import importlib
import pickle

import numpy as np
import pytest
from oracle import OURS, THEIRS, run

X = np.arange(8, dtype=np.int32)


def formats(J):
    """Formats by name: of one axis, of another rank, chosen by the compiler, without a layout, and empty."""
    layout = importlib.import_module(f"{J.name}.experimental.layout")
    place = J.sharding.SingleDeviceSharding(J.devices()[0])
    return {
        "row": layout.Format(layout.Layout((0,)), place),
        "another rank": layout.Format(layout.Layout((0, 1, 2)), place),
        "auto": layout.Format(layout.Layout.AUTO, place),
        "auto anywhere": layout.Format(layout.Layout.AUTO),
        "place": layout.Format(None, place),
        "empty": layout.Format(),
    }


USES = {
    "device_put": lambda J, f: J.device_put(X, f),
    "ShapeDtypeStruct": lambda J, f: J.ShapeDtypeStruct((8,), np.int32, sharding=f),
    "format": lambda J, f: J.ShapeDtypeStruct((8,), np.int32, sharding=f).format,
    "jit": lambda J, f: J.jit(lambda x: x * 2, in_shardings=f)(X),
    "eval_shape": lambda J, f: J.eval_shape(J.jit(lambda x: x * 2, out_shardings=f), X).format,
    "make_array_from_callback": lambda J, f: J.make_array_from_callback((8,), f, lambda index: X[index]),
}
# JAX takes layouts of another rank where it only describes an array.
CASES = [
    (use, name)
    for use in USES
    for name in formats(OURS)
    if use in ("device_put", "ShapeDtypeStruct", "format", "make_array_from_callback")
    and (use, name) != ("make_array_from_callback", "another rank")
] + [("jit", "row"), ("jit", "another rank"), ("jit", "auto"), ("eval_shape", "row"), ("eval_shape", "place")]


@pytest.mark.parametrize("use, name", CASES)
@pytest.mark.one_in(4)
def test_formats_are_taken_and_refused_as_in_jax(use, name):
    theirs, ours = (run(lambda J=J: USES[use](J, formats(J)[name])) for J in (THEIRS, OURS))
    assert ours[:2] == theirs[:2] if theirs[0] == "error" else ours[0] == theirs[0]
    if theirs[0] == "error":
        words = [
            part for part in theirs[2].replace(". Got", ": Got").split(": ") if not part.startswith(("Got", "One"))
        ]
        assert words[0].split("<")[0] in ours[2].replace(". Got", ": Got")
    elif isinstance(theirs[1], tuple) or not hasattr(theirs[1], "__array__"):
        assert str(ours[1]) == str(theirs[1])
    else:
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_the_layout_is_a_field_of_the_struct():
    given = formats(OURS)
    struct = OURS.ShapeDtypeStruct((8,), np.int32, sharding=given["row"])
    assert struct.format == given["row"] and struct.sharding == given["row"].sharding
    assert struct != OURS.ShapeDtypeStruct((8,), np.int32, sharding=given["place"])
    for other in (copy.copy(struct), pickle.loads(pickle.dumps(struct)), struct.update(dtype=np.int32)):
        assert other == struct and other.format == struct.format
