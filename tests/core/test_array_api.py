"""Methods of arrays and tracers: the NumPy layer installs them at their first use."""

import subprocess
import sys

import pytest
from quickly import one_in

import mpijax as jax
import mpijax.numpy as jnp


@pytest.mark.parametrize("method", one_in(2, ["x.T", "x.mean(axis=0)", "x.at[0].set(1.0)", "x.astype('int32')"]))
@pytest.mark.one_in(2)
def test_a_method_of_a_tracer_needs_no_import_of_the_numpy_layer(method):
    program = f"import numpy, mpijax; mpijax.jit(lambda x: {method})(numpy.ones((2, 2), 'float32'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_attribute_of_a_tracer_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'JitTracer' object has no attribute 'transposed'") as caught:
        jax.jit(lambda x: x.transposed)(jnp.ones(2))
    assert caught.value.name == "transposed"
