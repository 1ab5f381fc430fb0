"""tinygp: the likelihood of a Gaussian process, fitted; predictions; a quasi-separable solver."""

import jax
import jax.numpy as jnp
import tinygp

jax.config.update("jax_enable_x64", True)


def run():
    x = jnp.sort(jax.random.uniform(jax.random.key(0), (40,), maxval=5))
    y = jnp.sin(2 * x) + 0.1 * jax.random.normal(jax.random.key(1), (40,))

    def process(theta):
        kernel = jnp.exp(theta[0]) * tinygp.kernels.Matern52(jnp.exp(theta[1])) + tinygp.kernels.ExpSquared(2.0)
        return tinygp.GaussianProcess(kernel, x, diag=jnp.exp(theta[2]))

    step = jax.jit(jax.value_and_grad(lambda theta: -process(theta).log_probability(y)))
    theta, losses = jnp.array([0.0, 0.0, -2.0]), []
    for _ in range(30):
        value, gradient = step(theta)
        theta = theta - 0.01 * gradient
        losses.append(value)
    log, conditioned = process(theta).condition(y, jnp.linspace(0, 5, 7))
    quasi = tinygp.GaussianProcess(tinygp.kernels.quasisep.Matern32(1.5), x, diag=0.1)
    return {
        "losses": jnp.stack(losses)[::6], "theta": theta, "mean": conditioned.loc, "variance": conditioned.variance,
        "log": log, "quasi": quasi.log_probability(y), "sample": quasi.sample(jax.random.key(2))[:4],
    }  # fmt: skip
