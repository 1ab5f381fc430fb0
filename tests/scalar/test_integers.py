"""Integer operations at the extremes, against Python's integers and lax's rules for them."""

import numpy as np
import pytest
from scalar.harness import build, call, run

from mpijax.scalar import rule_for

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def pairs(dtype):
    i = np.iinfo(dtype)
    values = {i.min, i.min + 1, i.max, i.max - 1, 0, 1, 2, 3, 7, i.max // 2, i.max // 3, i.min // 2, 100}
    if i.min:
        values |= {-1, -2, -7}
    rng = np.random.default_rng(0)
    v = np.concatenate([np.array(sorted(values), dtype), rng.integers(i.min, i.max, 8, dtype, endpoint=True)])
    return [a.ravel() for a in np.meshgrid(v, v)]


def wrapped(values, dtype):
    bits = np.dtype(dtype).itemsize * 8
    raw = np.array([int(v) & ((1 << bits) - 1) for v in values], np.uint64)
    return raw.astype(f"u{bits // 8}").view(dtype)


def quotient(x, y):
    if y == 0:
        return -1
    q = abs(x) // abs(y)
    return q if (x < 0) == (y < 0) else -q


def remainder(x, y):
    return x if y == 0 else x - quotient(x, y) * y


def shifts(dtype):
    bits = np.dtype(dtype).itemsize * 8
    mask = (1 << bits) - 1

    def inside(y):
        return 0 <= y < bits

    return {
        "shift_left": lambda x, y: x << y if inside(y) else 0,
        "shift_right_logical": lambda x, y: (x & mask) >> y if inside(y) else 0,
        "shift_right_arithmetic": lambda x, y: (
            x >> (y if inside(y) else bits - 1) if x < 0 or inside(y) else 0
        ),
    }


@pytest.mark.sweep
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.one_in(3)
def test_arithmetic(dtype, lanes):
    x, y = pairs(dtype)
    rules = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": quotient,
        "rem": remainder,
        "max": max,
        "min": min,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "mulhi": lambda a, b: (a * b) >> (8 * np.dtype(dtype).itemsize),
    }
    for name, rule in rules.items():
        expected = wrapped([rule(int(a), int(b)) for a, b in zip(x, y)], dtype)
        np.testing.assert_array_equal(run(name, x, y, lanes=lanes), expected, err_msg=name)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.one_in(3)
def test_shifts(dtype):
    x, y = pairs(dtype)
    if dtype.startswith("u"):
        # An unsigned value has no sign bit to repeat, but the arithmetic shift reads one.
        signed = x.view(dtype[1:])
    else:
        signed = x
    for name, rule in shifts(dtype).items():
        source = signed if name == "shift_right_arithmetic" else x
        expected = wrapped([rule(int(a), int(b)) for a, b in zip(source, y)], dtype)
        np.testing.assert_array_equal(run(name, x, y), expected, err_msg=name)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.one_in(3)
def test_unary(dtype):
    x, _ = pairs(dtype)
    bits = np.dtype(dtype).itemsize * 8
    raw = [int(v) & ((1 << bits) - 1) for v in x]
    np.testing.assert_array_equal(run("population_count", x), [v.bit_count() for v in raw])
    np.testing.assert_array_equal(run("clz", x), [bits - v.bit_length() for v in raw])
    np.testing.assert_array_equal(run("not", x), ~x)
    np.testing.assert_array_equal(run("neg", x), wrapped([-int(v) for v in x], dtype))
    np.testing.assert_array_equal(run("abs", x), wrapped([abs(int(v)) for v in x], dtype))
    np.testing.assert_array_equal(run("sign", x), np.sign(x))


def test_int32_quotients_are_exact():
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-(2**31), 2**31, 20_000).astype(np.int32) >> s for s in (0, 7))
    y[y == 0] = 3
    q = np.array([quotient(int(a), int(b)) for a, b in zip(x, y)])
    np.testing.assert_array_equal(run("div", x, y), q)
    multiple = (q * y).astype(np.int32)  # divides evenly: a quotient just below would show
    np.testing.assert_array_equal(run("div", multiple, y), q)


def test_booleans():
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    for name, expected in {
        "and": x & y,
        "or": x | y,
        "xor": x ^ y,
        "add": x | y,
        "mul": x & y,
        "max": x | y,
        "min": x & y,
        "eq": x == y,
        "lt": ~x & y,
    }.items():
        np.testing.assert_array_equal(run(name, x, y), expected, err_msg=name)
    np.testing.assert_array_equal(run("not", x), ~x)


def test_threefry_matches_the_published_vectors():
    """Random123's known answers for threefry2x32 with 20 rounds."""
    for key, counter, expected in [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]:
        words = [np.array([w], np.uint32) for w in (*key, *counter)]
        for which in (0, 1):
            kernel = build(lambda b, *xs, which=which: rule_for("threefry2x32")(b, *xs)[which], ["u4"] * 4, 8)
            assert call(*kernel, 8, words)[0] == expected[which]
