"""e3nn-jax: tensor products, spherical harmonics, rotations; equivariance of a small layer."""

import e3nn_jax as e3nn
import jax
import jax.numpy as jnp


def run():
    vectors = jax.random.normal(jax.random.key(0), (5, 3))
    harmonics = e3nn.spherical_harmonics("0e + 1o + 2e", vectors, normalize=True)
    x = e3nn.normal("4x0e + 2x1o", jax.random.key(1), (5,))
    product = e3nn.tensor_product(x, harmonics)
    angles = (0.3, 0.5, -0.2)
    rotated = product.transform_by_angles(*angles)
    inputs = [v.transform_by_angles(*angles) for v in (x, harmonics)]
    equivariance = jnp.abs(rotated.array - e3nn.tensor_product(*inputs).array).max()
    norm = lambda v: jnp.sum(e3nn.spherical_harmonics("3o", v, normalize=False).array ** 2)
    return {
        "harmonics": harmonics.array, "product": product.array[:, :8], "rotated": rotated.array[:, :8],
        "equivariant": equivariance < 1e-4, "gradient": jax.jit(jax.grad(norm))(vectors),
        "clebsch": e3nn.clebsch_gordan(1, 1, 2), "wigner": e3nn.Irreps("1o + 2e").D_from_angles(*angles),
    }  # fmt: skip
