"""The versions, in one place: packaging reads its own from this file, disk-cache keys include it."""

__version__ = "0.1.0"

# The version of JAX whose interface this is, by which libraries decide what they may use.
__version_info__ = (0, 10, 2)
jax_version = ".".join(map(str, __version_info__))

# The version of mpi4jax whose interface `mpijax.mpi` is.
mpi4jax_version = "0.9.1"
