"""Where JAX keeps its operations."""
