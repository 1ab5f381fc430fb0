"""NetKet: the ground state of the transverse-field Ising chain, exactly and by variational Monte Carlo."""

import netket as nk
import numpy as np


def run():
    graph = nk.graph.Chain(8)
    space = nk.hilbert.Spin(0.5, graph.n_nodes)
    hamiltonian = nk.operator.IsingJax(space, graph, h=1.0)
    exact = nk.exact.lanczos_ed(hamiltonian, compute_eigenvectors=False)
    full = nk.vqs.FullSumState(space, nk.models.RBM(alpha=1, param_dtype=float), seed=0)
    driver = nk.driver.VMC_SR(hamiltonian, nk.optimizer.Sgd(0.05), diag_shift=0.01, variational_state=full)
    driver.run(20, out=None, show_progress=False)
    sampler = nk.sampler.MetropolisLocal(space, n_chains=16)
    state = nk.vqs.MCState(sampler, nk.models.RBM(alpha=1, param_dtype=float), n_samples=256, seed=1, sampler_seed=2)
    vmc = nk.driver.VMC(hamiltonian, nk.optimizer.Sgd(0.05), variational_state=state)
    vmc.run(10, out=None, show_progress=False)
    return {
        "exact": exact, "full": full.expect(hamiltonian).mean.real, "sampled": state.expect(hamiltonian).mean.real,
        "magnetization": np.real(full.expect(nk.operator.spin.sigmax(space, 0)).mean),
    }  # fmt: skip
