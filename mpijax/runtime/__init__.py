"""What runs programs: arrays, the executor's program format, devices, and the start of MPI."""
