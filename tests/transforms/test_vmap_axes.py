"""vmap: named axes and the collectives over them; errors that name the arguments; all beside JAX."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, run, sample
from quickly import one_in

X3, X23, X33 = sample(3), sample(2, 3), sample(3, 3)

# Functions of one example over the axis "i".
COLLECTIVES = {
    "psum": lambda J: lambda x: J.lax.psum(x, "i"),
    "psum of a constant": lambda J: lambda x: x * J.lax.psum(1, "i") + J.lax.psum(X3, "i"),
    "pmean": lambda J: lambda x: x - J.lax.pmean(x, "i"),
    "pmax": lambda J: lambda x: x / J.lax.pmax(x, "i"),
    "pmin": lambda J: lambda x: x * J.lax.pmin(x, ("i",)),
    "axis_index": lambda J: lambda x: x[J.lax.axis_index("i")] + J.lax.axis_size("i"),
    "all_gather": lambda J: lambda x: J.lax.all_gather(x, "i"),
    "all_gather tiled": lambda J: lambda x: J.lax.all_gather(x, "i", axis=0, tiled=True) * x[0],
    "all_gather behind": lambda J: lambda x: J.lax.all_gather(x, "i", axis=1) * x[:, None],
    "ppermute": lambda J: lambda x: J.lax.ppermute(x * 2, "i", [(0, 1), (1, 2), (2, 0)]),
    "gradient": lambda J: J.grad(lambda x: (J.lax.psum(x**2, "i") * x).sum()),
    "in jit": lambda J: J.jit(lambda x: x - J.lax.pmean(x, "i")),
    "tree": lambda J: lambda x: J.lax.psum({"a": x, "b": (x[0], 2)}, "i"),
}


@pytest.mark.parametrize("name", one_in(3, COLLECTIVES))
def test_collectives_are_jaxs(name):
    check(lambda J: J.vmap(COLLECTIVES[name](J), axis_name="i"), X33, jaxpr=False, jitted=False, rtol=1e-5)


def test_positions_that_nobody_sends_to_get_zeros():
    out = OURS.vmap(lambda x: OURS.lax.ppermute(x, "i", [(0, 2)]), axis_name="i")(X33)
    np.testing.assert_array_equal(out, [0 * X3, 0 * X3, X33[0]])


@pytest.mark.parametrize("name", ["psum", "pmean"])
def test_over_no_axes_numpy_arrays_stay_numpys(name):
    for J in (OURS, THEIRS):
        out = getattr(J.lax, name)({"a": X3, "b": 2}, ())
        assert type(out["a"]) is np.ndarray
        assert out["b"] == 2


def test_two_names():
    def both(J):
        def one(x):
            return x + J.lax.psum(x, ("i", "j")) + 10 * J.lax.axis_index("i") + J.lax.axis_index(("i", "j"))

        return J.vmap(J.vmap(one, axis_name="j"), axis_name="i", spmd_axis_name="rows")

    check(both, X23, jaxpr=False, jitted=False, rtol=1e-6)


ERRORS = {
    "sizes": lambda J: J.vmap(lambda x, y: x)(X23, X3),
    "sizes of leaves": lambda J: J.vmap(lambda x, y: y)({"a": X3, "b": [X23, X23]}, X3),
    "sizes of star arguments": lambda J: J.vmap(lambda x, *rest: x)(X3, X3, X23),
    "sizes of keywords": lambda J: J.vmap(lambda x, **options: x)(X3, k=X23),
    "size given": lambda J: J.vmap(lambda x: x, axis_size=5)(X3),
    "nothing mapped": lambda J: J.vmap(lambda x: x, in_axes=None)(X3),
    "no arguments": lambda J: J.vmap(lambda: 1.0)(),
    "rank": lambda J: J.vmap(lambda x: x, in_axes=2)(X23),
    "negative rank": lambda J: J.vmap(lambda x: x, in_axes=-2)(X3),
    "number of axes": lambda J: J.vmap(lambda x, y: x, in_axes=(0,))(X3, X3),
    "axes of a wrong type": lambda J: J.vmap(lambda x: x, in_axes="a")(X3),
    "leaves of a wrong type": lambda J: J.vmap(lambda x: x, in_axes=("a",))(X3),
    "out_axes of a wrong type": lambda J: J.vmap(lambda x: x, out_axes=1.5)(X3),
    "unmapped result": lambda J: J.vmap(lambda x: x, out_axes=None)(X3),
    "unmapped leaf": lambda J: J.vmap(lambda x: {"a": 1.0, "b": x}, out_axes={"a": None, "b": None})(X3),
    "prefix": lambda J: J.vmap(lambda x: x, in_axes=({"a": 0},))({"b": X3}),
    "out prefix": lambda J: J.vmap(lambda x: x, out_axes=(0, 0))(X3),
    "no function": lambda J: J.vmap(3),
    "no array": lambda J: J.vmap(lambda x: x)("text"),
    "unbound name": lambda J: J.vmap(lambda x: J.lax.psum(x, "j"), axis_name="i")(X3),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_jaxs(name):
    theirs, ours = (run(lambda J=J: ERRORS[name](J)) for J in (THEIRS, OURS))
    assert theirs[0] == "error" and ours[:2] == theirs[:2], f"JAX: {theirs}\nmpijax: {ours}"
    if name not in ("no array", "unbound name"):
        # The names of JAX's own classes are its own, and messages may go on.
        text = theirs[2].split("<class 'jax.")[0].split("so the diff")[0].removesuffix(".")
        assert ours[2].startswith(text), f"JAX:\n{theirs[2]}\nmpijax:\n{ours[2]}"
