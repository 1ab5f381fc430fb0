"""Stores pytrees of arrays in files: the implementation of `mpijax.checkpoint`.

- `errors`: errors that every rank learns of
- `structure`: a pytree's containers as JSON, and back
- `leaves`: the stored form of a leaf
- `metadata`: the JSON file that describes a checkpoint, written and read with limits
- `chunks`: how an array is cut into files, and which rank writes each one
- `store`: Zarr 3 arrays through tensorstore
- `folders`: folders that are created and removed atomically
- `saving`, `restoring`: the two entry points

A checkpoint is a Zarr 3 group: any Zarr reader can open it.
"""
