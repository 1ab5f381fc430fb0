"""Makes arrays: from values, of one value, ranges, grids, structured matrices."""
