"""Equinox and Diffrax: a neural differential equation, trained; a stiff one and a stochastic one, solved."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Field(eqx.Module):
    mlp: eqx.nn.MLP

    def __call__(self, t, y, args):
        return self.mlp(y)


def run():
    times = jnp.linspace(0, 2, 20)

    def solve(field, y0):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 2.0, 0.1, y0,
            saveat=diffrax.SaveAt(ts=times), stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        ).ys  # fmt: skip

    truth = solve(lambda t, y, args: jnp.array([y[1], -2 * y[0] - 0.2 * y[1]]), jnp.array([1.0, 0.0]))
    field = Field(eqx.nn.MLP(2, 2, 16, 2, activation=jax.nn.softplus, key=jax.random.key(0)))
    optimizer = optax.adam(1e-2)

    @eqx.filter_jit
    def step(field, state):
        value, grads = eqx.filter_value_and_grad(lambda f: jnp.mean((solve(f, truth[0]) - truth) ** 2))(field)
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(field, updates), state, value

    state, losses = optimizer.init(eqx.filter(field, eqx.is_inexact_array)), []
    for _ in range(10):
        field, state, value = step(field, state)
        losses.append(value)

    def robertson(t, y, k):
        a = -k[0] * y[0] + k[2] * y[1] * y[2]
        c = k[1] * y[1] ** 2
        return jnp.stack([a, -a - c, c])

    stiff = diffrax.diffeqsolve(
        diffrax.ODETerm(robertson), diffrax.Kvaerno5(), 0.0, 10.0, 2e-4, jnp.array([1.0, 0.0, 0.0]),
        args=(0.04, 3e7, 1e4), stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-7),
    )  # fmt: skip
    path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(), key=jax.random.key(7))
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(lambda t, y, args: 0.3, path)
    )
    noisy = diffrax.diffeqsolve(terms, diffrax.Heun(), 0.0, 1.0, 0.05, jnp.array(1.0))
    return {"truth": truth[-1], "losses": jnp.stack(losses), "stiff": stiff.ys[-1], "noisy": noisy.ys}
