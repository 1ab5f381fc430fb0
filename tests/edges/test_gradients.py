"""First derivatives of every function of the tables in float32, bfloat16 and complex64: JAX's.

With --slow; JAX's are kept in `build/`, as its values are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from edges.agreement import Case, expected, types_of, values, widened
from edges.gradient_table import GRADIENTS
from edges.operands import dtype_of, kind
from edges.remembered import key_of
from edges.table import Row
from oracle import OURS, leaves_of

pytestmark = pytest.mark.filterwarnings("ignore")

TOGETHER = 40
SHAPES = {"x": (6,), "y": (6,), "a": (3, 5), "v": (7,), "m": (3, 3), "p": (6,), "q": (6,)}
# Of a number itself, and of the largest: in bfloat16 XLA rounds a formula once, which has three digits in every step here.
TOLERANCE = {"float32": (5e-5, 5e-6), "complex64": (5e-5, 5e-6), "bfloat16": (0.06, 0.03)}


def ordinary(letter: str, dtype: np.dtype) -> np.ndarray:
    """Numbers of both signs, none twice or a whole one, where a function may have no derivative."""
    shape = SHAPES[letter]
    numbers = np.random.default_rng(ord(letter)).permutation(np.linspace(-1.9, 2.7, int(np.prod(shape)))) + 0.013
    if letter in "pq":
        numbers = np.linspace(0.15, 0.8, 6) + (letter == "q")
    if kind(dtype) == "c":
        numbers = numbers + 1j * np.cos(np.arange(numbers.size))
    numbers = numbers.reshape(shape) + (5 * np.eye(3) if letter == "m" else 0)
    return numbers.astype(dtype)


class Gradient(Case):
    """Of the sum of all floats that a row computes, weighted, by each operand."""

    def of(self, library: Any) -> Callable:
        function = super().of(library)

        def weighted(*args):
            leaves = [library.numpy.asarray(leaf) for leaf in leaves_of(function(*args))]
            total = library.numpy.zeros((), np.float32)
            for leaf in leaves:
                if kind(np.dtype(leaf.dtype)) in "fc":
                    weights = np.cos(np.arange(leaf.size)).reshape(leaf.shape).astype(np.float32)
                    total = total + (leaf.real.astype(np.float32) * weights).sum()
                    if kind(np.dtype(leaf.dtype)) == "c":
                        total = total + (leaf.imag * weights[..., ::-1] if leaf.ndim else leaf.imag).sum()
            return total

        return library.grad(weighted, tuple(range(len(self.args))))

    @property
    def key(self) -> str:
        return key_of(f"gradient of {self.row.source}", self.args)


def takes(case: Case) -> bool:
    return types_of(OURS, case)[0] == "value"


def has_floats(row: Row, dtype: str, args: list[np.ndarray]) -> bool:
    """Whether there is anything to differentiate; whether a function should take a dtype is for the table of values."""
    found = types_of(OURS, Case(row, dtype, args))
    return found[0] == "value" and any(kind(dtype_of(name)) in "fc" for _, name, _ in found[1])


def apart(a: np.ndarray, b: np.ndarray, row_rtol: float) -> np.ndarray:
    own, common = (t * max(1, row_rtol / 10) for t in TOLERANCE[str(a.dtype)])
    a, b = widened(a), widened(b)
    with np.errstate(all="ignore"):
        size = np.max(np.abs(a[np.isfinite(a)]), initial=0)
        near = np.abs(a - b) <= np.maximum(own * np.abs(a), common * size) + float(ml_dtypes.finfo("float32").tiny)
    return ~(near | (a == b) | ~np.isfinite(a))  # JAX's NaN are for the tables of each function


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(GRADIENTS), TOGETHER))
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_first_derivatives(dtype, first):
    rows = [row for row in GRADIENTS[first : first + TOGETHER] if row.operands]
    operands = [[ordinary(letter, dtype_of(dtype)) for letter in row.operands] for row in rows]
    cases = [Gradient(row, dtype, args) for row, args in zip(rows, operands) if has_floats(row, dtype, args)]
    known = [(case, leaves) for case, (types, leaves) in zip(cases, expected(cases)) if types[0] == "value" and leaves]
    lines = [f"{case}: {types_of(OURS, case)}" for case, _ in known if not takes(case)]
    known = [(case, leaves) for case, leaves in known if takes(case)]
    for (case, theirs), ours in zip(known, values(OURS, [case for case, _ in known]), strict=True):
        if isinstance(ours, Exception):
            lines.append(f"{case}: {ours!r}")
            continue
        for letter, a, b in zip(case.row.operands, theirs, ours, strict=True):
            bad = apart(a, b, case.row.rtol)
            if bad.any():
                lines.append(f"{case} by {letter}: {b[bad][:4]}, JAX: {a[bad][:4]}")
    assert not lines, "\n".join(lines)
    assert len(known) > len(cases) / 2 or dtype != "float32"
