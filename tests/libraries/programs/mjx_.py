"""A pendulum of two links and a falling ball: steps of MuJoCo MJX, a batch of them, a derivative."""

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

XML = """
<mujoco><option timestep="0.005" iterations="4" ls_iterations="4"><flag eulerdamp="disable"/></option>
<worldbody><geom type="plane" size="5 5 .1"/>
<body pos="0 0 1"><joint name="a" type="hinge" axis="0 1 0" damping="0.1"/><geom type="capsule" size=".02" fromto="0 0 0 .3 0 0" contype="0" conaffinity="0"/>
<body pos=".3 0 0"><joint name="b" type="hinge" axis="0 1 0" damping="0.1"/><geom type="capsule" size=".02" fromto="0 0 0 .3 0 0" contype="0" conaffinity="0"/></body></body>
<body pos="1 0 .3"><freejoint/><geom type="sphere" size=".1"/></body>
</worldbody><actuator><motor joint="a" gear="1"/></actuator></mujoco>"""


def run():
    model = mjx.put_model(mujoco.MjModel.from_xml_string(XML))
    start = mjx.make_data(model)
    step = jax.jit(mjx.step)
    data = start.replace(ctrl=jnp.array([0.2]))
    for _ in range(60):
        data = step(model, data)
    batch = jax.jit(jax.vmap(lambda u: mjx.step(model, start.replace(ctrl=u[None])).qvel))(jnp.linspace(-1, 1, 3))
    return {"qpos": data.qpos, "qvel": data.qvel, "batch": batch}
