"""jax-cosmo: distances, growth, matter power, angular spectra of galaxies and lensing, a Fisher matrix; x64."""

import jax
import jax.numpy as jnp
import jax_cosmo


def run():
    jax.config.update("jax_enable_x64", True)
    planck = jax_cosmo.Planck15()
    scale = jnp.linspace(0.2, 1.0, 9)
    k = jnp.logspace(-3, 0, 24)
    ell = jnp.logspace(1, 3, 6)
    bins = [jax_cosmo.redshift.smail_nz(1.0, 2.0, z, gals_per_arcmin2=10) for z in (0.5, 1.0)]
    probes = [
        jax_cosmo.probes.WeakLensing(bins, sigma_e=0.26),
        jax_cosmo.probes.NumberCounts(bins, jax_cosmo.bias.constant_linear_bias(1.2)),
    ]

    def spectra(p):
        cosmology = jax_cosmo.Cosmology(
            Omega_c=p[0], Omega_b=0.05, h=0.7, n_s=0.96, sigma8=p[1], Omega_k=0.0, w0=p[2], wa=0.0
        )
        return jax_cosmo.angular_cl.angular_cl(cosmology, ell, probes)

    at = jnp.array([0.26, 0.8, -1.0])
    mean, covariance = jax_cosmo.angular_cl.gaussian_cl_covariance_and_mean(
        jax_cosmo.Planck15(), ell, probes, sparse=True
    )
    derivatives = jax.jit(jax.jacfwd(lambda p: spectra(p).reshape(-1)))(at)
    fisher = jnp.einsum("ia,ij,jb->ab", derivatives, jnp.linalg.inv(jax_cosmo.sparse.to_dense(covariance)), derivatives)
    return {
        "distance": jax_cosmo.background.radial_comoving_distance(planck, scale),
        "growth": jax_cosmo.background.growth_factor(planck, scale),
        "linear": jax_cosmo.power.linear_matter_power(planck, k),
        "nonlinear": jax_cosmo.power.nonlinear_matter_power(planck, k, a=0.7),
        "spectra": jax.jit(spectra)(at), "mean": mean, "fisher": fisher,
        "gradient": jax.grad(lambda s: jnp.sum(jax_cosmo.power.linear_matter_power(planck.__class__(
            Omega_c=0.26, Omega_b=0.05, h=0.7, n_s=0.96, sigma8=s, Omega_k=0.0, w0=-1.0, wa=0.0), k)))(0.8),
    }  # fmt: skip
