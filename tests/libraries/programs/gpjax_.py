"""GPJax: a conjugate Gaussian process, its hyperparameters by gradient descent, and predictions."""

import gpjax as gpx
import jax
import jax.numpy as jnp
import optax

jax.config.update("jax_enable_x64", True)


def run():
    x = jnp.linspace(-3, 3, 40)[:, None]
    y = jnp.sin(2 * x) + 0.2 * jax.random.normal(jax.random.key(0), x.shape)
    data = gpx.Dataset(X=x, y=y)
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=gpx.kernels.RBF())
    posterior = prior * gpx.likelihoods.Gaussian()
    fitted, history = gpx.fit(
        model=posterior, objective=lambda p, d: -gpx.objectives.conjugate_mll(p, d), train_data=data,
        optim=optax.adam(0.05), num_iters=50, key=jax.random.key(1), verbose=False,
    )  # fmt: skip
    latent = fitted.predict(jnp.linspace(-4, 4, 6)[:, None], train_data=data)
    return {"history": history[::10], "mean": latent.mean, "variance": jnp.diag(latent.covariance())}
