"""The cache of compiled programs."""
