#!/bin/bash
# PROGRAM=program.py ARGUMENTS="..." bsub < launch/lsf.sh
#BSUB -J mpijax
#BSUB -n 8
#BSUB -R "span[ptile=4]"
#BSUB -R "affinity[core(2)]"
#BSUB -W 00:30
#BSUB -o mpijax.%J.out

# module load python your-mpi            # the modules with which you installed mpijax
source "${MPIJAX_VENV:-$LS_SUBCWD/.venv}/bin/activate"

# LSF gives "host ranks host ranks ...". MPICH and Open MPI each have their own format for a host file.
hosts=$(mktemp)
trap 'rm -f "$hosts"' EXIT
read -r -a words <<< "$LSB_MCPU_HOSTS"
set -- "${words[@]}"
open_mpi=$(mpirun --version 2>&1 | grep -c "Open MPI")
while [ $# -gt 1 ]; do
    if [ "$open_mpi" -gt 0 ]; then echo "$1 slots=$2"; else echo "$1:$2"; fi >> "$hosts"
    shift 2
done
if [ "$open_mpi" -gt 0 ]; then
    bind=(--hostfile "$hosts" --map-by slot:PE=2 --bind-to core)
else
    bind=(-f "$hosts" -bind-to core:2)
fi
# shellcheck disable=SC2086  # the arguments are words
mpirun "${bind[@]}" -n "$LSB_DJOB_NUMPROC" python "${PROGRAM:?set PROGRAM=program.py}" ${ARGUMENTS:-}
