"""Random numbers where they are used."""

from bench.partition.modules import jax, jnp
from bench.partition.program import program, rows, whole


@program("random/noise added", rows(256, 64))
def noise(x):
    return x + jax.random.normal(jax.random.key(0), x.shape)


@program("random/dropout", rows(256, 64), whole(drawn=1000))
def dropout(x, seed):
    return jnp.where(jax.random.bernoulli(jax.random.key(seed), 0.9, x.shape), x / 0.9, 0)


@program("random/keys of examples", rows(256, drawn=1000))
def keys_of_examples(seeds):
    return jax.vmap(lambda s: jax.random.uniform(jax.random.key(s), (8,)))(seeds)


@program("random/permutation", rows(1024, 4), least=lambda n: 1024 * 4 * 4 / n * (n - 1) / n)
def permutation(x):
    return jax.random.permutation(jax.random.key(0), x, axis=0)


@program("random/categorical", rows(256, 64))
def categorical(x):
    return jax.random.categorical(jax.random.key(0), x, axis=-1)
