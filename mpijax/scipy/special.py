"""Special functions, by SciPy's names."""

# ruff: noqa: F401
from mpijax.nn.normalize import log_softmax, logsumexp, softmax
