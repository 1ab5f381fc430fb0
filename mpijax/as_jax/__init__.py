"""``import mpijax.as_jax`` makes `jax`, `jaxlib` and `mpi4jax` mean mpijax: libraries made for JAX run unchanged.

    import mpijax.as_jax                      # the first line of a program or notebook
    python -m mpijax.as_jax script.py ...     # or -m module ..., or -c code ...
    mpijax run --as-jax -n 4 script.py ...
    MPIJAX_AS_JAX=1 any-program ...           # for programs that another program starts
    MPIJAX_AS_JAX=tokens any-program ...      # for programs written for mpi4jax before 0.8, with tokens

It applies to this process and to those that it starts, whether or not JAX is installed. `jax.numpy` and
`mpijax.numpy` are then one module. `jax.__version__` is the version of JAX that mpijax follows, and
`mpijax.__version__` is mpijax's own. docs/libraries.md says which libraries were tried.
"""

from __future__ import annotations

import os as _os
import sys as _sys

from mpijax import missing as _missing
from mpijax.aliasing import in_force as in_force
from mpijax.aliasing.finders import ROOTS as _ROOTS
from mpijax.aliasing.finders import VARIABLE as VARIABLE
from mpijax.aliasing.finders import WITH_TOKENS as _WITH_TOKENS
from mpijax.aliasing.finders import Aliases as _Aliases
from mpijax.aliasing.finders import Virtual as _Virtual
from mpijax.core.base.module_names import show_those_of_jax as _show_those_of_jax


def install() -> None:
    """Install the finders, once, and set the variable for child processes."""
    if in_force():
        return
    loaded = [root for root in _ROOTS if root in _sys.modules]
    if loaded:
        where = getattr(_sys.modules[loaded[0]], "__file__", None)
        raise ImportError(
            f"mpijax.as_jax: {loaded[0]} is already imported from {where}. Make `import mpijax.as_jax` the first line "
            "of the program, or start it with `python -m mpijax.as_jax`."
        )
    _sys.meta_path.insert(0, _Aliases())
    _sys.meta_path.insert(_sys.meta_path.index(_missing.finder), _Virtual())
    if _os.environ.get(VARIABLE) != _WITH_TOKENS:
        _os.environ[VARIABLE] = "1"
    _show_those_of_jax()


install()
