"""One row for each public function of numpy, lax, nn and scipy.special that takes arrays: an expression in its operands.

`n` is the NumPy of a library, `L` its lax, `nn` its nn, `S` its scipy.special, `J` the library. The letters of the
operands say what they are: `x` alone is a vector of all edge values, `x` and `y` are broadcast to all pairs of a few of
them, `a` is an array of two axes with edge values among ordinary ones, `v` such a vector. Functions that no row names
are in `ELSEWHERE`, with where they are tested instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Attributes:
    source: the expression.
    operands: its letters.
    rtol: relative to float32's tolerance, how far floats may be apart.
    atol: absolute.
    """

    source: str
    operands: tuple[str, ...]
    rtol: float = 1
    atol: float = 0

    @property
    def heavy(self) -> bool:
        """Whether it takes JAX seconds to compile: series and continued fractions."""
        return bool(re.search(r"\bS\.|gamma|betainc|zeta", self.source))


def _row(line: str) -> Row:
    """A line: the expression, perhaps followed by `@ rtol=... atol=...`."""
    source, _, options = line.partition("  @ ")
    operands = tuple(letter for letter in "xyav" if re.search(rf"\b{letter}\b(?!=)", source))
    return Row(source.strip(), operands, **{k: float(v) for k, v in re.findall(r"(\w+)=(\S+)", options)})


def _names(module: str, names: str, arguments: str) -> list[str]:
    return [f"{module}.{name}({arguments})" for name in names.split()]


def _moderate(source: str) -> str:
    """With operands between 0.1 and 20: elsewhere JAX's series do not end, or end in NaN."""
    for letter in "xy":
        source = source.replace(letter.upper(), f"n.clip(n.nan_to_num(n.abs(n.asarray({letter}, 'float32'))), 0.1, 20)")
    return source


def lines(table: str) -> list[str]:
    return [line.strip() for line in table.strip().splitlines()]


UNARY = [
    *_names("n", """
        abs positive sign arccos arccosh arcsin arcsinh arctan arctanh bitwise_count cbrt cos cosh deg2rad degrees exp
        exp2 expm1 fabs log log10 log1p log2 rad2deg radians reciprocal sin sinc sinh sqrt square tan tanh angle
        conjugate imag real ceil floor frexp modf nan_to_num rint round signbit spacing trunc invert iscomplex isfinite
        isinf isnan isneginf isposinf isreal logical_not negative i0 isscalar iscomplexobj isrealobj absolute around
        bitwise_invert""", "x"),
    *_names("L", """
        abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e bitwise_not cbrt ceil clz conj cos cosh digamma erf
        erf_inv erfc exp exp2 expm1 floor imag is_finite lgamma log log1p logistic neg population_count real reciprocal
        rsqrt sign sin sinh sqrt square tan tanh stop_gradient optimization_barrier""", "x"),
    *_names("nn", """
        celu elu hard_sigmoid hard_silu hard_tanh identity leaky_relu log_sigmoid mish relu relu6 selu sigmoid silu
        soft_sign softplus sparse_plus sparse_sigmoid squareplus tanh log1mexp""", "x"),
    *_names("S", """
        i0 i0e i1 i1e entr expit logit dawsn erf erfc erfcx erfinv log_ndtr ndtr ndtri wofz digamma factorial gamma
        gammaln gammasgn fresnel sici spence""", "x"),
    *lines("""
        n.round(x, 1)
        n.round(x, -1)
        n.nan_to_num(x, nan=1, posinf=2, neginf=3)
        n.angle(x, deg=True)
        n.array(x) + 1
        1 - n.array(x)
        1.5 * n.array(x)
        n.array(x) ** 2
        n.array(x) ** 3
        n.array(x) ** -1
        n.array(x) ** 0.5
        2 ** n.array(x)
        1 / n.array(x)
        n.array(x) // 2
        7 // n.array(x)
        n.array(x) % 3
        n.array(x) % -3
        divmod(n.array(x), 3)
        n.array(x) << 2
        n.array(x) >> 1
        n.array(x).astype(int)
        n.array(x).astype("int8")
        n.array(x).astype("uint32")
        n.array(x).astype("float32")
        n.astype(x, "float16")
        n.array(x).astype("bfloat16")
        n.array(x).astype("complex64")
        n.array(x).astype(bool)
        n.clip(x, 0, 5)
        n.clip(x, -1.5)
        n.array(x).clip(max=2)
        n.isclose(x, x)
        n.isclose(x, x, equal_nan=True)
        n.heaviside(x, 0.5)
        n.ldexp(x, 2)
        n.float_power(x, 2)
        n.polyval(n.array([1.0, -2.0, 3.0]), x)
        n.copy(x)
        n.asarray(x)
        L.round(x, L.RoundingMethod.TO_NEAREST_EVEN)
        L.round(x, L.RoundingMethod.AWAY_FROM_ZERO)
        L.integer_pow(x, 3)
        L.integer_pow(x, -2)
        L.reduce_precision(x, 5, 7)
        L.convert_element_type(x, "float16")
        L.bitcast_convert_type(x, n.asarray(x).dtype)
        nn.gelu(x)  @ atol=1e-6
        nn.gelu(x, approximate=False)  @ atol=1e-6
        nn.elu(x, 0.5)
        nn.celu(x, 2.0)
        nn.leaky_relu(x, 0.3)
        nn.squareplus(x, 2)
        L.map(S.exp1, n.asarray(x))
        L.map(S.expi, n.asarray(x))
        S.multigammaln(x, 2)
        S.polygamma(1, x)
        S.loggamma(n.where(n.isfinite(x), x, 1))
        S.bessel_jn(x, v=2)
        S.poch(x, 2)
    """),
]  # fmt: skip

BINARY = [
    *_names("n", """
        divide divmod float_power floor_divide fmod power remainder hypot copysign fmax fmin heaviside
        ldexp nextafter allclose array_equal array_equiv equal greater greater_equal isclose less less_equal not_equal
        left_shift right_shift add subtract multiply maximum minimum logaddexp logaddexp2 bitwise_and bitwise_or
        bitwise_xor logical_and logical_or logical_xor mod true_divide bitwise_left_shift bitwise_right_shift""", "x, y"),
    *_names("S", "boxcox kl_div rel_entr xlog1py xlogy", "x, y"),
    *lines("""
        n.where(x, x, y)
        n.arctan2(n.real(x), n.real(y))
        n.gcd(x // 2, y // 2)
        S.boxcox1p(x, n.round(y, 3))
        S.beta(n.clip(n.asarray(x, 'float32'), -50, 50), n.clip(n.asarray(y, 'float32'), -50, 50))
        S.betaln(n.clip(n.asarray(x, 'float32'), -50, 50), n.clip(n.asarray(y, 'float32'), -50, 50))
        n.lcm(x // 2, y // 2)
        n.clip(x, y, y)
        n.select([x > y, x < y], [x, y], 1)
        n.broadcast_arrays(x, y)
        L.add(*n.broadcast_arrays(x, y))
        L.atan2(*n.broadcast_arrays(n.real(x), n.real(y)))
        L.bitwise_and(*n.broadcast_arrays(x, y))
        L.bitwise_or(*n.broadcast_arrays(x, y))
        L.bitwise_xor(*n.broadcast_arrays(x, y))
        L.complex(*n.broadcast_arrays(x, y))
        L.div(*n.broadcast_arrays(x, y))
        L.eq(*n.broadcast_arrays(x, y))
        L.ge(*n.broadcast_arrays(x, y))
        L.gt(*n.broadcast_arrays(x, y))
        L.le(*n.broadcast_arrays(x, y))
        L.lt(*n.broadcast_arrays(x, y))
        L.ne(*n.broadcast_arrays(x, y))
        L.max(*n.broadcast_arrays(x, y))
        L.min(*n.broadcast_arrays(x, y))
        L.mul(*n.broadcast_arrays(x, y))
        L.mulhi(*n.broadcast_arrays(x, y))
        L.nextafter(*n.broadcast_arrays(x, y))
        L.pow(*n.broadcast_arrays(x, y))
        L.rem(*n.broadcast_arrays(x, y))
        L.shift_left(*n.broadcast_arrays(x, y))
        L.shift_right_arithmetic(*n.broadcast_arrays(x, y))
        L.shift_right_logical(*n.broadcast_arrays(x, y))
        L.sub(*n.broadcast_arrays(x, y))
        L.clamp(*n.broadcast_arrays(x, x, y))
        L.select(*n.broadcast_arrays(x > y, x, y))
    """),
    *map(_moderate, lines("""
        S.gammainc(X, Y)  @ rtol=10
        S.gammaincc(X, Y)  @ rtol=30
        S.comb(X, Y)  @ rtol=30
        S.poch(X, Y)  @ rtol=30
        S.zeta(1 + X, Y)  @ rtol=10
        S.betainc(X, Y, 0.3)  @ rtol=30
        S.hyp1f1(X, Y, 0.5)  @ rtol=30
        S.hyp2f1(X, Y, 2.5, 0.5)  @ rtol=30
        L.igamma(*n.broadcast_arrays(X, Y))  @ rtol=10
        L.igammac(*n.broadcast_arrays(X, Y))  @ rtol=30
        L.igamma_grad_a(*n.broadcast_arrays(X, Y))  @ rtol=100 atol=1e-6
        L.random_gamma_grad(*n.broadcast_arrays(X, Y))  @ rtol=100 atol=1e-6
        L.polygamma(*n.broadcast_arrays(n.round(X), Y))  @ rtol=30
        L.zeta(*n.broadcast_arrays(1 + X, Y))  @ rtol=10
        L.betainc(*n.broadcast_arrays(X, Y, n.float32(0.3)))  @ rtol=30
    """)),
]  # fmt: skip

REDUCTIONS = """
    all any max min prod sum mean std var nanmax nanmin nanmean nanprod nanstd nansum nanvar ptp median nanmedian
    count_nonzero argmax argmin nanargmax nanargmin"""
CUMULATIVE = "cumsum cumprod nancumsum nancumprod sort argsort diff"

# Kernels of convolutions are finite: whether XLA multiplies what it pads with depends on rank and dtype. approx_max_k and
# approx_min_k get no NaN: XLA's sort by < puts it anywhere, and then leaves larger elements out. The logarithm of
# log_softmax is of a float32 near 1: one unit in its last place is 1.2e-7.
SHAPED = [
    *_names("n", f"{REDUCTIONS} {CUMULATIVE}", "a"),
    *_names("n", f"{REDUCTIONS} {CUMULATIVE}", "a, axis=-1"),
    *_names("n", REDUCTIONS, "a, axis=0, keepdims=True"),
    *_names("n", "sum prod max argmin std median", "a, axis=-2"),
    *lines("""
        n.amax(a)
        n.amin(a)
        n.quantile(a, 0.3)
        n.quantile(a, n.array([0.0, 0.5, 1.0]), axis=0)
        n.percentile(a, 30, axis=-1, method='nearest')
        n.nanquantile(a, 0.3, axis=0)
        n.nanpercentile(a, 75)
        n.average(a, axis=0)
        n.sum(a, dtype='float32')
        n.sum(a, axis=())
        n.sum(a, initial=3)
        n.max(a, initial=3)
        n.max(a, axis=0, initial=0, where=a > 0)
        n.prod(a, where=a > 0)
        n.std(a, ddof=1)
        n.var(a, axis=0, correction=1)
        n.cumulative_sum(v, include_initial=True)
        n.cumulative_prod(v)
        n.sort(a, axis=None)
        n.sort(a, descending=True)
        n.argsort(a, descending=True)
        n.argsort(a, axis=None)
        n.partition(v, 2)[2]
        n.take(v, n.argpartition(v, 2)[2])
        n.sort_complex(v)
        n.lexsort((v, v[::-1]))
        n.searchsorted(n.sort(v), v)
        n.searchsorted(n.sort(v), v, side='right')
        n.digitize(v, n.array([-1.0, 0.0, 1.5]))
        n.flip(a)
        n.fliplr(a)
        n.flipud(a)
        n.roll(a, 2)
        n.roll(a, -1, axis=0)
        n.rollaxis(a, 1)
        n.rot90(a)
        n.tile(a, 2)
        n.repeat(a, 2, axis=-1)
        n.ravel(a)
        n.reshape(a, -1)
        n.resize(a, (3, 2))
        n.transpose(a)
        n.permute_dims(a, (1, 0))
        n.matrix_transpose(a)
        n.swapaxes(a, 0, -1)
        n.moveaxis(a, 0, -1)
        n.expand_dims(a, -1)
        n.squeeze(a[..., :1], -1)
        n.atleast_1d(v)
        n.atleast_2d(v)
        n.atleast_3d(a)
        n.broadcast_to(a, (2, *a.shape))
        n.concatenate([a, a])
        n.concatenate([a, a], axis=None)
        n.concat([v, v])
        n.stack([a, a], -1)
        n.unstack(a)
        n.hstack([a, a])
        n.vstack([a, a])
        n.dstack([a, a])
        n.column_stack([v, v])
        n.block([[a, a]])
        n.append(a, a)
        n.split(v, [2, 3])
        n.array_split(v, 2)
        n.hsplit(a, [1, 3])
        n.vsplit(a, 3)
        n.dsplit(a[None], [2])
        n.pad(a, 1)
        n.pad(a, 1, mode='edge')
        n.pad(a, 1, mode='reflect')
        n.pad(a, 2, mode='wrap')
        n.pad(n.clip(a, -9, 9), 1, mode='mean')
        n.pad(n.asarray(a, 'complex64'), 1, mode='mean')
        n.pad(a, 1, mode='linear_ramp', end_values=3)
        n.pad(a, 1, mode='maximum')
        n.tril(a)
        n.triu(a, 1)
        n.diag(v)
        n.diag(a, -1)
        n.diagonal(a)
        n.diagflat(v)
        n.trace(a)
        n.fill_diagonal(a, 7, inplace=False)
        n.vander(v[:4], 3)
        n.dot(a, a.T)
        n.matmul(a, a.T)
        n.matvec(a, v[:5])
        n.vecmat(v[:3], a)
        n.inner(a, a)
        n.outer(v, v)
        n.vdot(v, v)
        n.vecdot(a, a)
        n.kron(a, n.ones((1, 2), a.dtype))
        n.tensordot(a, a, 2)
        n.einsum('ij,ij->i', a, a)
        n.cross(v[:3], v[1:4])
        n.convolve(v, n.arange(3).astype(v.dtype))
        n.correlate(v, n.arange(3).astype(v.dtype), mode='same')
        n.cov(a)
        n.corrcoef(a)
        n.gradient(a, axis=-1)
        n.trapezoid(a)
        n.ediff1d(v)
        n.unwrap(v)
        n.diff(a, n=2)
        n.diff(a, prepend=0)
        n.interp(v, n.array([-1.0, 0.0, 2.0]), n.array([1.0, 3.0, -1.0]))
        n.where(a > 0, a, 0)
        n.take(a, n.array([0, -1, 1]))
        n.take(a, n.array([0, -1]), axis=-1)
        n.take_along_axis(a, n.argsort(a, -1), -1)
        n.put_along_axis(a, n.array([[1], [0], [2]]), 5, -1, inplace=False)
        n.put(a, n.array([1, -1]), 4, inplace=False)
        n.place(a, a > 0, n.array([1, 2], a.dtype), inplace=False)
        n.isin(a, n.array([1, 2, 3]))
        n.histogram(v, bins=4, range=(-3, 3))
        n.histogram_bin_edges(v, bins=4, range=(-3, 3))
        n.histogram2d(v, v[::-1], bins=3, range=[(-3, 3), (-2, 2)])
        n.histogramdd(a[:, :2], bins=2, range=[(-3, 3), (-2, 2)])
        n.bincount(n.abs(v).astype('int32') % 7, length=7)
        n.packbits(a > 0)
        n.unpackbits((a > 0).astype('uint8'), axis=-1)
        n.polyadd(v, v[:2])
        n.polysub(v, v[:2])
        n.polymul(v[:3], n.arange(2).astype(v.dtype))
        n.polydiv(v[:4], n.array([2, 1], v.dtype))
        n.polyder(v[:4])
        n.polyint(v[:4])
        n.poly(n.nan_to_num(v[:3]))
        n.roots(n.array([2, -3, 1, 4], v.dtype), strip_zeros=False)
        n.apply_along_axis(lambda w: w.sum(), -1, a)
        n.apply_over_axes(n.sum, a, (0, 1))
        n.vectorize(lambda w: w * 2)(a)
        n.frompyfunc(lambda p, q: p + q, 2, 1, identity=0)(v, v)
        n.linspace(v, v + 1, 4)
        n.logspace(0, v, 3)
        n.meshgrid(v, v[:2])
        n.ix_(v.astype('int32'), n.arange(2))
        n.unique(v, size=4)
        n.unique_all(v, size=4)[0]
        n.unique_counts(v, size=4)
        n.unique_inverse(v, size=4)[1].shape
        n.unique_values(v, size=4)
        n.nonzero(a, size=3)
        n.argwhere(a, size=3)
        n.flatnonzero(a, size=3)
        n.setdiff1d(v, n.array([1, 0]), size=4)
        n.setxor1d(v, v[:3], size=4)
        n.union1d(v, v, size=5)
        n.intersect1d(v, v[:2], size=3)
        n.choose(n.array([0, 1]), [a[..., :2], a[..., :2]], mode='clip')
        n.compress(n.array([True, False]), a, size=2, axis=-1)
        n.extract(a > 0, a, size=4)
        n.piecewise(a, [a > 0], [1, 2])
        n.insert(a, 1, 3)
        n.delete(a, 1)
        n.cumsum(a, axis=-1, dtype='float32')
        n.ndim(a), n.shape(a), n.size(a)
        n.full_like(a, 2)
        n.zeros_like(a)
        n.ones_like(a)
        n.empty_like(a).shape
        n.tril_indices_from(a)
        n.triu_indices_from(a)
        n.diag_indices_from(a[:3, :3])
        n.add.reduce(a)
        n.add.accumulate(v)
        n.multiply.outer(v, v)
        n.maximum.reduce(a, axis=-1)
        n.add.at(v, n.array([0, 0]), 1, inplace=False)
        n.polyfit(n.arange(7.0), n.arange(7.0) ** 2, 2) @ n.ones(3)  @ rtol=30
        a[..., 0]
        a[..., ::-1]
        a[..., n.array([0, 0])]
        n.array(a).at[..., 0].set(1)
        n.array(a).at[0].add(1)
        n.array(a).at[:, 1].multiply(2)
        n.array(a).at[1].min(0)
        n.array(a).at[1].max(0)
        S.logsumexp(a)
        S.logsumexp(a, axis=0)
        S.softmax(a, axis=-1)
        S.log_softmax(a, axis=0)  @ atol=1.2e-7
        S.bernoulli(6)
        S.expn(1, n.minimum(v, 50))
        S.expn(2, n.minimum(v, 50))
        S.owens_t(n.real(v), n.real(v)[::-1])
        S.sph_harm_y(n.array([1]), n.array([1]), n.ravel(v)[:1], n.ravel(v)[:1], n_max=2)
        nn.glu(a[:, :4])
        nn.softmax(a)
        nn.log_softmax(a, axis=0)  @ atol=1.2e-7
        nn.logsumexp(a)
        nn.logmeanexp(a)
        nn.standardize(a)
        nn.one_hot(n.array([0, 2, 5]), 4, dtype=a.dtype)
        nn.dot_product_attention(*[n.array(a)[:, None, :4][None]] * 3)
        L.argmax(a, 0, 'int32')
        L.argmin(a, 1, 'int32')
        L.cummax(a)
        L.cummin(a, reverse=True)
        L.cumlogsumexp(n.real(a))
        L.cumprod(a, axis=0, reverse=True)
        L.cumsum(a, axis=1)
        L.approx_max_k(n.nan_to_num(v), 2)
        L.approx_min_k(n.nan_to_num(v), 2)
        L.top_k(a, 2)
        L.sort(a)
        L.sort([a, a[..., ::-1]], num_keys=2)
        L.sort_key_val(v, v[::-1])
        L.reduce_max(a, (0,))
        L.reduce_min(a, (0,))
        L.reduce_sum(a, (0,))
        L.reduce_prod(a, (1,))
        L.reduce_and(a, (1,))
        L.reduce_or(a, (1,))
        L.reduce_xor(a, (1,))
        L.reduce(a, n.zeros((), a.dtype), L.add, (0,))
        L.reduce_window(a, n.zeros((), a.dtype), L.add, (1, 2), (1, 1), 'SAME')
        L.associative_scan(lambda p, q: p + q, v)
        L.rev(a, (0,))
        L.pad(a, n.zeros((), a.dtype), [(1, -1, 1)] * 2)
        L.select_n(a > 0, a, -a)
        L.dynamic_slice(a, (1, 1), (1, 2))
        L.dynamic_slice_in_dim(a, 1, 2, axis=1)
        L.dynamic_index_in_dim(a, -1)
        L.dynamic_update_slice(a, a[:1, :1], (1, 1))
        L.dynamic_update_slice_in_dim(a, a[:, :1], 2, 1)
        L.dynamic_update_index_in_dim(a, a[0], 1, 0)
        L.index_in_dim(a, 1)
        L.index_take(v, (n.array([0, 2]),), (0,))
        L.slice(a, (0, 1), (3, 5), (2, 2))
        L.slice_in_dim(a, 1, 4, 2, axis=1)
        L.split(v, (3, 4))
        L.broadcast(v, (2,))
        L.broadcast_in_dim(v, (7, 2), (0,))
        L.broadcast_to_rank(v, 3)
        L.collapse(a, 0)
        L.concatenate([a, a], 1)
        L.expand_dims(v, (0,))
        L.reshape(a, (5, 3))
        L.squeeze(a[:1], (0,))
        L.transpose(a, (1, 0))
        L.tile(v, (2,))
        L.full_like(a, 2)
        L.dot(a, a.T)
        L.dot_general(a, a, (((1,), (1,)), ((), ())))
        L.batch_matmul(a[None], a.T[None])
        L.conv(n.array(a)[None, None], n.arange(4).astype(a.dtype).reshape(1, 1, 2, 2), (1, 1), 'SAME')
        L.conv_transpose(n.array(a)[None, :, :2], n.arange(4).astype(a.dtype).reshape(1, 2, 2), (2,), 'SAME')
        L.conv_general_dilated(n.array(a)[None, None], n.arange(4).astype(a.dtype).reshape(1, 1, 2, 2), (1, 2), 'VALID')
        L.conv_general_dilated_patches(n.array(a)[None, None], (2, 2), (1, 1), 'VALID')
        L.conv_with_general_padding(n.array(a)[None, None], n.arange(4).astype(a.dtype).reshape(1, 1, 2, 2), (1, 1), [(0, 1), (1, 0)], None, None)
        L.fft(n.array(a) + 0j, 'fft', (5,))
        L.ragged_dot(n.array(a), n.arange(20).astype(a.dtype).reshape(2, 5, 2), n.array([1, 2]))
        L.map(lambda w: w + w[0], n.array(a))
        L.scan(lambda c, w: (c + w, c), n.zeros_like(a[0]), n.array(a))
        L.fori_loop(0, 3, lambda i, c: c + c, n.array(a))
        L.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] - c[1][0]), (0, n.array(a)))
        L.cond(n.array(a)[0, 0] > 0, lambda w: w, lambda w: w + w, n.array(a))
        L.switch(1, [lambda w: w, lambda w: w[::-1]], n.array(a))
        L.gather(v, n.array([[1], [3]]), L.GatherDimensionNumbers((), (0,), (0,)), (1,))
        L.scatter(v, n.array([[1]]), v[:1], L.ScatterDimensionNumbers((), (0,), (0,)))
        L.scatter_add(v, n.array([[1], [1]]), v[:2], L.ScatterDimensionNumbers((), (0,), (0,)))
        L.scatter_sub(v, n.array([[1], [1]]), v[:2], L.ScatterDimensionNumbers((), (0,), (0,)))
        L.scatter_mul(v, n.array([[1], [1]]), v[:2], L.ScatterDimensionNumbers((), (0,), (0,)))
        L.scatter_min(v, n.array([[1], [1]]), v[:2], L.ScatterDimensionNumbers((), (0,), (0,)))
        L.scatter_max(v, n.array([[1], [1]]), v[:2], L.ScatterDimensionNumbers((), (0,), (0,)))
        L.scatter_apply(v, n.array([[1]]), lambda w: w * 2, L.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(1,))
    """),
]  # fmt: skip

CREATION = lines("""
    n.arange(5)
    n.arange(1, 7, 2.5)
    n.arange(5, -3, -2, dtype='int8')
    n.array([[1, 2], [3, 4.5]])
    n.bartlett(5)
    n.blackman(5)  @ atol=1e-7
    n.hamming(5)
    n.hanning(5)  @ atol=1e-7
    n.kaiser(5, 2.0)
    n.broadcast_shapes((3, 1), (2,))
    n.diag_indices(3)
    n.empty((2, 3)).shape
    n.eye(3, 4, 1, dtype='int16')
    n.identity(2)
    n.full((2, 2), 3)
    n.ones((2,), 'bool')
    n.zeros((0, 3))
    n.fromfunction(lambda i, j: i + 2 * j, (2, 3), dtype='int32')
    n.geomspace(1, 8, 4)
    n.indices((2, 3))
    n.linspace(0, 1, 7)
    n.linspace(0, 1, 5, endpoint=False, retstep=True)
    n.logspace(-2, 2, 5)
    n.mask_indices(3, n.triu)
    n.ravel_multi_index((n.array([0, 1]), n.array([1, 2])), (2, 3))
    n.unravel_index(n.arange(3), (2, 3))
    n.tri(3, 4, -1, dtype='uint8')
    n.tril_indices(3)
    n.triu_indices(3, 1)
    n.zeros(1, n.result_type('int8', 'float16')), n.zeros(1, n.promote_types('int8', 'uint8'))
    n.can_cast('int8', 'int16'), n.isdtype(n.float32, 'real floating'), n.issubdtype('int8', n.integer), n.iterable(3)
    L.broadcasted_iota('int32', (2, 3), 1)
    L.iota('float32', 4)
    L.full((2,), 3.5)
    L.broadcast_shapes((3, 1), (2,))
    L.conv_shape_tuple((1, 1, 5, 5), (1, 1, 3, 3), (1, 1), [(0, 0), (0, 0)], 1)
    L.padtype_to_pads((5, 5), (3, 3), (1, 1), 'SAME')
    L.reduce_window_shape_tuple((5, 5), (2, 2), (1, 1), [(0, 0), (0, 0)])
""")

UNARY, BINARY, SHAPED, CREATION = ([_row(line) for line in lines] for lines in (UNARY, BINARY, SHAPED, CREATION))
APPLIED: list[Row] = [*UNARY, *BINARY, *SHAPED]

# What JAX has no sensible value of: expressions and operands, as regular expressions, and what it does.
UNLIKE_JAX = [
    (r"cbrt\(x\) of (float|bfloat)", "where denormals are taken for zero, the root of one is that of another number"),
    (r"softmax\(a.* of uint64", "-inf as the least uint64 becomes 2 ** 63, and NaN is the softmax of what is smaller"),
    (r"sph_harm_y.* of float32\(0, 3\)", "no angles are an error, as it takes their shape for that of one degree"),
]

# Functions without values of arrays of their own, and those whose tests are in other files.
ELSEWHERE = {
    "numpy": """
        array_repr array_str ascontiguousarray einsum_path from_dlpack frombuffer fromfile fromiter fromstring
        get_printoptions load minmax printoptions save savez set_printoptions trim_zeros""",
    "lax": """
        after_all all_gather all_gather_start all_to_all all_to_all_start axis_index axis_size broadcast_like composite conv_dimension_numbers
        conv_general_dilated_local conv_general_permutations conv_general_shape_tuple conv_transpose_shape_tuple
        create_token custom_linear_solve custom_root dce_sink pbroadcast pcast platform_dependent pmax pmean pmin
        ppermute ppermute_start precv psend pshuffle psum psum_scatter psum_scatter_start psum_start pswapaxes pvary ragged_all_to_all ragged_dot_general rng_bit_generator rng_uniform scaled_dot
        shape_as_value stage with_sharding_constraint""",
    "nn": "get_scaled_dot_general_config scaled_dot_general scaled_matmul",
    "scipy.special": "erfcinv lpmn lpmn_values",
}
