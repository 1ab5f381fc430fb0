"""JAXNS: nested sampling of a line through data, its evidence and posterior."""

import jax
import jax.numpy as jnp
from jaxns.core import NestedSampler
from jaxns.model import Model
from jaxns.priors import Prior
from tensorflow_probability.substrates import jax as tfp

tfpd = tfp.distributions


def line(x, observed, deviation):
    intercept = Prior(tfpd.Normal(loc=0.0, scale=1.0), name="intercept").realise()
    slope = Prior(tfpd.Normal(loc=0.0, scale=2.0), name="slope").realise()
    return jnp.sum(tfpd.Normal(loc=intercept + slope * x, scale=deviation).log_prob(observed))


def run():
    model = Model(prior_model=line)
    data = jnp.linspace(0.0, 1.0, 6), jnp.array([0.15, 0.32, 0.83, 1.08, 1.52, 1.77]), jnp.array(0.15)
    model.sanity_check(key=jax.random.PRNGKey(1), args=data)
    sampler = NestedSampler(model=model, collect_phantom_samples=True)
    results = sampler.run(key=jax.random.PRNGKey(6), args=data).to_result().trim()
    posterior = results.resample(200, key=jax.random.PRNGKey(7))
    evidence = results.sample_evidence(64, phantom_conditioning=True, key=jax.random.PRNGKey(4))
    return {
        "evidence": results.log_Z_mean, "uncertainty": results.log_Z_uncert,
        "slope": posterior.integrate_fn_over_posterior(lambda x: x["slope"]),
        "conditioned": jax.tree.leaves(evidence)[0],
    }  # fmt: skip
