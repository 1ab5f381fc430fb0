"""Concrete arrays, the devices they are on, and how they get there."""
