"""Changes shapes and puts arrays together."""
