"""Veros on its JAX backend: 12 steps of the idealised channel of `acc_basic`; x64."""

import os

os.environ.update(VEROS_BACKEND="jax", VEROS_DISKLESS_MODE="1", VEROS_LOGLEVEL="error")

from veros.setups.acc_basic import ACCBasicSetup


def run():
    model = ACCBasicSetup(override={"runlen": 12 * 43200.0})
    model.setup()
    model.run(show_progress_bar=False)
    v = model.state.variables
    return {
        "temp": v.temp[2:-2, 2:-2, :, v.tau], "psi": v.psi[2:-2, 2:-2, v.tau], "u": v.u[2:-2, 2:-2, :, v.tau],
        "tke": v.tke[2:-2, 2:-2, :, v.tau],
    }  # fmt: skip
