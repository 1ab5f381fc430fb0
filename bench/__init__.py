"""The benchmark: the same programs on mpijax, on JAX (mpi4jax between ranks) and, for some, in C.

    python -m bench                   everything, a few minutes: table, results.json, results.md, results.png
    python -m bench 'elementwise*'    the cases whose names match a pattern
    python -m bench --readme          the last results, written into docs/benchmarks.md and README.md
    python -m bench --front           README's rows and picture, from docs/benchmarks.md
    python -m bench --list            what there is

A case is a function of a backend (`bench.backend.Backend`) in `bench/cases/`; it never names its system.
Every measurement is a process of its own, pinned to its cores; systems take turns; medians are compared.
"""
