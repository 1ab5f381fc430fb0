"""Where JAX keeps mutable array references."""
