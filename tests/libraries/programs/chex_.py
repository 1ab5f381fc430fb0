"""Chex: dataclasses as pytrees, assertions, variants of a test, fake pmap."""

import chex
import jax
import jax.numpy as jnp


@chex.dataclass
class State:
    position: chex.Array
    velocity: chex.Array


@jax.jit
@chex.assert_max_traces(n=2)
def step(state: State) -> State:
    chex.assert_equal_shape([state.position, state.velocity])
    chex.assert_type([state.position], float)
    return state.replace(position=state.position + 0.1 * state.velocity, velocity=state.velocity - 0.1 * state.position)


def run():
    state = State(position=jnp.arange(3.0), velocity=jnp.ones(3))
    for _ in range(10):
        state = step(state)
    chex.assert_tree_all_finite(state)
    chex.assert_trees_all_close(state, jax.tree.map(lambda x: x + 1e-9, state), rtol=1e-5)
    failed = 0
    for check in (
        lambda: chex.assert_shape(state.position, (4,)),
        lambda: chex.assert_rank(state.position, 2),
        lambda: chex.assert_scalar_positive(-1.0),
        lambda: chex.assert_trees_all_equal(state.position, state.velocity),
    ):
        try:
            check()
        except AssertionError:
            failed += 1

    @jax.jit
    @chex.chexify
    @jax.jit
    def checked(x):
        chex.assert_trees_all_close(x, x)
        return 2 * x

    with chex.fake_jit(), chex.fake_pmap():
        doubled = jax.jit(lambda x: 2 * x)(state.position)
    return {"position": state.position, "velocity": state.velocity, "failed": failed, "doubled": doubled}
