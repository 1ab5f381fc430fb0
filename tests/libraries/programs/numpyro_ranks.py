"""NumPyro: one chain of NUTS for each device of a mesh, by keys that are split over it; and diagnostics of all chains."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS

numpyro.enable_x64()


def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(x @ w, s), obs=y)


def run():
    x = jax.random.normal(jax.random.key(1), (30, 2))
    y = x @ jnp.array([1.0, -2.0]) + 0.3
    mesh = Mesh(np.array(jax.devices()), ("chains",))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 4), NamedSharding(mesh, P("chains")))
    chains = MCMC(
        NUTS(model), num_warmup=50, num_samples=50, num_chains=4, chain_method="vectorized", progress_bar=False
    )
    chains.run(keys, x, y)
    samples = multihost_utils.process_allgather(chains.get_samples(group_by_chain=True), tiled=True)
    found = summary(samples)
    return {"w": samples["w"].mean((0, 1)), "s": samples["s"].mean((0, 1)), "r_hat": found["w"]["r_hat"]}
