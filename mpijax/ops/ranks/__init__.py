"""Communication between ranks by number, for `mpijax.mpi`."""
