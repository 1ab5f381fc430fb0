"""Spectral solvers: a trajectory of Burgers' equation, Kuramoto-Sivashinsky in 2D, and a derivative through steps."""

import exponax as ex
import jax
import jax.numpy as jnp


def run():
    burgers = ex.stepper.Burgers(1, 2 * jnp.pi, 64, 0.05, diffusivity=0.05)
    grid = ex.make_grid(1, 2 * jnp.pi, 64)
    start = jnp.sin(grid) + 0.3 * jnp.cos(2 * grid)
    path = jax.jit(ex.rollout(burgers, 20, include_init=True))(start)
    ks = ex.stepper.KuramotoSivashinsky(2, 30.0, 32, 0.1)
    noise = ex.ic.RandomTruncatedFourierSeries(2, cutoff=3)(32, key=jax.random.PRNGKey(0))
    turned = jax.jit(ex.repeat(ks, 10))(noise)
    slope = jax.grad(lambda u: jnp.sum(ex.repeat(burgers, 5)(u) ** 2))(start)
    return {"path": path[-1], "ks": turned, "slope": slope, "spectrum": ex.get_spectrum(turned)}
