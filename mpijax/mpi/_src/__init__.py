"""Names of ``mpi4jax._src`` that programs for mpi4jax import although they are private."""
