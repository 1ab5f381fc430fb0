"""Functions that change shapes, join, split, rearrange and pad, against JAX: Jaxprs, errors and values."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import numpy as np
import pytest
from jaxprs import array, check_all
from oracle import OURS, THEIRS, check
from quickly import one_in

X, M, M3 = array("float32", 3), array("float32", 3, 4), array("float32", 2, 3, 4)
I8, M1, SCALAR = array("int8", 3), array("float32", 3, 1, 4), np.float32(2.5)
ARRAYS = (X, M, M3, SCALAR)


def function(name, *after, **options):
    return lambda J: lambda x: getattr(J.numpy, name)(x, *after, **options)


def of_list(name, *after, **options):
    return lambda J: lambda *x: getattr(J.numpy, name)(list(x), *after, **options)


# Every function with the arguments to call it with on each of the arrays above.
UNARY = {
    "ravel": [(), ("F",), ("K",)],
    "transpose": [()],
    "matrix_transpose": [()],
    "squeeze": [()],
    "atleast_1d": [()],
    "atleast_2d": [()],
    "atleast_3d": [()],
    "flip": [(), (0,), ((0, 1),)],
    "fliplr": [()],
    "flipud": [()],
    "roll": [(1,), (2, 0), ((1, -1), (0, 1)), (1, (0, 1)), ((1, 2, 3), (0, 1))],
    "rot90": [(), (2,), (3, (1, 0)), (0,), (1, (0, 0))],
    "tile": [(2,), ((2, 1),), ((1, 2, 2, 1),)],
    "repeat": [(2,), (2, 0), (0,)],
    "expand_dims": [(0,), (-1,), ((0, 2),), (7,)],
    "unstack": [()],
    "resize": [((2, 2),), (5,), ((0, 2),)],
    "split": [(3,), (2,), ([1, 2],), (2, 1), (np.array([1, 2]),)],
    "array_split": [(2,), (4, -1)],
    "hsplit": [([1],)],
    "vsplit": [([1],)],
    "dsplit": [(2,)],
    "rollaxis": [(0,), (1, 0), (0, 2), (-1,), (0, 9)],
    "moveaxis": [(0, -1), ((0, 1), (1, 0)), (0, (1, 0))],
    "swapaxes": [(0, -1), (0, 5)],
    "broadcast_to": [((2, 3, 4),), (3,)],
    "hstack": [()],
    "vstack": [()],
    "dstack": [()],
    "column_stack": [()],
    "stack": [(), (1,)],
    "concatenate": [(), (1,), (None,)],
}
JOINS = {
    "hstack": [()],
    "vstack": [()],
    "dstack": [()],
    "column_stack": [()],
    "block": [()],
    "stack": [(), (-1,)],
    "concatenate": [(), (-1,), (None,), (3,)],
}


@pytest.mark.parametrize("name", one_in(3, UNARY))
def test_jaxpr(name):
    check_all(
        [(f"{name}{a}", function(name, *a), (x,)) for a in UNARY[name] for x in ARRAYS], ("ValueError",)
    )


@pytest.mark.parametrize("name", JOINS)
def test_jaxpr_of_joins(name):
    cases = [(f"{name}{a}", of_list(name, *a), (x, x)) for a in JOINS[name] for x in ARRAYS]
    cases += [(f"{name} of different arrays", of_list(name), pair) for pair in ((X, I8), (X, M), (X, 1), ())]
    if name not in ("column_stack", "block"):
        cases.append((f"{name} dtype=", of_list(name, dtype=np.int8), (X, I8)))
    cases.append((f"{name} with a list", lambda J: lambda x: getattr(J.numpy, name)([[1, 2, 3], x]), (X,)))
    check_all(cases, errors=("ValueError", "TypeError"))


def test_jaxpr_of_reshapes():
    shapes = [(4, 3), (12,), -1, (2, -1), (-1, -1), (5,), (-1, 5), (2, 2.5), ()]
    cases = [(f"reshape{s}", function("reshape", s, order=o), (M,)) for s in shapes for o in "CF"]
    cases += [(f"reshape order={o}", function("reshape", (12,), order=o), (M,)) for o in "AZ"]
    cases += [
        ("reshape of a list", lambda J: lambda x: J.numpy.reshape([1, 2], (2, 1)), (X,)),
        ("reshape of a scalar", function("reshape", (1, 1)), (2.5,)),
        ("reshape to a generator", lambda J: lambda x: J.numpy.reshape(x, (n for n in (2, -1))), (M,)),
        ("lax.reshape to a generator", lambda J: lambda x: J.lax.reshape(x, (n for n in (2, 6))), (M,)),
        ("lax.full of a generator", lambda J: lambda: J.lax.full((n for n in (2, 3)), 1.0), ()),
        ("bits of a generator", lambda J: lambda: J.random.bits(J.random.key(0), (n for n in (2, 3))), ()),
        ("zeros of a generator", lambda J: lambda: J.numpy.zeros(n for n in (2, 3)), ()),
    ]
    check_all(cases)


def test_jaxpr_of_the_rest():
    cases = [
        (f"transpose{a}", function("transpose", a), (M3,)) for a in ((1, 0, 2), (1, -1, 0), (1, 0), (0, 0, 1))
    ]
    cases += [("permute_dims", function("permute_dims", (1, 0, 2)), (M3,))]
    cases += [(f"squeeze{a}", function("squeeze", a), (M1,)) for a in (1, None, 0, (1,))]
    cases += [
        ("block", lambda J: lambda x: J.numpy.block([[x, x], [x, x]]), (X,)),
        ("block of tuples", lambda J: lambda x: J.numpy.block((x, x)), (X,)),
        ("block of nothing", lambda J: lambda x: J.numpy.block([]), (X,)),
        ("block of uneven lists", lambda J: lambda x: J.numpy.block([[x], x]), (X,)),
        ("append", lambda J: lambda x: J.numpy.append(x, x), (M,)),
        ("append along an axis", lambda J: lambda x: J.numpy.append(x, x, axis=0), (M,)),
        ("stack of scalars", lambda J: lambda x: J.numpy.stack([x[0], 1, 2.5]), (X,)),
        ("broadcast_arrays", lambda J: lambda x: J.numpy.broadcast_arrays(x, X, 1), (M3[:, :, :3],)),
        ("roll by a traced number", lambda J: lambda x, s: J.numpy.roll(x, s), (X, np.int32(1))),
        ("roll by traced numbers", lambda J: lambda x, s: J.numpy.roll(x, s, (0, 1)), (M, np.array([1, 2]))),
        ("repeat each", lambda J: lambda x: J.numpy.repeat(x, np.array([1, 2, 0])), (X,)),
        ("repeat rows", lambda J: lambda x: J.numpy.repeat(x, np.array([1, 2, 0]), axis=0), (M,)),
        ("repeat of unknown length", lambda J: lambda x, r: J.numpy.repeat(x, r), (X, np.array([1, 2, 0]))),
        ("repeat by a list", lambda J: lambda x: J.numpy.repeat(x, [1, 2, 0]), (X,)),
        ("select", lambda J: lambda x: J.numpy.select([x > 1, x < 0], [x, 2], 3), (X,)),
        ("select of nothing", lambda J: lambda x: J.numpy.select([], []), (X,)),
    ]
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        cases.append(
            (f"{name} of several", lambda J, name=name: lambda x: getattr(J.numpy, name)(x, x, 2.5), (X,))
        )
        cases.append((f"{name} of a list", lambda J, name=name: lambda x: getattr(J.numpy, name)([x]), (X,)))
    check_all(cases)


PADS = [
    {}, {"constant_values": 2}, {"constant_values": (1, 2)}, {"constant_values": ((1, 2), (3, 4))},
    {"mode": "edge"}, {"mode": "wrap"}, {"mode": "reflect"}, {"mode": "symmetric"},
    {"mode": "reflect", "reflect_type": "odd"}, {"mode": "symmetric", "reflect_type": "odd"},
    {"mode": "linear_ramp"}, {"mode": "linear_ramp", "end_values": (1, 2)}, {"mode": "mean"},
    {"mode": "maximum"},
    {"mode": "minimum", "stat_length": 2}, {"mode": "mean", "stat_length": (1, 2)}, {"mode": "empty"},
    {"mode": "no such mode"}, {"mode": "edge", "constant_values": 1},
]  # fmt: skip


WIDTHS = (1, (1, 2), ((1, 2),), 2, 0, 7, ((1, 2), (3, 0)), 1.5, -1, [1])


@pytest.mark.parametrize("widths", [((1, 2), 7, ((1, 2), (3, 0))), pytest.param(WIDTHS, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("options", PADS, ids=lambda kw: "-".join(map(str, kw.values())) or "constant")
@pytest.mark.one_in(3)
def test_jaxpr_of_pads(options, widths):
    arrays = (X, M, I8, array("bool", 3), array("float32", 2, 0), array("complex64", 3), SCALAR)
    check_all([(f"pad {w}", function("pad", w, **options), (x,)) for w in widths for x in arrays])


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_jaxpr_of_pads_by_constants(widths):
    arrays = (X, M, array("complex64", 3), SCALAR)
    check_all([(f"pad {widths}", function("pad", widths), (x,)) for x in arrays])


MEDIANS = [{"mode": "median"}, {"mode": "median", "stat_length": ((2, 1),)}]


@pytest.mark.parametrize("options", PADS[:-2] + MEDIANS, ids=lambda kw: "-".join(map(str, kw.values())) or "constant")
@pytest.mark.parametrize("width", [((1, 2), (3, 0)), *(pytest.param(w, marks=pytest.mark.slow) for w in (2, 5))], ids=str)
@pytest.mark.one_in(3)
def test_values_of_pads(options, width):
    check(function("pad", width, **options), M, jaxpr=False, eager=False, rtol=1e-6)


@pytest.mark.parametrize("name", one_in(3, [n for n in UNARY if n != "dsplit"]))
def test_values(name):
    check(function(name, *UNARY[name][0]), M, jaxpr=False, eager=False)


@pytest.mark.parametrize("name", JOINS)
def test_values_of_joins(name):
    check(of_list(name), M, M + 1, jaxpr=False, eager=False)


VALUES = [
    lambda J: lambda x: J.numpy.reshape(J.numpy.asarray(x), (4, 3), order="F"),
    function("rot90", 3),
    function("roll", (1, -2), (0, 1)),
    function("repeat", np.array([1, 0, 3]), axis=0),
    function("tile", (2, 1, 3)),
    function("resize", (5, 3)),
    lambda J: lambda x: J.numpy.repeat(x, J.numpy.array([1, 2, 0]), axis=0, total_repeat_length=5),
    lambda J: lambda x: J.numpy.roll(x, J.numpy.asarray(2), 1),
    lambda J: lambda x: J.numpy.select([x > 1, x < 0], [x, -x], 3),
    lambda J: lambda x: J.numpy.block([[x, x], [x, x]]),
    function("pad", ((1, 2), (3, 0)), lambda line, widths, axis, kw: line.at[: widths[0]].set(axis + kw["by"]), by=7),
]


@pytest.mark.parametrize("index", one_in(3, range(len(VALUES))))
def test_values_of_the_rest(index):
    check(VALUES[index], M, jaxpr=False, jitted=index < 6)


def test_gradients():
    for make in (
        lambda J: lambda x: J.numpy.pad(x, 2, mode="reflect"),
        lambda J: lambda x: J.numpy.roll(x, 2, 1),
        lambda J: lambda x: J.numpy.concatenate([x, x * 2], 1),
        lambda J: lambda x: J.numpy.tile(x, (2, 3)),
        lambda J: lambda x: J.numpy.repeat(x, 3, axis=1),
    ):
        check(lambda J: J.grad(lambda x: (make(J)(x) ** 2).sum()), M, jaxpr=False, eager=False, rtol=1e-5)


def test_numpys_arrays_stay_numpys_when_they_are_reshaped():
    """Libraries check constraints on the result while they are traced."""
    for J in (THEIRS, OURS):
        inside = []
        J.jit(lambda J=J, inside=inside: inside.append(J.numpy.reshape(np.ones((2, 3)), (-1,), order="F")))()
        for made in (J.numpy.reshape(np.float32(1), (1, 1)), J.numpy.reshape(np.arange(6), 6), *inside):
            assert type(made) is np.ndarray
        assert isinstance(J.numpy.reshape(2.0, (1,)), J.Array) and isinstance(J.numpy.ravel(np.ones((2, 2))), J.Array)


def test_joins_of_a_sequence_that_has_attributes_of_arrays():
    class Blocks(list):
        aval = shape = ndim = property(lambda self: tuple(len(x) for x in self))

    blocks = Blocks([OURS.numpy.ones(2), OURS.numpy.zeros(1)])
    assert OURS.numpy.concatenate(blocks).tolist() == OURS.numpy.hstack(blocks).tolist() == [1, 1, 0]


def test_broadcast_shapes():
    assert OURS.numpy.broadcast_shapes((3, 1), (4,)) == (3, 4)
    assert OURS.numpy.broadcast_shapes() == ()
    assert OURS.numpy.broadcast_shapes(3, (2, 1)) == (2, 3)
    with pytest.raises(TypeError, match=r"Only non-negative indices are allowed .* got shape \(-1,\)"):
        OURS.lax.broadcast_shapes((3,), (-1,))
