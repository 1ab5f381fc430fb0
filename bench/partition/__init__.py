"""Programs on global arrays: what each device sends and holds, mpijax's ranks beside JAX's devices.

    python -m bench.partition                     all programs: the table, and build/partition/results.json
    python -m bench.partition --filter stencil    those with that word in their names
    python -m bench.partition --ranks 2           on another number of ranks and devices
    python -m bench.partition --memory            memory of a rank where the problem grows with the ranks; runs nothing
    python -m bench.partition --compile           time to compile for a rank, beside that for one rank; runs nothing

A program is a function of arrays, as a user writes it, with the shardings of its arguments (`programs/`). JAX runs it
on as many devices of one process, mpijax on as many ranks. Both are compared with JAX on one device. JAX's rows are
kept until a program changes, so that a second run measures mpijax only.

Columns: sent, bytes that a device sends in one run (the most of any device; an iteration of a `while` loop counts
once); held, bytes of arguments, results and temporaries of a device; ms, the time of one call. `x` are mpijax's
divided by JAX's. least: bytes that the algorithm must send where JAX gathers. In the notes: `gathers` says that an
operand is made whole on every device, `whole result` that a result is whole which JAX leaves split.
"""
