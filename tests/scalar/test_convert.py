"""convert_element_type and bitcasts between every pair of dtypes, against JAX."""

import jax
import ml_dtypes
import numpy as np
import pytest
from quickly import one_in
from scalar.harness import run

VALUES = [0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, 127, 128, -128, -129, 255, 256, 300, -300, 65504, 65520, 65535,
          65536,
          2147483648.0, -2147483649.0, 4294967296.0, 1e10, -1e10, 1e19, -1e19, 3e38, np.inf, -np.inf, np.nan,
          1e-8, 449, 464, 480, 1e-3]  # fmt: skip
TYPES = [
    np.dtype(t)
    for t in (
        "?",
        "i1",
        "i2",
        "i4",
        "i8",
        "u1",
        "u2",
        "u4",
        "u8",
        "f2",
        ml_dtypes.bfloat16,
        "f4",
        "f8",
        "c8",
        "c16",
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
    )
]


def values(dtype):
    if dtype.kind in "iu":
        i = np.iinfo(dtype)
        return np.array([i.min, i.max, 0, 1, 7, i.max // 2, i.max - 1], dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    with np.errstate(all="ignore"):
        return np.array(VALUES).astype(dtype)


@pytest.mark.parametrize("source", one_in(3, TYPES), ids=str)
@pytest.mark.one_in(2)
def test_convert(source):
    x = values(source)
    for target in TYPES:
        if source.kind == "c" and target.kind != "c":
            continue  # JAX warns; test_complex has these
        with jax.enable_x64(True), np.errstate(all="ignore"):
            expected = np.asarray(jax.lax.convert_element_type(x, target))
            for lanes in (1, 8):
                got = run("convert_element_type", x, lanes=lanes, new_dtype=target)
                np.testing.assert_array_equal(
                    got.astype("c16"), expected.astype("c16"), err_msg=f"{source} -> {target}, {lanes} lanes"
                )


@pytest.mark.parametrize(
    "pair",
    [
        ("f4", "i4"),
        ("f4", "u4"),
        ("f8", "i8"),
        ("f2", "u2"),
        ("u1", "i1"),
        ("i4", "u4"),
        (ml_dtypes.bfloat16, "i2"),
        (ml_dtypes.float8_e4m3fn, "u1"),
    ],
    ids=str,
)
def test_bitcast(pair):
    for source, target in (pair, pair[::-1]):
        source, target = np.dtype(source), np.dtype(target)
        raw = np.random.default_rng(0).integers(0, 255, 80, dtype="u1")
        if source.kind != "f" and source.kind != "V" and target.kind not in "fV":
            x = raw.view(source)
        else:
            # NaN payloads need not survive arithmetic-free copies of narrow floats: keep to numbers.
            with np.errstate(all="ignore"):
                numbers = (
                    np.random.default_rng(0).normal(size=40).astype(target if target.kind in "fV" else source)
                )
            x = numbers.view(source)
        np.testing.assert_array_equal(run("bitcast_convert_type", x, new_dtype=target), x.view(target))
