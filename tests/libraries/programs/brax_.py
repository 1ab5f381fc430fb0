"""Brax and MuJoCo MJX: a pendulum on a cart, stepped, batched, differentiated."""

import jax
import jax.numpy as jnp
import mujoco
from brax import envs
from mujoco import mjx

MODEL = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 1">
      <joint type="slide" axis="1 0 0"/><geom type="box" size=".1 .1 .1" contype="0" conaffinity="0"/>
      <body><joint type="hinge" axis="0 1 0" damping=".1"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".04" contype="0" conaffinity="0"/></body>
    </body>
    <body pos=".5 0 .4"><freejoint/><geom type="sphere" size=".1"/></body>
  </worldbody>
</mujoco>"""


def run():
    model = mujoco.MjModel.from_xml_string(MODEL)
    device_model = mjx.put_model(model)
    data = mjx.make_data(device_model)

    @jax.jit
    def roll(velocity):
        start = data.replace(qvel=data.qvel.at[1].set(velocity))
        return jax.lax.scan(lambda d, _: ((d := mjx.step(device_model, d)), d.qpos), start, length=20)[1]

    path = roll(2.0)
    batch = jax.vmap(roll)(jnp.array([0.5, 1.0]))[:, -1]
    env = envs.get_environment("fast")
    state = jax.jit(env.reset)(jax.random.PRNGKey(0))
    for _ in range(3):
        state = jax.jit(env.step)(state, jnp.zeros(env.action_size))
    pendulum = envs.get_environment("inverted_pendulum", backend="generalized")
    first = jax.jit(pendulum.reset)(jax.random.PRNGKey(1))
    moved = jax.jit(pendulum.step)(first, 0.1 * jnp.ones(pendulum.action_size))
    return {"path": path[-1], "batch": batch, "reward": state.reward, "observed": moved.obs}
