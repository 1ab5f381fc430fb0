"""Run one of the programs: python runner.py NAME. Prints its numbers, versions and times as a line of JSON."""

import importlib.util
import json
import sys
import time
import warnings
from pathlib import Path


def plain(x):
    """Numbers and lists."""
    import numpy as np

    array = np.asarray(x)
    if array.dtype.kind not in "biufc":
        array = array.astype(np.float64)
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    return array.astype(np.float64).tolist()


def main(name):
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "programs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    imported = time.perf_counter()
    before = time.process_time()
    results = {key: plain(value) for key, value in module.run().items()}
    first, processor = time.perf_counter(), time.process_time() - before
    if "--once" not in sys.argv:
        module.run()
    again = time.perf_counter()
    import jax

    if jax.process_index() == 0:
        print(json.dumps({
            "results": results, "jax": jax.__version__, "file": jax.__file__,
            "import": imported - begin, "first": first - imported, "first, processor": processor,
            "again": again - first,
        }))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
