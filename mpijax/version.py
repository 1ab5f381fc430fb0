"""The version, in one place: packaging reads it from this file, disk-cache keys include it."""

__version__ = "0.1.0"
