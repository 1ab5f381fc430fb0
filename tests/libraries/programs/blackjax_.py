"""BlackJAX: window adaptation and NUTS, HMC, MALA, and tempered SMC on a correlated normal."""

import blackjax
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
COVARIANCE = jnp.array([[1.0, 0.6], [0.6, 2.0]])


def logdensity(x):
    return jax.scipy.stats.multivariate_normal.logpdf(x, jnp.array([1.0, -1.0]), COVARIANCE)


def chain(algorithm, state, key, n):
    def one(state, key):
        state, _ = algorithm.step(key, state)
        return state, state.position

    return jax.lax.scan(one, state, jax.random.split(key, n))[1]


def run():
    start = jnp.zeros(2)
    warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
    (state, parameters), _ = warmup.run(jax.random.key(0), start, num_steps=100)
    found = {"step_size": parameters["step_size"]}
    found["nuts"] = chain(blackjax.nuts(logdensity, **parameters), state, jax.random.key(1), 50)[-3:]
    for name, algorithm in {
        "hmc": blackjax.hmc(logdensity, 0.3, jnp.ones(2), 8), "mala": blackjax.mala(logdensity, 0.3),
        "rmh": blackjax.normal_random_walk(logdensity, 0.5 * jnp.eye(2)),
    }.items():  # fmt: skip
        found[name] = chain(algorithm, algorithm.init(start), jax.random.key(2), 50)[-3:]
    smc = blackjax.adaptive_tempered_smc(
        lambda x: -0.5 * jnp.sum(x**2) / 9, logdensity, blackjax.hmc.build_kernel(), blackjax.hmc.init,
        {"step_size": jnp.array([0.3]), "inverse_mass_matrix": jnp.ones((1, 2)), "num_integration_steps": jnp.array([4])},
        blackjax.smc.resampling.systematic, 0.5, num_mcmc_steps=2,
    )  # fmt: skip
    particles = 3 * jax.random.normal(jax.random.key(3), (64, 2))
    state = smc.init(particles)
    step, key = jax.jit(smc.step), jax.random.key(4)
    while state.tempering_param < 1:
        key, sub = jax.random.split(key)
        state, _ = step(sub, state)
    found["smc"] = state.particles.mean(0)
    return found
