"""Checks that ranks communicate alike, before one of them blocks forever."""
