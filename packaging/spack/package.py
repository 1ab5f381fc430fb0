from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMpijax(PythonPackage):
    """JAX's programming model, native to MPI: compiled NumPy-like programs on every rank of a cluster."""

    license("Apache-2.0")

    # No archive is released yet. Use: spack develop py-mpijax@main --path path/to/mpijax
    version("main")

    depends_on("c", type="build")
    depends_on("python@3.11:3.14", type=("build", "link", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-cython@3.1:", type="build")
    depends_on("mpi")

    depends_on("py-numpy@2.1:", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-ml-dtypes@0.6:", type="run")
    depends_on("py-llvmlite@0.46:", type="run")
    depends_on("py-numba@0.63:", type="run")
    depends_on("py-scipy@1.16:", type="run")
    depends_on("py-opt-einsum@3.3:", type="run")
    depends_on("py-cloudpickle@3.1.2:", type="run")

    import_modules = ["mpijax", "mpijax.numpy"]

    def setup_build_environment(self, env):
        env.set("MPICC", self.spec["mpi"].mpicc)
