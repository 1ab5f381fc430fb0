"""jnkepler: transit times and radial velocities of three planets that attract each other, and derivatives by their orbits."""

from pathlib import Path

import jax
import jax.numpy as jnp
import jnkepler
import numpy as np
from jnkepler.jaxttv import JaxTTV


def run():
    data = Path(jnkepler.__file__).parent / "data"
    table = np.loadtxt(data / "kep51_ttv.txt")
    observed = [table[table[:, 4] == planet, 1] for planet in (1, 2, 3)]
    errors = [table[table[:, 4] == planet, 2] for planet in (1, 2, 3)]
    model = JaxTTV(155.0, 2950.0, 1.0, observed, [45.155305, 85.31646, 130.17809], errorobs=errors, print_info=False)
    names, *rows = (data / "kep51_dt1.0_start155.00_end2950.00_pdict.csv").read_text().split()
    elements = dict(zip(names.split(","), jnp.asarray([[float(v) for v in row.split(",")] for row in rows]).T, strict=True))
    wanted = {name: elements[name] for name in ("period", "ecosw", "esinw", "cosi", "lnode", "tic")}
    wanted["pmass"] = elements["mass"]

    def residual(elements):
        times, _ = model.get_transit_times_obs(elements)
        return jnp.mean((times - model.tcobs_flatten) ** 2)

    times, _ = model.get_transit_times_obs(wanted)
    value, gradient = jax.value_and_grad(residual)(wanted)
    _, velocities, _ = model.get_transit_times_and_rvs_obs(wanted, np.linspace(200, 2800, 9))
    return {
        "times": times, "value": value, "velocities": velocities,
        "gradient": jnp.stack([gradient[name] for name in ("period", "ecosw", "esinw", "pmass")]),
    }  # fmt: skip
