"""NumPyro: NUTS on a hierarchical regression, variational inference, predictions."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, autoguide

jax.config.update("jax_enable_x64", True)


def model(group, x, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(2))
    with numpyro.plate("groups", 4):
        offset = numpyro.sample("offset", dist.Normal(0, 1))
    slope = numpyro.sample("slope", dist.StudentT(3, 0, 1))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(mu + tau * offset[group] + slope * x, sigma), obs=y)


def run():
    x = jnp.linspace(-1, 1, 40)
    group = jnp.arange(40) % 4
    y = 1.0 + 0.5 * group + 2 * x + 0.3 * jax.random.normal(jax.random.key(0), (40,))
    mcmc = MCMC(NUTS(model), num_warmup=50, num_samples=50, progress_bar=False)
    mcmc.run(jax.random.key(1), group, x, y)
    samples = mcmc.get_samples()
    svi = SVI(model, autoguide.AutoNormal(model), numpyro.optim.Adam(0.02), Trace_ELBO())
    fitted = svi.run(jax.random.key(2), 300, group, x, y, progress_bar=False)
    predicted = Predictive(model, samples)(jax.random.key(3), group, x)["y"]
    logs = [d.log_prob(v) for d, v in ((dist.Gamma(2.0, 3.0), 0.7), (dist.Beta(2.0, 3.0), 0.4),
                                       (dist.Poisson(3.0), 2), (dist.Dirichlet(jnp.ones(3)), jnp.array([0.2, 0.3, 0.5])),
                                       (dist.LKJCholesky(2), jnp.eye(2)))]  # fmt: skip
    return {
        "slope": samples["slope"][:5], "sigma": samples["sigma"].mean(), "elbo": fitted.losses[::60],
        "predicted": predicted.mean(0)[:5], "log_prob": jnp.stack(logs),
    }  # fmt: skip
