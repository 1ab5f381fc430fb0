"""Functions are the same where their texts and all that they refer to are, and have no fingerprint where that is unknown."""

import functools
import math
import sys

import numpy as np
import pytest
from fingerprints import NoFingerprintError, fingerprint
from numpy_oracle import function
from oracle import OURS, THEIRS

scale = 2.0
AS_A_TABLE = [lambda J: lambda x: J.numpy.sin(x), lambda J: lambda x: J.numpy.cos(x), lambda J: lambda x: J.numpy.sin(x)]  # fmt: skip


def scaled(x):
    return helper(x) * scale


def helper(x):
    return x


def adding(n):
    return lambda x, y=1: x + n + y


def countdown(n):
    return countdown(n - 1) if n else math.inf


class Scaled:
    factor = 2

    def __init__(self, by):
        self.by = by

    def of(self, x):
        return Scaled(x * self.by * self.factor)


class Slotted:
    __slots__ = ("by",)


def test_instances_of_classes_of_tests(monkeypatch):
    before = fingerprint(Scaled(1))
    assert before == fingerprint(Scaled(1)) != fingerprint(Scaled(2))
    monkeypatch.setattr(Scaled, "factor", 3)
    assert fingerprint(Scaled(1)) != before
    monkeypatch.setattr(Scaled, "of", lambda self, x: x)
    assert fingerprint(Scaled(1)) != before


def test_lambdas_of_one_line():
    first, second, third = map(fingerprint, AS_A_TABLE)
    assert first == third != second


def test_closures_defaults_and_partial_arguments():
    assert fingerprint(adding(1)) == fingerprint(adding(1)) != fingerprint(adding(1.0))
    assert fingerprint(adding(np.arange(3))) != fingerprint(adding(np.arange(3, dtype=np.int16)))
    assert fingerprint(functools.partial(scaled, 1)) != fingerprint(functools.partial(scaled, 2))
    assert fingerprint(function("n.sin(x)", "x")) != fingerprint(function("n.cos(x)", "x"))


@pytest.mark.parametrize(("name", "value"), [("scale", 3.0), ("helper", lambda x: -x), ("helper", adding(2))])
def test_what_functions_refer_to(name, value, monkeypatch):
    before = fingerprint(scaled)
    monkeypatch.setattr(sys.modules[__name__], name, value)
    assert fingerprint(scaled) != before


def test_values_of_different_types_differ():
    values = [0, 0.0, -0.0, False, None, "0", b"0", (), [], {}, (0,), [0], np.float32(0), np.zeros(1), np.zeros((1, 1)),
              np.dtype("int8"), np.int8, np.sin, np, OURS, THEIRS, countdown]  # fmt: skip
    assert len({fingerprint(x) for x in values}) == len(values)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Slotted(),
        type("Vector", (list,), {})(),
        np.random.default_rng(0),
        sys.modules[__name__],
        np.array([None]),
        lambda: __import__("os").getpid(),
        lambda source: eval(source),
        adding(object()),
        adding(sys),
    ],
    ids=range(10),
)
def test_without_a_fingerprint(value):
    with pytest.raises(NoFingerprintError):
        fingerprint(value)
