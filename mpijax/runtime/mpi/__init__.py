"""MPI is started here; Python values, keys and barriers that ranks share."""
