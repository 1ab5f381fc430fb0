-- Lmod: MODULEPATH/mpijax/0.1.0.lua
help([[mpijax: JAX's programming model, native to MPI. mpijax doctor checks the installation.]])
whatis("Name: mpijax")
whatis("Version: 0.1.0")

local root = "/apps/mpijax/0.1.0" -- the virtual environment; you made it with the modules below

depends_on("gcc", "openmpi")      -- the modules that were loaded when you installed mpijax
conflict("mpijax")
prepend_path("PATH", pathJoin(root, "bin"))
setenv("VIRTUAL_ENV", root)
setenv("MPIJAX_VENV", root)       -- read by the scripts of launch/
