"""Private names of ``mpi4jax._src`` that programs for mpi4jax nevertheless import."""
