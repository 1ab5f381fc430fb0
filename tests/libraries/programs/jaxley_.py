"""A branched neuron with Hodgkin-Huxley channels under a current, and the derivative by a conductance."""

import jax
import jax.numpy as jnp
import jaxley as jx
from jaxley.channels import HH

jax.config.update("jax_enable_x64", True)


def run():
    cell = jx.Cell(jx.Branch(jx.Compartment(), ncomp=2), parents=[-1, 0, 0])
    cell.insert(HH())
    cell.branch(0).loc(0.0).stimulate(jx.step_current(i_delay=1.0, i_dur=2.0, i_amp=0.5, delta_t=0.025, t_max=5.0))
    cell.branch(1).loc(1.0).record()
    volts = jx.integrate(cell, delta_t=0.025)
    cell.make_trainable("HH_gNa", verbose=False)
    params = cell.get_parameters()

    def loss(params):
        return jnp.mean(jx.integrate(cell, params=params, delta_t=0.025) ** 2)

    value, slope = jax.value_and_grad(loss)(params)
    return {"volts": volts, "loss": value, "slope": slope[0]["HH_gNa"]}
