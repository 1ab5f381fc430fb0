"""Defines `VJP`, the result of `vjp`: a function from cotangents of results to cotangents of arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import callable_location, callable_name
from mpijax.core.tracing.refs import Ref, addupdate
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import equality_errors_pytreedef
from mpijax.core.types.typeof import typeof
from mpijax.transforms.linearize import Linearized
from mpijax.transforms.transpose import transposed
from mpijax.transforms.zeros import Zero, as_array, instantiate


def instantiated(cts: Sequence[Any]) -> list[Any]:
    """Tangents or cotangents as arrays."""
    return [as_array(instantiate(ct)) for ct in cts]


@dataclass(frozen=True)
class GradValue:
    """A target of `VJP.with_refs`: return the cotangent of this argument."""


@dataclass(frozen=True)
class DontWant:
    """A target of `VJP.with_refs`: do not compute the cotangent of this argument."""


@dataclass(frozen=True)
class GradRef:
    """Returned in place of a cotangent that was added to a reference."""


@dataclass(frozen=True)
class DidntWant:
    """Returned in place of a cotangent that was not computed."""


@dataclass(frozen=True)
class NotNeeded:
    """Placeholder for an argument that is not a residual of the backward pass."""


def _register(placeholder: type) -> None:
    tree.register_pytree_node(placeholder, lambda _: ((), None), lambda _, __: placeholder())


for _placeholder in (GradRef, DidntWant, NotNeeded):
    _register(_placeholder)


class Pullback:
    """The backward pass of a function, without its residuals."""

    def __init__(self, fun: Callable, linearized: Linearized, in_tree, out_tree, out_avals, refs: tuple[Any, ...]):
        self.__name__ = f"vjp({callable_name(fun)})"
        self._name = callable_name(fun)
        self._location = callable_location(fun)
        self._linearized = linearized.at(())
        self._out_avals = out_avals
        self.in_tree = in_tree
        self.out_tree = out_tree
        self._refs = refs  # the types of references, by which the function is not differentiated; None for the others

    jaxpr = property(lambda self: self._linearized.jaxpr)

    def __call__(self, residuals: Sequence[Any], cotangents: Sequence[Any], targets: Sequence[Any] | None = None):
        """Cotangents of the arguments; `targets` says for each leaf what to do with it (see `VJP.with_refs`)."""
        given = self._checked(cotangents)
        if targets is None:
            for aval in filter(None, self._refs):
                raise ValueError(
                    f"{self._name} took a mutable array reference of type {aval}, which has no cotangent to return. "
                    "Call vjp.with_refs(...)(ct), with DontWant() for the reference."
                )
            return tree.tree_unflatten(self.in_tree, instantiated(transposed(self._linearized.at(residuals), given)))
        others = [t for t, ref in zip(targets, self._refs, strict=True) if ref is None]
        found = transposed(self._linearized.at(residuals), given, [type(t) is not DontWant for t in others])
        delivered = iter([_delivered(ct, target) for ct, target in zip(found, others, strict=True)])
        cts = [next(delivered) if ref is None else _of_ref(t) for t, ref in zip(targets, self._refs, strict=True)]
        return tree.tree_unflatten(self.in_tree, cts)

    def _checked(self, cotangents: Sequence[Any]) -> list[Any]:
        """The leaves of the single cotangent argument."""
        if len(cotangents) != 1:
            raise TypeError(
                f"The function returned by `jax.vjp` applied to {self._name} was called with {len(cotangents)} "
                "arguments, but functions returned by `jax.vjp` must be called with a single argument corresponding "
                f"to the single value returned by {self._name} (even if that returned value is a tuple or other "
                f"container). Call it with one tuple of {len(cotangents)} cotangents."
            )
        leaves, got = tree.tree_flatten(cotangents[0])
        if got != self.out_tree:
            self._refuse_structure(got)
        wanted = [a.to_tangent_aval() for a in self._out_avals]
        for ct, aval, want in zip(leaves, self._out_avals, wanted, strict=True):
            have = typeof(ct)
            # Cotangents of integers are float0; cotangents of the integers' own dtype are accepted too.
            same = want.form == have.form or (want.has_no_tangent and have.form == aval.form)
            if not same or have.vma - want.vma:
                raise ValueError(
                    "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                    f"{have.str_short(False)}, but expected {want.str_short(False)} because the corresponding output "
                    f"of the differentiated function had JAX type {aval.str_short(False)}"
                )
        return [Zero(a) if a.has_no_tangent else ct for ct, a in zip(leaves, wanted, strict=True)]

    def _refuse_structure(self, got):
        lines = "\n".join(
            f"  * out{tree.keystr(path)} was a {a} in the original output, but a {b} here, so {why}."
            for path, a, b, why in equality_errors_pytreedef(self.out_tree, got)
        )
        raise ValueError(
            "unexpected tree structure.\n\nThe argument to a VJP function returned by `jax.vjp` must match the pytree "
            f"structure of the differentiated function {self._location}.\n\nBut the tree structures differ:\n{lines}"
        )


def _of_ref(target: Any) -> DidntWant:
    """What is returned for an argument that is a reference."""
    if type(target) is not DontWant:
        raise NotImplementedError(
            f"with_refs: got {target} for an argument that is a mutable array reference. mpijax does not differentiate "
            "by the values of references among the arguments of vjp: pass DontWant(), or differentiate by the value."
        )
    return DidntWant()


def _delivered(ct: Any, target: Any) -> Any:
    """The value to return for a cotangent. Adds the cotangent to the `target` if that is a reference."""
    if type(target) is DontWant:
        return DidntWant()
    if type(target) is not Ref:
        return as_array(instantiate(ct))
    have, want = target.aval, ct.aval if type(ct) is Zero else typeof(ct)
    if have.inner_aval.form != want.form:
        raise ValueError(
            f"with_refs: a cotangent of type {want.str_short(True)} cannot be added to a reference of type {have}. "
            "Make the reference with new_ref(jnp.zeros_like(argument))."
        )
    if type(ct) is not Zero:
        addupdate(target, None, ct)
    return GradRef()


class VJP:
    """The result of `vjp`: maps a cotangent of the result to a tuple of cotangents, one per argument.

    A pytree whose leaves are the residuals, so one jitted function may return it and another may take it.

    Attributes:
      args_res: a list with an entry per argument, with tuples in place of containers: the argument's value if it is
        a residual, else `NotNeeded()`.
      opaque_residuals: the other residuals.

    >>> out, f_vjp = mpijax.vjp(lambda x, y: jnp.sin(x) * y, 1.0, 2.0)
    >>> f_vjp.args_res
    [NotNeeded(), Array(2., dtype=float32, weak_type=True)]
    """

    __slots__ = ("fun", "args_res", "opaque_residuals", "_places", "__weakref__")

    def __init__(self, fun: Pullback, places: tuple[tuple[bool, int], ...], args_res: list, opaque_residuals: list):
        self.fun = fun
        self._places = places
        self.args_res = args_res
        self.opaque_residuals = opaque_residuals

    @staticmethod
    def at(fun: Pullback, leaves: Sequence[Any], residuals: Sequence[Any]) -> VJP:
        """The VJP of a function of `leaves` whose backward pass needs `residuals`."""
        position = {id(x): i for i, x in enumerate(leaves)}
        opaque: list[Any] = []
        places = []
        for r in residuals:
            i = position.get(id(r))
            if i is None:
                places.append((False, len(opaque)))
                opaque.append(r)
            else:
                places.append((True, i))
        kept = {i for is_argument, i in places if is_argument}
        shown = iter([as_array(x) if i in kept else NotNeeded() for i, x in enumerate(leaves)])
        return VJP(fun, tuple(places), [_tuples(part, shown) for part in fun.in_tree.children()], opaque)

    in_tree = property(lambda self: self.fun.in_tree)
    out_tree = property(lambda self: self.fun.out_tree)
    jaxpr = property(lambda self: self.fun.jaxpr)
    __name__ = property(lambda self: self.fun.__name__)  # type: ignore[assignment]

    def __call__(self, *out_ct: Any) -> Any:
        return self.fun(self._residuals(), out_ct)

    def with_refs(self, *targets: Any) -> Callable:
        """The same function with a target for each cotangent, in the structure of the arguments.

        targets: for each leaf a reference, to which the cotangent is added (returns `GradRef()`);
          `GradValue()`, to return the cotangent; or `DontWant()`, to skip it (returns `DidntWant()`).

        Raises:
          ValueError: if the structure differs from the arguments'; when called, for a reference of another type.
        """
        leaves, got = tree.tree_flatten(targets)
        if got != self.in_tree:
            raise ValueError(
                f"with_refs: expected one entry for each argument of the differentiated function, {self.in_tree}, got "
                f"{got}. An entry is a reference, GradValue() or DontWant()."
            )
        return functools.partial(self._into, leaves)

    def _into(self, targets: Sequence[Any], *out_ct: Any) -> Any:
        return self.fun(self._residuals(), out_ct, targets)

    def _residuals(self) -> list[Any]:
        arguments = tree.tree_leaves(self.args_res, is_leaf=lambda x: type(x) is NotNeeded)
        return [arguments[i] if is_argument else self.opaque_residuals[i] for is_argument, i in self._places]

    def __repr__(self) -> str:
        return (
            f"VJP(fun={self.__name__}, jaxpr={self.jaxpr}, in_tree={self.in_tree}, out_tree={self.out_tree}, "
            f"args_res={self.args_res}, opaque_residuals={self.opaque_residuals})"
        )


def _tuples(structure: Any, leaves: Iterator[Any]) -> Any:
    """A pytree with tuples in place of its containers."""
    if structure.num_leaves == structure.num_nodes == 1:
        return next(leaves)
    return tuple(_tuples(part, leaves) for part in structure.children())


tree.register_pytree_node(
    VJP,
    lambda vjp: ((vjp.args_res, vjp.opaque_residuals), (vjp.fun, vjp._places)),
    lambda fixed, values: VJP(*fixed, *values),
)
