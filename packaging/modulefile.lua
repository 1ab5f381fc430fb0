-- Lmod: MODULEPATH/mpijax/0.1.0.lua
help([[mpijax: JAX's programming model, native to MPI. mpijax doctor checks the installation.]])
whatis("Name: mpijax")
whatis("Version: 0.1.0")

local root = "/apps/mpijax/0.1.0" -- the virtual environment, made with the modules below

depends_on("gcc", "openmpi")      -- what was loaded when mpijax was installed
conflict("mpijax")
prepend_path("PATH", pathJoin(root, "bin"))
setenv("VIRTUAL_ENV", root)
setenv("MPIJAX_VENV", root)       -- read by the scripts of launch/
