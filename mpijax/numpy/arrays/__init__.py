"""Methods and operators of arrays."""
