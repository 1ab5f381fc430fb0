"""Special functions, with SciPy's names."""

from mpijax.nn.normalize import logsumexp
from mpijax.scipy.special.bessel import bessel_jn, i0, i0e, i1, i1e, sph_harm_y
from mpijax.scipy.special.entropy import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    logit,
    rel_entr,
    xlog1py,
    xlogy,
)
from mpijax.scipy.special.errors import dawsn, erf, erfc, erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri, owens_t, wofz
from mpijax.scipy.special.gamma import (
    bernoulli,
    beta,
    betainc,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    zeta,
)
from mpijax.scipy.special.hypergeometric import hyp1f1, hyp2f1
from mpijax.scipy.special.integrals import exp1, expi, expn, fresnel, sici, spence
from mpijax.scipy.special.legendre import lpmn, lpmn_values
from mpijax.scipy.special.softmaxes import log_softmax, softmax

__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn", "digamma", "entr",
    "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial", "fresnel", "gamma",
    "gammainc", "gammaincc", "gammaln", "gammasgn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div",
    "log_ndtr", "log_softmax", "loggamma", "logit", "logsumexp", "lpmn", "lpmn_values", "multigammaln", "ndtr",
    "ndtri", "owens_t", "poch", "polygamma", "rel_entr", "sici", "softmax", "spence", "sph_harm_y", "wofz",
    "xlog1py", "xlogy", "zeta",
]  # fmt: skip
