"""Values of every function at edge values: JAX's, or the exact ones; alike with and without jit, and under vmap.

By default the elementwise functions take one kind of numbers each, which changes from row to row; with --slow all
functions take all kinds. JAX's values are kept in `build/`: the first sweep takes twice as long.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import get_origin

import numpy as np
import pytest
from edges.agreement import Case, apart, batched, eagerly, same_bits, types_of, values, wrong
from edges.operands import DTYPES, WIDE, dtype_of, operands
from edges.table import APPLIED, BINARY, CREATION, ELSEWHERE, UNARY
from oracle import OURS, THEIRS
from quickly import one_in

pytestmark = pytest.mark.filterwarnings("ignore")  # both warn of casts and of what float16 cannot hold

TOGETHER = 40  # rows in a program
ALWAYS = 120  # rows that are compared without --slow
TURN = ["float32", "int32", "float32", "complex64", "float32", "bfloat16", "float32", "uint8"]


def takes(row, dtype: str) -> Case | None:
    case = Case(row, dtype, operands(row.operands, dtype))
    return case if types_of(OURS, case)[0] == "value" else None


def in_turn(number: int) -> Case:
    """The row of a number, at the dtype whose turn it is, if it takes that."""
    dtypes = [TURN[number % len(TURN)], "float32", "int32", "complex64"]
    return next(case for case in (takes(APPLIED[number], dtype) for dtype in dtypes) if case)


QUICK = [number for number, row in enumerate(APPLIED) if not row.heavy]


@pytest.mark.parametrize("first", range(0, ALWAYS, TOGETHER))
@pytest.mark.one_in(3)
def test_values(first):
    lines = wrong([in_turn(number) for number in QUICK[first : first + TOGETHER]])
    assert not lines, "\n".join(lines)


PARTS = range(0, len(APPLIED), TOGETHER)


@pytest.mark.slow
@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("dtype", DTYPES + WIDE)
def test_values_of_all_dtypes(dtype, first):
    """Also whether a function takes a dtype."""
    with ExitStack() as stack:
        for library in (OURS, THEIRS) if dtype in WIDE else ():
            stack.enter_context(library.enable_x64(True))
        rows = APPLIED[first : first + TOGETHER]
        lines = wrong([Case(row, dtype, operands(row.operands, dtype)) for row in rows])
    assert not lines, "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (2, 1, 3)])
def test_shapes(shape, first):
    """Of numbers, empty arrays, and one and three axes."""
    rows = APPLIED[first : first + TOGETHER]
    lines = wrong([Case(row, f"float32{shape}", operands(row.operands, "float32", shape)) for row in rows])
    assert not lines, "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_vmap_has_the_same_bits(dtype):
    """Of elementwise functions, an element at a time: not those of arrays with axes, which `lax.map` goes over."""
    rows = [row for row in UNARY + BINARY if "L.map" not in row.source]
    cases = [case for case in (takes(row, dtype) for row in rows) if case]
    cases = [case for case in cases if _elementwise(case)]
    assert len(cases) > 150
    for start in range(0, len(cases), TOGETHER):
        some = cases[start : start + TOGETHER]
        for case, whole, parts in zip(some, values(OURS, some), batched(some), strict=True):
            assert same_bits(whole, parts), case


def _elementwise(case: Case) -> bool:
    shape = np.broadcast_shapes(*(x.shape for x in case.args))
    return all(leaf[0] == shape for leaf in types_of(OURS, case)[1])


@pytest.mark.parametrize("row", one_in(3, CREATION), ids=lambda row: row.source)
@pytest.mark.one_in(3)
def test_created(row):
    case = Case(row, "nothing", [])
    for a, b in zip(eagerly(THEIRS, case), eagerly(OURS, case), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert not apart(a, b, 4e-6 * row.rtol, row.atol).any()


def test_every_function_has_a_row():
    """Or says where its test is; other names of a function count as the function."""
    named = set(re.findall(r"\w+", " ".join(row.source for row in [*APPLIED, *CREATION])))
    missing = []
    for module, elsewhere in ELSEWHERE.items():
        library = OURS.scipy.special if module == "scipy.special" else getattr(OURS, module)
        public = {name: getattr(library, name) for name in dir(library) if not name.startswith("_")}
        functions = {k: f for k, f in public.items() if callable(f) and not isinstance(f, type) and get_origin(f) is None}
        tested = {id(f) for k, f in functions.items() if k in named}
        left = {k for k, f in functions.items() if id(f) not in tested}
        missing += [f"{module}.{k}" for k in sorted(left - set(elsewhere.split()))]
        missing += [f"{module}.{k} has a row" for k in sorted(set(elsewhere.split()) - left)]
    assert not missing, " ".join(missing)


@pytest.mark.parametrize("jitted", [False, True])
def test_signs_of_imaginary_zeros(jitted):
    """JAX's: a conjugate of real numbers has +0, a reciprocal root the sign that its operand does not have."""
    change = OURS.jit if jitted else lambda f: f
    conjugate = np.asarray(change(OURS.lax.conj)(np.array([1, -2, 0], np.float32)))
    assert not np.signbit(conjugate.imag).any()
    root = np.asarray(change(OURS.lax.rsqrt)(np.array([1 + 0j, 4 - 0j, complex(4, -0.0), 3 + 4j], np.complex64)))
    assert np.signbit(root.imag).tolist() == [True, True, False, True]
    np.testing.assert_allclose(root, [1, 0.5, 0.5, 0.4 - 0.2j], rtol=1e-6)


def test_edges_are_edges():
    x = operands(("x",), "float32")[0]
    assert np.isnan(x).any() and np.isinf(x).sum() == 2 and ((x == 0) & np.signbit(x)).any()
    assert ((x != 0) & (np.abs(x) < np.finfo("f4").tiny)).any() and np.finfo("f4").max in x
    assert {0, -(2**31), 2**31 - 1} <= set(operands(("x",), "int32")[0].tolist())
    assert operands(("x",), "bfloat16")[0].dtype == dtype_of("bfloat16")
