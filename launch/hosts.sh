#!/bin/bash
# Machines without a scheduler: launch/hosts.sh HOSTFILE RANKS program.py [arguments]
#
# HOSTFILE has one host name on each line. Each host must accept ssh without a password and have the environment at the
# same path. CORES is the number of cores of each rank (default 1).
set -euo pipefail
if [ $# -lt 3 ]; then
    echo "usage: $0 HOSTFILE RANKS program.py [arguments]" >&2
    exit 2
fi
hostfile=$1 ranks=$2
shift 2
[ -r "$hostfile" ] || { echo "cannot read the hosts file $hostfile (one host name on each line)" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
source "${MPIJAX_VENV:-$here/.venv}/bin/activate"

cores=${CORES:-1}
if mpirun --version 2>&1 | grep -q "Open MPI"; then
    exec mpirun --hostfile "$hostfile" --map-by "slot:PE=$cores" --bind-to core -x PATH -n "$ranks" python "$@"
fi
exec mpirun -f "$hostfile" -bind-to "core:$cores" -n "$ranks" python "$@"
