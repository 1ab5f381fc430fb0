#!/bin/bash
# qsub -v PROGRAM=program.py,ARGUMENTS="..." launch/pbs.sh
#PBS -N mpijax
#PBS -l select=2:ncpus=8:mpiprocs=4:ompthreads=2
#PBS -l place=scatter:excl
#PBS -l walltime=00:30:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
# module load python your-mpi            # the modules with which you installed mpijax
source "${MPIJAX_VENV:-.venv}/bin/activate"

# PBS writes one line for each rank.
ranks=$(wc -l < "$PBS_NODEFILE")
cores=${NCPUS_PER_RANK:-2}
if mpirun --version 2>&1 | grep -q "Open MPI"; then
    bind=(--hostfile "$PBS_NODEFILE" --map-by "slot:PE=$cores" --bind-to core)
else # MPICH and its derivatives
    bind=(-f "$PBS_NODEFILE" -bind-to "core:$cores")
fi
# shellcheck disable=SC2086  # the arguments are words
mpirun "${bind[@]}" -n "$ranks" python "${PROGRAM:?qsub -v PROGRAM=program.py}" ${ARGUMENTS:-}
