"""Starts MPI, and shares Python values, keys and barriers between ranks."""
