"""Defines meshes, partition specs and shardings: how arrays are split over devices."""
