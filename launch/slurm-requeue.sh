#!/bin/bash
# sbatch launch/slurm-requeue.sh examples/resume.py run/
# A program that saves what it has and exits with status 3 when a signal says that its time is over: the job is put back
# into the queue, and goes on from its latest checkpoint. So it is after a failure of a node, or preemption.
#SBATCH --job-name=mpijax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --hint=nomultithread
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# SIGUSR2 to the ranks (not to this script) 120 seconds before the time is over; a step and a save must take less.
#SBATCH --signal=USR2@120

# module load python your-mpi            # what MPICC named when mpijax was installed
source "${MPIJAX_VENV:-$SLURM_SUBMIT_DIR/.venv}/bin/activate"

# srun does not inherit --cpus-per-task from sbatch (Slurm >= 22.05).
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
status=0
# Not --kill-on-bad-exit: ranks that exit with 3, one a moment before the other, have not failed.
srun --mpi="${MPIJAX_PMI:-pmi2}" --cpu-bind=cores python "$@" || status=$?
if [ "$status" -eq 3 ]; then
    scontrol requeue "$SLURM_JOB_ID"
    sleep 60 # until Slurm ends this run of the job
fi
exit "$status"
