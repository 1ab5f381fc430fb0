"""Distrax: densities, samples, divergences, a normalizing flow and a hidden Markov model."""

import distrax
import jax
import jax.numpy as jnp


def run():
    normal = distrax.MultivariateNormalDiag(jnp.array([1.0, -1.0]), jnp.array([0.5, 2.0]))
    mixture = distrax.MixtureSameFamily(
        distrax.Categorical(logits=jnp.array([0.1, 0.4])), distrax.Normal(jnp.array([-1.0, 2.0]), jnp.array([0.5, 1.0]))
    )
    flow = distrax.Transformed(
        distrax.Independent(distrax.Normal(jnp.zeros(2), jnp.ones(2)), 1),
        distrax.Chain([distrax.Block(distrax.Tanh(), 1), distrax.Block(distrax.ScalarAffine(0.3, 0.5), 1)]),
    )
    value, logs = flow.sample_and_log_prob(seed=jax.random.PRNGKey(0), sample_shape=(3,))
    spline = distrax.RationalQuadraticSpline(jnp.linspace(-1, 1, 13), -3.0, 3.0)
    hmm = distrax.HMM(
        init_dist=distrax.Categorical(logits=jnp.zeros(2)),
        trans_dist=distrax.Categorical(probs=jnp.array([[0.9, 0.1], [0.2, 0.8]])),
        obs_dist=distrax.Normal(jnp.array([0.0, 3.0]), jnp.ones(2)),
    )
    observed = jnp.array([0.1, -0.4, 2.7, 3.3, 0.2])
    _, _, posterior, likelihood = hmm.forward_backward(observed)
    return {
        "normal": normal.sample(seed=jax.random.PRNGKey(1), sample_shape=(2,)), "entropy": normal.entropy(),
        "divergence": distrax.Normal(0.0, 1.0).kl_divergence(distrax.Normal(1.0, 2.0)),
        "mixture": jax.vmap(jax.grad(mixture.log_prob))(jnp.linspace(-2, 3, 6)),
        "flow": value, "log_prob": logs, "spline": spline.forward(jnp.linspace(-4, 4, 9)),
        "posterior": posterior, "likelihood": likelihood, "states": hmm.viterbi(observed),
    }  # fmt: skip
