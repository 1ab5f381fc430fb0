"""TORAX: a tokamak's transport equations, from its basic example, over one second of physics in float64."""

import logging

import numpy as np
import torax
from torax.examples.basic_config import CONFIG


def run():
    logging.disable(logging.WARNING)
    config = torax.ToraxConfig.from_dict({**CONFIG, "numerics": {**CONFIG["numerics"], "t_final": 1.0}})
    tree, _ = torax.run_simulation(config, progress_bar=False)
    profiles = tree.children["profiles"]
    return {name: np.asarray(profiles[name])[-1] for name in ("T_i", "T_e", "psi", "n_e")}
