"""Special functions, by SciPy's names."""

from mpijax.nn.normalize import log_softmax as log_softmax, logsumexp as logsumexp, softmax as softmax
