"""A network with named axes: layers, selectors, a derivative."""

import jax
import jax.numpy as jnp
from penzai import pz
from penzai.models import simple_mlp


def run():
    mlp = simple_mlp.MLP.from_config(name="mlp", init_base_rng=jax.random.key(0), feature_sizes=[4, 16, 3])
    x = pz.nx.wrap(jnp.linspace(-1, 1, 20).reshape(5, 4)).tag("batch", "features")
    y = mlp(x)
    params = pz.select(mlp).at_instances_of(pz.Parameter).get_sequence()
    net, variables = pz.unbind_variables(mlp, freeze=True)

    def loss(variables):
        out = pz.bind_variables(
            net, [v.unfreeze_as_copy() if hasattr(v, "unfreeze_as_copy") else v for v in variables]
        )(x)
        return jnp.mean(out.untag("batch", "features").unwrap() ** 2)

    value, slopes = jax.value_and_grad(loss)(variables)
    leaves = jax.tree.leaves(slopes)
    return {
        "y": y.untag("batch", "features").unwrap(),
        "loss": value,
        "n": len(params),
        **{f"slope{i}": g for i, g in enumerate(leaves)},
    }
