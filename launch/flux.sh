#!/bin/bash
# flux batch --nodes=2 --nslots=8 --cores-per-slot=2 --time-limit=30m launch/flux.sh program.py [arguments]

# module load python your-mpi            # the modules with which you installed mpijax
source "${MPIJAX_VENV:-$PWD/.venv}/bin/activate"

# Flux supports PMI-1, as do MPICH and its derivatives. For Open MPI 5 add -o pmi=pmix.
flux run --tasks="${RANKS:-8}" --cores-per-task="${CORES:-2}" -o cpu-affinity=per-task -o exit-timeout=10s \
    python "$@"
