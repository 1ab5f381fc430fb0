"""Rows for gradients of what the table of values does not have: linear algebra, distributions; see `edges.table`.

`m` is a well-conditioned square matrix, `p` a vector of numbers between 0 and 1, `q` one of numbers above 1.
"""

from __future__ import annotations

import re

from edges.table import APPLIED, Row, lines

_DISTRIBUTIONS = {
    name: ("v, 0.3, 1.7", functions)
    for name, functions in {
        "norm": "logpdf pdf logcdf cdf sf logsf", "cauchy": "logpdf pdf logcdf cdf sf logsf", "logistic":
        "logpdf pdf cdf sf", "laplace": "logpdf pdf cdf", "gumbel_l": "logpdf pdf logcdf cdf sf logsf",
        "gumbel_r": "logpdf pdf logcdf cdf sf logsf",
    }.items()
} | {
    "norm ": ("p, 0.3, 1.7", "ppf isf"), "cauchy ": ("p, 0.3, 1.7", "ppf isf"), "logistic ": ("p", "ppf isf"),
    "beta": ("p, 1.5, 2.5", "logpdf pdf cdf logcdf sf logsf"), "gamma": ("q, 2.5", "logpdf pdf cdf logcdf sf logsf"),
    "chi2": ("q, 3.0", "logpdf pdf cdf logcdf sf logsf"), "expon": ("q", "logpdf pdf cdf logcdf sf logsf"),
    "expon ": ("p", "ppf"), "pareto": ("1 + q, 1.5", "logpdf pdf cdf logcdf sf logsf"), "t": ("v, 3.5", "logpdf pdf"),
    "truncnorm": ("v / 4, -1.5, 2.5", "logpdf pdf logcdf cdf sf logsf"), "uniform": ("p", "logpdf pdf cdf"),
    "gennorm": ("q, 2.5", "logpdf pdf"), "vonmises": ("v, 1.5", "logpdf pdf"), "wrapcauchy": ("q, p", "logpdf pdf"),
    "bernoulli": ("1, p", "logpmf pmf"), "binom": ("2, 5, p", "logpmf pmf"), "geom": ("3, p", "logpmf pmf"),
    "nbinom": ("2, 4, p", "logpmf pmf"), "poisson": ("3, q", "logpmf pmf"), "betabinom": ("2, 5, q, q", "logpmf pmf"),
    "dirichlet": ("p / p.sum(), q[::-1]", "logpdf pdf"), "multinomial": ("n.array([1, 0, 2, 1, 0, 3]), 7, p / p.sum()",
    "logpmf pmf"), "multivariate_normal": ("q[:3], p[:3], m @ m.T", "logpdf pdf"),
}  # fmt: skip

_LINALG = """
    n.linalg.inv(m)
    n.linalg.det(m)
    n.linalg.slogdet(m)
    n.linalg.solve(m, n.outer(p[:3], q[:2]))
    n.linalg.cholesky(m @ m.T)
    n.linalg.qr(m)
    n.linalg.qr(m, mode='r')
    n.linalg.svd(m, compute_uv=False)
    n.linalg.svdvals(m)
    n.linalg.eigvalsh(m + m.T)
    n.linalg.eigh(m + m.T)[0]
    n.linalg.eigvals(m)
    n.linalg.pinv(m[:, :2])
    n.linalg.lstsq(m, p[:3])[0]
    n.linalg.norm(m)
    n.linalg.norm(m, 'nuc')
    n.linalg.norm(m, 2)
    n.linalg.norm(m, 1)
    n.linalg.norm(m, axis=1)
    n.linalg.norm(m, ord=3, axis=0)
    n.linalg.matrix_norm(m)
    n.linalg.vector_norm(m, axis=0, ord=1)
    n.linalg.matrix_power(m, 3)
    n.linalg.matrix_power(m, -2)
    n.linalg.multi_dot([m, m.T, m])
    n.linalg.cond(m)
    n.linalg.cross(m[:, :3], m.T[:, :3])
    n.linalg.outer(p, q)
    n.linalg.trace(m)
    n.linalg.diagonal(m)
    n.linalg.vecdot(m, m.T)
    n.linalg.matmul(m, m)
    n.linalg.matrix_transpose(m)
    n.linalg.tensordot(m, m, 1)
    n.linalg.tensorinv(m.reshape(3, 1, 3, 1), ind=2)
    n.linalg.tensorsolve(m, q[:3])
    J.scipy.linalg.cho_solve(J.scipy.linalg.cho_factor(m @ m.T), p[:3])
    J.scipy.linalg.cholesky(m @ m.T)
    J.scipy.linalg.det(m)
    J.scipy.linalg.eigh(m + m.T, eigvals_only=True)
    J.scipy.linalg.expm(m / 4)
    J.scipy.linalg.inv(m)
    J.scipy.linalg.lu(m)
    J.scipy.linalg.lu_solve(J.scipy.linalg.lu_factor(m), p[:3])
    J.scipy.linalg.qr(m)
    J.scipy.linalg.solve(m, p[:3])
    J.scipy.linalg.solve(m @ m.T, p[:3], assume_a='pos')
    J.scipy.linalg.solve_triangular(m, p[:3], lower=True)
    J.scipy.linalg.block_diag(m, m[:2])
    J.scipy.linalg.toeplitz(p, q)
    J.scipy.linalg.hankel(p, q)
    J.scipy.linalg.rsf2csf(m, m)[0]
    J.scipy.linalg.polar(m)[1]
    L.linalg.cholesky(m @ m.T)
    L.linalg.lu(m)[0]
    L.linalg.triangular_solve(m, p[:3, None], left_side=True, lower=True)
    L.linalg.tridiagonal_solve(p[:3], q[:3], p[:3], m[:, :2])
    L.linalg.symmetric_product(m, m, alpha=2.0, beta=0.5)
    n.fft.fft(p).real
    n.fft.ifft(p).imag
    n.fft.rfft(q).real
    n.fft.irfft(q + 0j)
    n.fft.hfft(q + 0j)
    n.fft.fft2(m).imag
    n.fft.fftshift(q)
    J.scipy.fft.dct(q)
    J.scipy.fft.idct(q)
    J.scipy.fft.dctn(m)
    J.scipy.signal.convolve(p, q)
    J.scipy.signal.fftconvolve(p, q)
    J.scipy.signal.convolve2d(m, m[:2, :2])
    J.scipy.signal.correlate(p, q, mode='same')
    J.scipy.signal.detrend(q)
    J.scipy.ndimage.map_coordinates(m, [p[:3], p[3:]], order=1)
    J.scipy.integrate.trapezoid(p, q.cumsum())
    J.image.resize(m, (5, 4), 'bilinear')
    J.image.resize(m, (2, 2), 'cubic')
    J.ops.segment_sum(p, n.array([0, 1, 1, 0, 2, 2]), 3)
    J.ops.segment_max(p, n.array([0, 1, 1, 0, 2, 2]), 3)
    J.ops.segment_prod(p, n.array([0, 1, 1, 0, 2, 2]), 3)
    nn.relu(m) @ nn.swish(m)
    nn.hard_swish(q)
    nn.log_softmax(m, axis=1)
    nn.standardize(m, axis=0)
    nn.dot_product_attention(*[m[None, :, None, :]] * 3)
    L.igamma(q, q[::-1])
    L.igammac(q, q[::-1])
    L.random_gamma_grad(q, q[::-1])
    S.gammainc(q, p)
    S.betainc(2.0, 3.0, p)
    S.ndtri(p)
    S.erfinv(p)
    S.logit(p)
    S.zeta(1 + q, p)
    S.polygamma(2, q)
    S.expn(2, q)
    S.hyp1f1(1.5, 2.5, p)
    S.hyp2f1(0.5, 1.5, 2.5, p / 2)
    S.beta(p, q)
    S.betaln(p, q)
    S.i0e(q)
    S.i1e(q)
    S.erfcx(q)
    S.log_ndtr(p - q)
    S.owens_t(p, q)
    S.bessel_jn(q, v=2)
    S.sph_harm_y(n.array([2]), n.array([1]), p[:1], q[:1], n_max=2).real
    J.scipy.stats.gaussian_kde(q).evaluate(p)
    J.scipy.stats.sem(q)
"""


def _row(source: str) -> Row:
    operands = tuple(letter for letter in "mpqv" if re.search(rf"\b{letter}\b(?!=)", source))
    return Row(source, operands, rtol=30 if "betabinom" in source else 1)  # of differences of logarithms of gamma


MORE: list[Row] = [_row(line) for line in lines(_LINALG)] + [
    _row(f"J.scipy.stats.{name.strip()}.{function}({arguments})")
    for name, (arguments, functions) in _DISTRIBUTIONS.items() for function in functions.split()
]  # fmt: skip
GRADIENTS: list[Row] = [*APPLIED, *MORE]
