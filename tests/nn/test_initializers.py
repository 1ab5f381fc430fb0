"""Initializers give JAX's numbers."""

import numpy as np
import pytest
from oracle import OURS, check

SCALING = (
    "glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal "
    "lecun_uniform "
    "xavier_normal xavier_uniform normal uniform truncated_normal"
).split()


@pytest.mark.sweep
@pytest.mark.parametrize("name", SCALING)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (5,)], ids=repr)
@pytest.mark.one_in(3)
def test_values(name, shape):
    check(
        lambda J: lambda seed: getattr(J.nn.initializers, name)()(J.random.key(seed), shape),
        3,
        eager=False,
        rtol=1e-5,
    )


@pytest.mark.parametrize("name", ["glorot_normal", "he_uniform", "normal"])
def test_complex(name):
    check(
        lambda J: lambda seed: getattr(J.nn.initializers, name)(dtype=np.complex64)(J.random.key(seed), (3, 4)),
        3,
        jaxpr=False,
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg", "fan_geo_avg", "bogus"])
@pytest.mark.parametrize("distribution", ["truncated_normal", "normal", "uniform", "bogus"])
@pytest.mark.one_in(2)
def test_variance_scaling(mode, distribution):
    check(
        lambda J: (
            lambda seed: J.nn.initializers.variance_scaling(1.5, mode, distribution, in_axis=(0, 1))(
                J.random.key(seed), (2, 3, 4)
            )
        ),
        3,
        jaxpr=False,
        eager=False,
        rtol=1e-5,
    )


def test_constants():
    for make in (
        lambda J: lambda seed: J.nn.initializers.zeros(J.random.key(seed), (2, 3)),
        lambda J: lambda seed: J.nn.initializers.ones(J.random.key(seed), (2, 3), np.int32),
        lambda J: lambda seed: J.nn.initializers.constant(2.5)(J.random.key(seed), (2, 3)),
    ):
        check(make, 3)


def test_out_sharding_says_how_to_lay_out():
    with pytest.raises(TypeError, match="expected to be PartitionSpec instances or None"):
        OURS.nn.initializers.zeros(OURS.random.key(0), (2,), out_sharding=object())
