#!/bin/bash
# sbatch launch/slurm-requeue.sh examples/resume.py run/
# The program must save a checkpoint and exit with status 3 when it gets SIGUSR2, which says that its time is over. This
# script then puts the job back into the queue, and the program continues from its latest checkpoint. Slurm also requeues
# the job after a node fails, or after preemption.
#SBATCH --job-name=mpijax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --hint=nomultithread
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Send SIGUSR2 to the ranks (not to this script) 120 s before the time is over; a step and a save must take less.
#SBATCH --signal=USR2@120

# module load python your-mpi            # the modules with which you installed mpijax
source "${MPIJAX_VENV:-$SLURM_SUBMIT_DIR/.venv}/bin/activate"

# srun does not inherit --cpus-per-task from sbatch (Slurm >= 22.05).
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
status=0
# No --kill-on-bad-exit: ranks that exit with 3 have not failed, even if one exits a moment before the others.
srun --mpi="${MPIJAX_PMI:-pmi2}" --cpu-bind=cores python "$@" || status=$?
if [ "$status" -eq 3 ]; then
    scontrol requeue "$SLURM_JOB_ID"
    sleep 60 # until Slurm ends this run of the job
fi
exit "$status"
