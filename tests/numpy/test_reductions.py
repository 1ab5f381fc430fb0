"""Reductions, statistics and running sums against JAX: Jaxprs for all dtypes, values for some."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import numpy as np
import pytest
from jaxprs import array, check_all
from oracle import OURS, check
from quickly import one_in

REDUCTIONS = """
    sum prod max min amax amin all any mean average var std ptp count_nonzero nanmin nanmax nansum nanprod
    nanmean nanvar nanstd argmax argmin nanargmax nanargmin cumsum cumprod nancumsum nancumprod cumulative_sum
    cumulative_prod""".split()

# An axis that is none: in some functions JAX runs into Python's error for the tuple of sizes.
OTHER_CLASSES = ("ValueError", "TypeError")


def function(name, *after, **options):
    return lambda J: lambda x: getattr(J.numpy, name)(x, *after, **options)


@pytest.mark.parametrize(
    "dtypes", [("bool", "float32"), pytest.param(("int8", "uint32", "bfloat16", "complex64"), marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.one_in(4)
def test_jaxpr(name, dtypes):
    mask = array("bool", 2, 3)
    cases = []
    for dtype in dtypes:
        if dtype == "complex64" and ("arg" in name or name in ("all", "any")):
            continue  # JAX refuses the former only when it compiles, and loses imaginary parts of the latter
        x, line, empty = array(dtype, 2, 3), array(dtype, 3), array(dtype, 2, 0, 3)
        options = [
            {}, {"axis": -1}, {"axis": 1, "keepdims": True}, {"axis": 0, "promote_integers": False},
            *({"axis": 0, "dtype": d} for d in (np.int8, np.float16, bool, float)),
        ]  # fmt: skip
        if dtype in ("int8", "float32"):  # what is not about dtypes
            options += [
                {"axis": (0, 1)}, {"axis": 5}, {"keepdims": True}, {"initial": 2.5}, {"axis": 0, "where": mask},
                {"axis": 0, "where": mask, "initial": 2}, {"where": mask, "keepdims": True}, {"ddof": 1},
                {"axis": 0, "correction": 1}, {"axis": 0, "include_initial": True},
            ]  # fmt: skip
            of_a_line = ({}, {"axis": -1}, {"axis": (0, 1)}, {"axis": 5})
            cases += [(f"{name} {kw}", function(name, **kw), (line,)) for kw in of_a_line]
            of_nothing = ({"axis": 0}, {"axis": 1})
            cases += [(f"{name} of an empty array {kw}", function(name, **kw), (empty,)) for kw in of_nothing]
        cases += [(f"{name} {kw}", function(name, **kw), (x,)) for kw in options]
        if name in ("var", "std", "nanvar", "nanstd"):
            mean = lambda J, dtype=dtype: lambda x, m: getattr(J.numpy, name)(x, axis=0, mean=m)
            cases.append((f"{name} mean=", mean, (x, array(dtype, 1, 3))))
    for x in (2.5, True, np.ones(3), np.float32(2)):
        cases.append((name, function(name), (x,)))
    check_all(cases, errors=OTHER_CLASSES)


@pytest.mark.parametrize("name", one_in(3, REDUCTIONS))
@pytest.mark.one_in(3)
def test_jaxpr_of_odd_arguments(name):
    m, m3, x = array("float32", 3, 4), array("float32", 2, 3, 4), array("float32", 3)
    options = [{"axis": (0, 2)}, {"axis": (2, 0), "keepdims": True}, {"axis": [0, 1]}]
    cases = [(f"{name} {kw}", function(name, **kw), (m3,)) for kw in options]
    options = [{"where": x}, {"out": x}, {"axis": (0, 0)}, {"axis": 1.5}, {"initial": x}]
    cases += [(f"{name} {kw}", function(name, **kw), (m,)) for kw in options]
    cases.append((f"{name}, traced axis", lambda J: lambda a, i: getattr(J.numpy, name)(a, axis=i), (m, 0)))
    cases.append(
        (f"{name} of a weak array", lambda J: lambda a: getattr(J.numpy, name)(J.numpy.full(3, a)), (2.5,))
    )
    check_all(cases, errors=OTHER_CLASSES)
    with pytest.raises(TypeError, match="requires ndarray or scalar arguments, got <class 'list'>"):
        getattr(OURS.numpy, name)([1, 2])


def test_average_with_weights():
    x, m, m3 = array("float32", 3), array("float32", 3, 4), array("float32", 2, 3, 4)
    both = lambda **kw: lambda J: lambda a, w: J.numpy.average(a, weights=w, **kw)
    check_all(
        [
            ("shape of a", both(), (m, m)),
            ("along an axis", both(axis=0), (m, x)),
            ("axis missing", both(), (m, x)),
            ("along two axes", both(axis=(2, 0), returned=True), (m3, array("float32", 4, 2))),
            ("returned", function("average", returned=True, axis=1), (m,)),
            ("keepdims", both(keepdims=True), (array("int8", 3), x)),
        ]
    )


def values(dtype):
    x = array(dtype, 4, 5)
    if np.dtype(x.dtype).kind == "f":
        x[1, 2] = x[3] = np.nan
    return x


@pytest.mark.sweep
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.one_in(4)
def test_values(name, dtype):
    if name.startswith("cumulative"):
        check(function(name, axis=1), values(dtype), jaxpr=False, eager=False, rtol=1e-5)
        return
    along_each = lambda J: lambda x: [getattr(J.numpy, name)(x, axis=axis) for axis in (None, 0, 1)]
    check(along_each, values(dtype), jaxpr=False, eager=False, rtol=1e-5)


@pytest.mark.parametrize("name", one_in(2, ["sum", "mean", "max", "var", "any", "argmin"]))
def test_eager_values(name):
    for x in (array("float32", 3, 4), array("int8", 3, 4), array("bfloat16", 3, 4)):
        if name == "var" and x.dtype.itemsize == 2:
            continue
        check(function(name, axis=0), x, jaxpr=False, jitted=False, rtol=1e-6)
        check(function(name), x, jaxpr=False, jitted=False, rtol=1e-6)


def test_half_precision_sums_do_not_stop_growing():
    x = np.ones(5000, np.float16)
    assert OURS.numpy.sum(x) == 5000
    assert OURS.numpy.mean(x) == 1


def test_gradients():
    x = array("float32", 3, 4)
    names = ("sum", "mean", "max", "prod", "var", "std", "ptp")
    gradient = lambda J, name: J.grad(lambda x: getattr(J.numpy, name)(x, axis=1).sum())
    make = lambda J: lambda x: [gradient(J, name)(x) for name in names]
    check(make, x, jaxpr=False, eager=False, rtol=1e-4, atol=1e-6)


def test_means_of_more_elements_than_int32_counts():
    check(lambda J: lambda: J.eval_shape(J.numpy.mean, J.ShapeDtypeStruct((1 << 32,), np.float32)).dtype.name == "float32")


@pytest.mark.parametrize("shape, axis", [((2, 0), 0), ((0, 3, 2), -1)])
def test_positions_of_extrema_in_no_rows(shape, axis):
    x = np.zeros(shape, np.float32)
    for position in ("argmax", "argmin", "nanargmax"):
        want = getattr(np, position.removeprefix("nan"))(x, axis=axis)
        found = getattr(OURS.numpy, position)(x, axis=axis)
        assert found.shape == want.shape
        assert found.dtype == np.int32
