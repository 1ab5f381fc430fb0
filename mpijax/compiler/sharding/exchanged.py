"""Finds totals of arrays of pairs that follow from another total, by the order of two sums.

Backwards, softmax needs sum_j p_ij (w_i . v_j) for each row i, before any gradient of the scores. This is
w_i . (sum_j p_ij v_j): the result of attention is known already, so no round is needed. In general a sum over columns j
of e_ij (w_i . v_j), times values of rows, is w_i . o_i where o_i = sum_j e_ij v_j is a total.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mpijax.compiler.graph.views import order_of
from mpijax.compiler.sharding.pairs import Pairs
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.programs.jaxpr import Eqn, Literal
from mpijax.core.rules.lowering import Library, Meaning, OverRanks, meaning_of
from mpijax.core.sharding.cuts import Cuts
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.reductions import standard as reductions
from mpijax.ops.shapes.reshape import reshape, transpose


@dataclass(frozen=True, eq=False)
class Exchanged:
    """A total over columns as w . o.

    w, o: variables, each with its cuts, and the order in which its axes face those of the total; the contracted axes
    come last. factors: values of rows that multiply the total. axis: the columns among the axes of the factors.
    """

    w: tuple[Any, Cuts, tuple[int, ...]]
    o: tuple[Any, Cuts, tuple[int, ...]]
    factors: list[tuple[Any, Cuts]]
    axis: int
    ndim: int

    @property
    def reads(self) -> list[tuple[Any, Cuts]]:
        return [self.w[:2], self.o[:2], *self.factors]

    def value(self, here: Any, dtype: Any) -> Any:
        """The total, of this rank's rows. here: the values of the round."""
        w, o = (convert_element_type(transpose(here.value(v, c), order), dtype) for v, c, order in (self.w, self.o))
        out = reductions.reduce_sum(binary.mul(w, o), range(self.ndim, typeof(w).ndim))
        for v, cuts in self.factors:
            x = convert_element_type(here.value(v, cuts), dtype)
            shape = typeof(x).shape
            out = binary.mul(out, reshape(x, (*shape[: self.axis], *shape[self.axis + 1 :])) if shape else x)
        return out


def found(pairs: Pairs, total: Eqn) -> Exchanged | None:
    """The same total without a sum over columns; None if no other total gives it."""
    plan = pairs.plans[id(total)]
    [array], [x] = total.outvars, total.invars if len(total.invars) == 1 else [None]
    axis = pairs.column_of(pairs.made[x]) if x in pairs.made else None
    if axis is None or plan.op is not OverRanks.SUM or [int(d) for d in total.params.get("axes", ())] != [axis]:
        return None
    leaves = list(_factors(pairs, x, pairs.made[x]))
    arrays = [v for v, _ in leaves if v in pairs.made]
    rows = [(v, cuts) for v, cuts in leaves if v not in pairs.made]
    if len(arrays) != 2 or any(v.aval.shape and v.aval.shape[axis] != 1 for v, _ in rows):
        return None
    for product, weights in (arrays, arrays[::-1]):
        for other in pairs.totals.values():
            made = _by(pairs, product, weights, other, rows, axis)
            if made is not None and other is not total and made.ndim == array.aval.ndim:
                return made
    return None


def _factors(pairs: Pairs, v: Any, cuts: Cuts) -> Iterator[tuple[Any, Cuts]]:
    """The operands of nested products of arrays of pairs, each with its cuts."""
    eqn = pairs.producers.get(v)
    if v in pairs.made and eqn is not None and meaning_of(eqn.primitive.lower) is Meaning.PRODUCT:
        for u, want in zip(eqn.invars, pairs.plans[id(eqn)].operands, strict=True):
            yield from _factors(pairs, u, tuple(want))
    else:
        yield v, cuts


def _by(pairs: Pairs, product: Any, weights: Any, other: Eqn, rows: Sequence[Any], axis: int) -> Exchanged | None:
    """The total of weights times a product of rows and columns, from another total of these weights and columns."""
    eqn, order = pairs.producers[product], tuple(range(product.aval.ndim))
    turned = order_of(eqn)
    if turned is not None:
        order = turned
        eqn = pairs.producers[eqn.invars[0]]
    if not (isinstance(eqn.primitive.lower, Library) and isinstance(other.primitive.lower, Library)):
        return None
    columns = [v for v in eqn.invars if v in other.invars]
    if len(columns) != 1 or len(set(eqn.invars)) != 2 or len(set(other.invars)) != 2:
        return None
    [v] = columns
    [w], [p] = ([u for u in e.invars if u is not v] for e in (eqn, other))
    divisor = _divided(pairs, p, weights)
    if p is not weights and divisor is None:
        return None
    # Each axis has a name. An axis of `w` that faces an axis of `v` has that axis's name. The others have their own.
    of_v = [("v", d) for d in range(v.aval.ndim)]
    of_w = _names(eqn, v, of_v, [("w", d) for d in range(w.aval.ndim)])
    made = _result(eqn, v, of_v, of_w)
    of_pairs = [made[d] for d in order]
    if p not in pairs.made or of_pairs[axis] not in of_v or _names(other, v, of_v, of_pairs) != of_pairs:
        return None
    of_o, target = _result(other, v, of_v, of_pairs), [n for d, n in enumerate(of_pairs) if d != axis]
    summed = [n for n in of_w if n not in target]
    if sorted(of_o) != sorted(of_w) or set(of_o) != {*target, *summed}:
        return None
    wanted = [*target, *summed]
    k = eqn.invars.index(w)
    return Exchanged(
        (w, tuple(pairs.plans[id(eqn)].operands[k]), tuple(of_w.index(n) for n in wanted)),
        (other.outvars[0], tuple(pairs.plans[id(other)].results[0]), tuple(of_o.index(n) for n in wanted)),
        [*rows, *([] if divisor is None else [divisor])], axis, len(target),
    )  # fmt: skip


def _divided(pairs: Pairs, p: Any, weights: Any) -> tuple[Any, Cuts] | None:
    """What the weights are divided by, to give the array of pairs `p`."""
    eqn = pairs.producers.get(p)
    if eqn is None or meaning_of(eqn.primitive.lower) is not Meaning.QUOTIENT or eqn.invars[0] is not weights:
        return None
    divisor = eqn.invars[1]
    return None if type(divisor) is Literal else (divisor, tuple(pairs.plans[id(eqn)].operands[1]))


def _names(eqn: Eqn, v: Any, of_v: Sequence[Any], of_other: Sequence[Any]) -> list[Any]:
    """The names of the other operand's axes: those that face axes of `v` are named after these."""
    names, k = list(of_other), eqn.invars.index(v)
    contract, batch = eqn.params["dimension_numbers"]
    for mine, others in ((contract[k], contract[1 - k]), (batch[k], batch[1 - k])):
        for d, e in zip(mine, others, strict=True):
            names[int(e)] = of_v[int(d)]
    return names


def _result(eqn: Eqn, v: Any, of_v: Sequence[Any], of_other: Sequence[Any]) -> list[Any]:
    """The names of a product's axes."""
    contract, batch = eqn.params["dimension_numbers"]
    names = [of_v if u is v else of_other for u in eqn.invars]
    free = [[n for d, n in enumerate(names[i]) if d not in (*contract[i], *batch[i])] for i in (0, 1)]
    return [*(names[0][int(d)] for d in batch[0]), *free[0], *free[1]]
