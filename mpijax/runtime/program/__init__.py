"""Loads, calls, caches and explains compiled programs."""
