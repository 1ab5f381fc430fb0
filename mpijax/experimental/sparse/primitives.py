"""JAX's primitives on the arrays of sparse arrays, for programs that bind them or set rules for them.

Each is a function of other operations, which are compiled, differentiated and mapped instead. The functions of
`mpijax.experimental.sparse` call these operations directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.rules.lowering import Decompose
from mpijax.core.types.avals import ShapedArray, ShapeDtypeStruct
from mpijax.experimental.sparse import operations as ops
from mpijax.experimental.sparse import products
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.experimental.sparse.bcsr import BCSR, bcsr_dot_general, bcsr_extract, bcsr_fromdense
from mpijax.experimental.sparse.coo import COO, coo_fromdense
from mpijax.experimental.sparse.csr import CSR, csr_fromdense
from mpijax.extend.primitive import Primitive
from mpijax.transforms import derivatives
from mpijax.transforms.api import eval_shape
from mpijax.transforms.transpose import is_undefined_primal
from mpijax.transforms.vmap import vmap
from mpijax.transforms.zeros import Zero


def _composite(name: str, fun: Callable, multiple_results: bool = False) -> Primitive:
    """A primitive whose rules are those of the operations of `fun`, a function of its operands and parameters."""

    def type_rule(*avals: Any, **params: Any) -> Any:
        given = [ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        out = eval_shape(lambda *args: fun(*args, **params), *given)
        types = [ShapedArray(x.shape, x.dtype) for x in (out if multiple_results else [out])]
        return types if multiple_results else types[0]

    def reference(*arrays: Any, **params: Any) -> Any:
        out = fun(*arrays, **params)
        return [np.asarray(x) for x in out] if multiple_results else np.asarray(out)

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        active = [i for i, t in enumerate(tangents) if type(t) is not Zero]

        def of_active(*values: Any) -> Any:
            return fun(*_with(primals, active, values), **params)

        out, moved = derivatives.jvp(of_active, [primals[i] for i in active], [tangents[i] for i in active])
        if not multiple_results:
            return out, moved
        return out, [
            Zero.of_primal(x) if np.issubdtype(x.dtype, np.integer) else t for x, t in zip(out, moved, strict=True)
        ]

    def transpose(ct: Any, *args: Any, **params: Any) -> list[Any]:
        linear = [i for i, x in enumerate(args) if is_undefined_primal(x)]

        # Coordinates are results too. They have no cotangent.
        cts = ct if multiple_results else [ct]
        kept = [i for i, c in enumerate(cts) if type(c) is not Zero]

        def of_linear(*values: Any) -> Any:
            out = fun(*_with(args, linear, values), **params)
            return [(out if multiple_results else [out])[i] for i in kept]

        types = [ShapeDtypeStruct(args[i].aval.shape, args[i].aval.dtype) for i in linear]
        found = derivatives.linear_transpose(of_linear, *types)([cts[i] for i in kept])
        return _with([None] * len(args), linear, found)

    def batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
        out = vmap(lambda *args: fun(*args, **params), tuple(dims), axis_size=axis.size)(*args)
        return (out, [0] * len(out)) if multiple_results else (out, 0)

    return Primitive(
        name, type_rule=type_rule, reference=reference, lower=Decompose(fun), jvp=jvp, transpose=transpose, batch=batch,
        multiple_results=multiple_results,
    )  # fmt: skip


def _with(values: Any, places: Any, new: Any) -> list[Any]:
    out = list(values)
    for i, x in zip(places, new, strict=True):
        out[i] = x
    return out


def _bcoo(*parts: Any) -> BCOO:
    """Of data, indices and a SparseInfo."""
    data, indices, spinfo = parts
    return BCOO((data, indices), **spinfo._asdict())


def _parts(mat: Any) -> list[Any]:
    return list(mat._bufs)


def _functions(kind: type) -> tuple[Callable, Callable]:
    """Of a format of matrices: the dense matrix, and the product with an array."""

    def dense(*parts: Any, **params: Any) -> Any:
        return _matrix(kind, parts, params).todense()

    def product(*operands: Any, transpose: bool = False, **params: Any) -> Any:
        mat = _matrix(kind, operands[:-1], params)
        return (mat.T if transpose else mat) @ operands[-1]

    return dense, product


def _matrix(kind: type, parts: Any, params: dict[str, Any]) -> Any:
    if kind is COO:
        return COO(parts, **params["spinfo"]._asdict())
    return CSR(parts, shape=params["shape"])


def _todense(*parts: Any, tree: Any) -> Any:
    x = tree.unflatten(parts)
    return x.todense() if isinstance(x, JAXSparse) else x


def _dot_general(
    data: Any, indices: Any, rhs: Any, *, dimension_numbers: Any, preferred_element_type: Any, lhs_spinfo: Any
):
    return products.bcoo_dot_general(
        _bcoo(data, indices, lhs_spinfo), rhs, dimension_numbers=dimension_numbers,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def _spdot_general(*parts: Any, lhs_spinfo: Any, rhs_spinfo: Any, dimension_numbers: Any, preferred_element_type: Any):
    lhs, rhs = _bcoo(*parts[:2], lhs_spinfo), _bcoo(*parts[2:], rhs_spinfo)
    out = products.bcoo_dot_general(
        lhs, rhs, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
    )
    return _parts(out)


todense_p = _composite("todense", _todense)
bcoo_todense_p = _composite("bcoo_todense", lambda *parts, spinfo: _bcoo(*parts, spinfo).todense())
bcoo_fromdense_p = _composite(
    "bcoo_fromdense", lambda mat, **params: _parts(ops.bcoo_fromdense(mat, **params)), multiple_results=True
)
bcoo_extract_p = _composite("bcoo_extract", ops.extracted)
bcoo_transpose_p = _composite(
    "bcoo_transpose",
    lambda *parts, permutation, spinfo: _parts(ops.bcoo_transpose(_bcoo(*parts, spinfo), permutation=permutation)),
    multiple_results=True,
)
bcoo_dot_general_p = _composite("bcoo_dot_general", _dot_general)
bcoo_dot_general_sampled_p = _composite("bcoo_dot_general_sampled", products.bcoo_dot_general_sampled)
bcoo_spdot_general_p = _composite("bcoo_spdot_general", _spdot_general, multiple_results=True)
bcoo_sort_indices_p = _composite(
    "bcoo_sort_indices",
    lambda *parts, spinfo: _parts(ops.bcoo_sort_indices(_bcoo(*parts, spinfo))),
    multiple_results=True,
)
bcoo_sum_duplicates_p = _composite(
    "bcoo_sum_duplicates",
    lambda *parts, spinfo, nse: _parts(ops.bcoo_sum_duplicates(_bcoo(*parts, spinfo), nse)),
    multiple_results=True,
)
bcsr_todense_p = _composite("bcsr_todense", lambda *parts, spinfo: BCSR(parts, **spinfo._asdict()).todense())
bcsr_fromdense_p = _composite(
    "bcsr_fromdense", lambda mat, **params: _parts(bcsr_fromdense(mat, **params)), multiple_results=True
)
bcsr_extract_p = _composite("bcsr_extract", bcsr_extract)
bcsr_dot_general_p = _composite(
    "bcsr_dot_general",
    lambda *operands, lhs_spinfo, **params: bcsr_dot_general(
        BCSR(operands[:3], **lhs_spinfo._asdict()), operands[3], **params
    ),
)
_coo_dense, _coo_product = _functions(COO)
_csr_dense, _csr_product = _functions(CSR)
coo_todense_p = _composite("coo_todense", _coo_dense)
coo_matvec_p = _composite("coo_matvec", _coo_product)
coo_matmat_p = _composite("coo_matmat", _coo_product)
coo_fromdense_p = _composite(
    "coo_fromdense", lambda mat, **params: _parts(coo_fromdense(mat, **params)), multiple_results=True
)
csr_todense_p = _composite("csr_todense", _csr_dense)
csr_matvec_p = _composite("csr_matvec", _csr_product)
csr_matmat_p = _composite("csr_matmat", _csr_product)
csr_fromdense_p = _composite(
    "csr_fromdense", lambda mat, **params: _parts(csr_fromdense(mat, **params)), multiple_results=True
)
