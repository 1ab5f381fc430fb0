"""Where JAX keeps what its functions of arrays share."""
