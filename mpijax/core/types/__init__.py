"""Types of values, and the protocol of arrays."""
