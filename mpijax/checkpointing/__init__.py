"""Pytrees of arrays in files: what `mpijax.checkpoint` is made of.

- `errors`: errors that every rank learns
- `structure`: a pytree's containers as JSON, and back
- `leaves`: what is kept of a leaf, and how it is stored
- `metadata`: the one JSON file that describes a checkpoint, written and read with limits
- `chunks`: into which files an array is cut, and which rank writes which
- `store`: Zarr 3 arrays through tensorstore
- `folders`: folders that appear and disappear as a whole
- `saving`, `restoring`: the ways in and out

A checkpoint is a Zarr 3 group: any reader of Zarr opens it.
"""
