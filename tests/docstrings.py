"""The examples in the docstrings of public names: which names are public, what their examples see, how they run.

    python tests/docstrings.py mpijax.numpy            run the examples of a module
    python tests/docstrings.py mpijax.numpy add sum    ... of some of its names

An example reaches everything through `mpijax`, `jnp` (mpijax.numpy), `lax` (mpijax.lax) and `np` (NumPy), and starts
with nothing else. Its output is compared as text, in which floats may differ in their last digits.
"""

import argparse
import doctest
import importlib
import io
import math
import re
import sys
import types

import numpy as np

import mpijax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.rules.primitive import Primitive

# A name that several modules have belongs to the first of them here.
MODULES = """
    mpijax.Array mpijax.Array.at mpijax.numpy.ufunc mpijax.numpy.linalg mpijax.numpy.fft mpijax.numpy
    mpijax.lax.linalg mpijax.lax mpijax.nn.initializers mpijax.nn mpijax.random
    mpijax.scipy.cluster.vq mpijax.scipy.fft mpijax.scipy.integrate mpijax.scipy.interpolate mpijax.scipy.linalg
    mpijax.scipy.ndimage mpijax.scipy.optimize mpijax.scipy.signal mpijax.scipy.sparse.linalg
    mpijax.scipy.spatial.transform mpijax.scipy.special
    mpijax.scipy.stats.bernoulli mpijax.scipy.stats.beta mpijax.scipy.stats.betabinom mpijax.scipy.stats.binom
    mpijax.scipy.stats.cauchy mpijax.scipy.stats.chi2 mpijax.scipy.stats.dirichlet mpijax.scipy.stats.expon
    mpijax.scipy.stats.gamma mpijax.scipy.stats.gennorm mpijax.scipy.stats.geom mpijax.scipy.stats.gumbel_l
    mpijax.scipy.stats.gumbel_r mpijax.scipy.stats.laplace mpijax.scipy.stats.logistic mpijax.scipy.stats.multinomial
    mpijax.scipy.stats.multivariate_normal mpijax.scipy.stats.nbinom mpijax.scipy.stats.norm mpijax.scipy.stats.pareto
    mpijax.scipy.stats.poisson mpijax.scipy.stats.t mpijax.scipy.stats.truncnorm mpijax.scipy.stats.uniform
    mpijax.scipy.stats.vonmises mpijax.scipy.stats.wrapcauchy mpijax.scipy.stats
    mpijax.image mpijax.ops mpijax.tree_util mpijax.tree mpijax.flatten_util mpijax.dtypes mpijax.dlpack
    mpijax.mpi mpijax.distributed mpijax.sharding mpijax.stages mpijax.debug mpijax.profiler mpijax.monitoring
    mpijax mpijax.checkpoint mpijax.checkpoint_policies mpijax.ref mpijax.ad_checkpoint mpijax.api_util mpijax.core mpijax.custom_batching mpijax.custom_derivatives
    mpijax.errors
    mpijax.export mpijax.extend.backend mpijax.extend.core mpijax.extend.keys mpijax.extend.linear_util mpijax.extend.lowering
    mpijax.extend.random mpijax.extend.source_info_util
    mpijax.federated mpijax.ffi
    mpijax.simulate mpijax.test_util mpijax.typing
    mpijax.experimental.array_serialization.pytree_serialization
    mpijax.experimental.array_serialization.serialization mpijax.experimental.array_serialization.tensorstore_impl
    mpijax.experimental.buffer_callback mpijax.experimental.checkify mpijax.experimental.colocated_python
    mpijax.experimental.compilation_cache.compilation_cache mpijax.experimental.hijax
    mpijax.experimental.jet mpijax.experimental.key_reuse mpijax.experimental.layout
    mpijax.experimental.mesh_utils mpijax.experimental.multihost_utils mpijax.experimental.ode
    mpijax.experimental.pallas mpijax.experimental.pallas.tpu mpijax.experimental.pallas.triton mpijax.experimental.pjit
    mpijax.experimental.shard_map mpijax.experimental.sparse mpijax.experimental.sparse.bcoo
    mpijax.experimental.sparse.linalg
    mpijax.experimental.random mpijax.experimental.rnn mpijax.experimental.roofline
    mpijax.experimental.serialize_executable
    mpijax.experimental.scheduling_groups mpijax.experimental.xla_metadata
    mpijax.experimental
    mpijax.example_libraries.optimizers mpijax.example_libraries.schedules mpijax.example_libraries.stax
    mpijax.interpreters.ad mpijax.interpreters.batching mpijax.interpreters.mlir mpijax.interpreters.partial_eval
    mpijax.interpreters.xla""".split()


def _methods(names, owner: type) -> dict[str, object]:
    return {name: getattr(owner, name) for name in names if not name.startswith("_")}


def public(module: str) -> dict[str, object]:
    """What a module of the table offers, or what the methods of a class are, and needs an example."""
    if module == "mpijax.Array":
        from mpijax.numpy.arrays.methods import METHODS

        return _methods(METHODS, mpijax.Array)
    if module in ("mpijax.Array.at", "mpijax.numpy.ufunc"):
        from mpijax.numpy.indexing.at import IndexUpdateRef

        owner = jnp.ufunc if module == "mpijax.numpy.ufunc" else IndexUpdateRef
        return {n: v for n, v in _methods(vars(owner), owner).items() if isinstance(v, types.FunctionType)}
    owner = importlib.import_module(module)
    listed = getattr(owner, "__all__", None)
    found = {n: getattr(owner, n) for n in listed or vars(owner) if not n.startswith("_")}
    return {n: v for n, v in found.items() if _is_ours(v) and _shows_something(v)}


def _is_ours(value: object) -> bool:
    homes = (getattr(value, "__module__", None), type(value).__module__)
    return any(isinstance(home, str) and home.split(".")[0] == "mpijax" for home in homes)


def _shows_something(value: object) -> bool:
    """Whether an example of it makes sense: not of modules, primitives, exceptions and names that are left out."""
    if isinstance(value, (types.ModuleType, Primitive)) or hasattr(value, "instead"):
        return False
    if isinstance(value, type) and issubclass(value, BaseException):
        return False
    return callable(value) or hasattr(type(value), "__getitem__")


def owned() -> dict[str, dict[str, object]]:
    """For each module its public names, each object once, at the first module that has it."""
    seen: set[int] = set()
    found: dict[str, dict[str, object]] = {}
    for module in MODULES:
        names = {n: v for n, v in public(module).items() if id(v) not in seen}
        seen.update(map(id, names.values()))
        found[module] = names
    return found


def text_of(value: object) -> str:
    text = getattr(value, "__doc__", None)
    return text if isinstance(text, str) else ""


def without_example(names: dict[str, object]) -> list[str]:
    return sorted(name for name, value in names.items() if ">>> " not in text_of(value))


# ---------------------------------------------------------------- running


_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


class Checker(doctest.OutputChecker):
    """The same text, in which floats may differ by rounding, and spaces that line them up."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        want, got = ("".join(text.split()) for text in (want, got))
        numbers = list(zip(_NUMBER.findall(want), _NUMBER.findall(got), strict=False))
        return _NUMBER.sub("0", want) == _NUMBER.sub("0", got) and all(_close(a, b) for a, b in numbers)


def _close(a: str, b: str) -> bool:
    if any(set(text) & set(".eE") == set() for text in (a, b)):
        return a == b
    return math.isclose(float(a), float(b), rel_tol=1e-5, abs_tol=1e-9)


def run(name: str, value: object) -> str:
    """What the examples in the docstring of `value` print that it does not say; "" if all is as it says."""
    names = {"mpijax": mpijax, "jnp": jnp, "lax": lax, "np": np}
    test = doctest.DocTestParser().get_doctest(text_of(value), names, name, None, 0)
    report = io.StringIO()
    runner = doctest.DocTestRunner(Checker(), verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.write)
    return report.getvalue()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", nargs="?", help="all, if none is given")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    failed = 0
    for module in [given.module] if given.module else MODULES:
        for name, value in public(module).items():
            if not given.names or name in given.names:
                report = run(f"{module}.{name}", value)
                failed += bool(report)
                print(report, end="")
    sys.exit(failed > 0)
