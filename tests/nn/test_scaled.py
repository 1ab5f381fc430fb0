"""Products of block-scaled matrices."""

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax import nn

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 3, 8)).astype(np.float32), RNG.normal(size=(2, 5, 8)).astype(np.float32)
A_SCALES, B_SCALES = RNG.uniform(0.5, 2, size=(2, 3, 4)), RNG.uniform(0.5, 2, size=(2, 5, 4))


def test_scaled_matmul():
    a, b = jnp.asarray(A, jnp.float8_e4m3fn), jnp.asarray(B, jnp.bfloat16)
    wide = [np.asarray(x, np.float32) * np.repeat(s, 2, -1) for x, s in ((a, A_SCALES), (b, B_SCALES))]
    ours = mpijax.jit(nn.scaled_matmul)(a, b, A_SCALES, B_SCALES)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, np.einsum("bmk,bnk->bmn", *wide), rtol=1e-5, atol=1e-5)
    assert nn.scaled_matmul(a, b, A_SCALES, B_SCALES, jnp.bfloat16).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    "args",
    [
        (A[0], B, A_SCALES, B_SCALES),
        (A[:1], B, A_SCALES, B_SCALES),
        (A, B, A_SCALES[:, :, :2], B_SCALES),
        (A, B, A_SCALES[:, :2], B_SCALES),
        (A, B, np.ones((2, 3, 3)), np.ones((2, 5, 3))),
    ],
)
def test_shapes_that_do_not_fit(args):
    with pytest.raises(ValueError, match="scaled_matmul requires"):
        nn.scaled_matmul(*args)


def test_scaled_dot_general():
    dims = (((2,), (2,)), ((0,), (0,)))
    np.testing.assert_allclose(nn.scaled_dot_general(A, B, dims), A @ B.transpose(0, 2, 1), rtol=1e-5, atol=1e-6)
    config = nn.get_scaled_dot_general_config("mxfp8")
    assert (config.block_size, config.data_type) == (32, jnp.float8_e4m3fn)
    with pytest.raises(NotImplementedError, match="tensor cores"):
        nn.scaled_dot_general(A, B, dims, configs=[config] * 3)
    with pytest.raises(ValueError, match="Unsupported mode"):
        nn.get_scaled_dot_general_config("fp2")
