"""Meshes, partition specs and shardings: how arrays lie over devices."""
