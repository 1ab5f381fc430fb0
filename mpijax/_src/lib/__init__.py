"""Where JAX keeps what it takes from its compiler."""
