"""Random bits and keys."""
