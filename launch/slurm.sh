#!/bin/bash
# sbatch launch/slurm.sh program.py [arguments]
#SBATCH --job-name=mpijax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --hint=nomultithread
#SBATCH --time=00:30:00

# module load python your-mpi            # the modules with which you installed mpijax
source "${MPIJAX_VENV:-$SLURM_SUBMIT_DIR/.venv}/bin/activate"

# srun does not inherit --cpus-per-task from sbatch (Slurm >= 22.05).
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
# --mpi: pmi2 for MPICH and its derivatives, pmix for Open MPI. `srun --mpi=list` lists what the cluster supports.
# --kill-on-bad-exit: if one rank fails, Slurm ends the others.
srun --mpi="${MPIJAX_PMI:-pmi2}" --cpu-bind=cores --kill-on-bad-exit=1 python "$@"
