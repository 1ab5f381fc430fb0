"""NetKet: variational Monte Carlo with the Markov chains and samples split over all ranks, and a sum over a split basis."""

import jax
import netket as nk
import numpy as np


def run():
    nk.config.update("netket_sharding", True)
    graph = nk.graph.Chain(8)
    space = nk.hilbert.Spin(0.5, graph.n_nodes)
    hamiltonian = nk.operator.IsingJax(space, graph, h=1.0)
    full = nk.vqs.FullSumState(space, nk.models.RBM(alpha=1, param_dtype=float), seed=0)
    driver = nk.driver.VMC_SR(hamiltonian, nk.optimizer.Sgd(0.05), diag_shift=0.01, variational_state=full)
    driver.run(10, out=None, show_progress=False)
    sampler = nk.sampler.MetropolisLocal(space, n_chains=16)
    state = nk.vqs.MCState(sampler, nk.models.RBM(alpha=1, param_dtype=float), n_samples=256, seed=1, sampler_seed=2)
    assert len(state.samples.sharding.device_set) == jax.device_count()
    vmc = nk.driver.VMC(hamiltonian, nk.optimizer.Sgd(0.05), variational_state=state)
    vmc.run(10, out=None, show_progress=False)
    return {"full": full.expect(hamiltonian).mean.real, "sampled": np.real(state.expect(hamiltonian).mean)}
