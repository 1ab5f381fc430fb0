"""What Python runs first in each process that a test starts: conftest.py puts this folder on its path.

Most such processes load NumPy and mpijax, compute little, and end. Collections of garbage while modules load and when
the process ends would take a third of its time.
"""

import atexit
import gc

gc.set_threshold(100_000, 20, 100)
atexit.register(gc.freeze)  # so that nothing is looked through at the end
