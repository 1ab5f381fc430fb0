"""Compare what functions trace to, on JAX and on mpijax, without running them: cheap, for large tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from oracle import OURS, THEIRS, clean, run

DTYPES = ("bool", "int8", "uint8", "int32", "uint32", "bfloat16", "float16", "float32", "complex64")


def array(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers around 0 in a dtype."""
    values = np.random.default_rng(seed).standard_normal(shape) * 3
    if dtype == "complex64":
        return (values + 1j * values[..., ::-1]).astype(dtype)
    return values.astype(np.float32).astype(OURS.numpy.dtype(getattr(OURS.numpy, dtype)))


def traced(library, make, args) -> tuple:
    """("value", text, weak types of the results) or ("error", class, message)."""

    def call():
        jaxpr = library.make_jaxpr(make(library))(*args)
        return clean(str(jaxpr)), [a.weak_type for a in jaxpr.out_avals]

    return run(call)


def difference(make, *args: Any, errors: tuple[str, ...] = ()) -> str:
    """What differs between the two libraries, empty if nothing does.

    `make(J)` is the function to trace on `args`. Errors must be of the same class, or of one in `errors`.
    """
    theirs, ours = (traced(library, make, args) for library in (THEIRS, OURS))
    if theirs[0] == "error" == ours[0] and (ours[1] == theirs[1] or ours[1] in errors):
        return ""
    return "" if theirs == ours else f"JAX:\n{shown(theirs)}\nmpijax:\n{shown(ours)}"


def shown(outcome: tuple) -> str:
    return (
        "\n".join(map(str, outcome[1:]))
        if outcome[0] == "error"
        else f"{outcome[1][0]}\nweak: {outcome[1][1]}"
    )


def check_all(cases: list[tuple[str, Any, tuple]], errors: tuple[str, ...] = ()) -> None:
    """Assert that all cases `(label, make, args)` trace to the same; the first few differences are shown."""
    found = []
    for label, make, args in cases:
        text = difference(make, *args, errors=errors)
        if text:
            found.append(f"-- {label} {[getattr(x, 'dtype', x) for x in args]}\n{text}")
    assert not found, f"{len(found)} of {len(cases)} cases differ\n" + "\n".join(found[:3])
