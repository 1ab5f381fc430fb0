"""Describes this process and its node: CPUs, memory, BLAS and LAPACK, the executor."""
