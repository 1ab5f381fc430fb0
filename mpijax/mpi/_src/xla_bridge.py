"""What mpi4jax was built with: arrays are in main memory here, so there is nothing for devices."""

HAS_CUDA_EXT = HAS_XPU_EXT = False
