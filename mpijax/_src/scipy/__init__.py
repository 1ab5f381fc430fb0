"""Where JAX keeps its functions for science."""
