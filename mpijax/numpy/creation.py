"""The functions of `mpijax.numpy` that make arrays, gathered from the files that define them by topic."""

# ruff: noqa: F401
from mpijax.numpy.constructors import array, asarray
from mpijax.numpy.conversion import (
    ascontiguousarray,
    astype,
    copy,
    from_dlpack,
    frombuffer,
    fromfile,
    fromiter,
    fromstring,
)
from mpijax.numpy.fills import empty, empty_like, full, full_like, ones, ones_like, zeros, zeros_like
from mpijax.numpy.matrices import (
    diag,
    diag_indices,
    diag_indices_from,
    diagflat,
    diagonal,
    eye,
    identity,
    trace,
    tri,
    tril,
    tril_indices,
    tril_indices_from,
    triu,
    triu_indices,
    triu_indices_from,
)
from mpijax.numpy.ranges import arange, fromfunction, geomspace, indices, linspace, logspace, meshgrid
