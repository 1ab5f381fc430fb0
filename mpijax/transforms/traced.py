"""The first stage of ahead-of-time compilation: traced functions. Also the argument information of all stages."""

from __future__ import annotations

from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.programs.jaxpr import ClosedJaxpr, jaxpr_as_fun
from mpijax.core.sharding.context import of_sharding
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.transforms import ref_state
from mpijax.transforms.high_stages import lower_traced


@dataclass(frozen=True)
class ArgInfo:
    """Type of an argument, and whether it is donated.

    >>> mpijax.jit(jnp.sin).lower(jnp.ones(3)).args_info[0][0].shape
    (3,)
    """

    _aval: Any
    donated: bool

    shape = property(lambda self: self._aval.shape)
    dtype = property(lambda self: self._aval.dtype)


class Stage:
    """A function at one stage of compilation, for one signature."""

    __slots__ = ()

    in_tree: tree.PyTreeDef
    args_info: Any

    @property
    def in_avals(self) -> Any:
        """Types of the arguments, as a tree ``(args, kwargs)``."""
        return tree.tree_map(lambda info: info._aval, self.args_info)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Flat positions of the donated arguments."""
        return tuple(i for i, info in enumerate(tree.tree_leaves(self.args_info)) if info.donated)


class TracedProgram(Stage):
    """A function traced for one signature: its Jaxpr and the structure around it.

    Attributes:
      jaxpr: the program. fun_name: the function's name.
      in_tree, out_tree: structure of ``(args, kwargs)`` and of the result.
      moved: the values of enclosing traces that the function closes over; leading arguments of the Jaxpr.
      written: the mutable array references, arguments by number, whose new values the Jaxpr returns last.
      uses_refs: whether references are among the arguments or closed-over values.
      shardings: for each argument a sharding or None.
      asked: for each result the sharding that the caller gave, or None; empty if none was given.
    """

    __slots__ = (
        "jaxpr", "out_tree", "name", "donated", "in_tree", "keep_unused", "moved", "fun_name", "shardings", "written",
        "uses_refs", "asked", "__weakref__"
    )  # fmt: skip

    def __init__(
        self, jaxpr: ClosedJaxpr, in_tree, out_tree, name: str, donated, keep_unused: bool, moved, shardings=None,
        written=(), uses_refs=False, asked=(),
    ):  # fmt: skip
        self.jaxpr = jaxpr
        self.in_tree = in_tree
        self.out_tree = out_tree
        self.name = self.fun_name = name
        self.donated = donated
        self.keep_unused = keep_unused
        self.moved = moved
        self.written = written
        self.uses_refs = uses_refs
        self.asked = asked
        self.shardings = (None,) * (len(jaxpr.jaxpr.invars) - len(moved)) if shardings is None else shardings

    @property
    def lojax(self) -> Any:
        """This function of the values that arguments and results consist of, without types of libraries."""
        return lower_traced(self)

    def of_shardings(self, shardings: tuple[Any, ...]) -> Any:
        """This program for arguments with other shardings."""
        return self if shardings == self.shardings else self._with(self.in_tree, shardings)

    def of_structure(self, in_tree: tree.PyTreeDef) -> Any:
        """This program of flat arguments as a program of arguments ``(args, kwargs)`` with these leaves."""
        return self._with(in_tree, self.shardings)

    def _with(self, in_tree, shardings) -> Any:
        return type(self)(
            self.jaxpr, in_tree, self.out_tree, self.name, self.donated, self.keep_unused, self.moved, shardings,
            self.written, self.uses_refs, self.asked,
        )  # fmt: skip

    @property
    def args_info(self) -> Any:
        """The `ArgInfo` of each argument, as a tree ``(args, kwargs)``."""
        n = len(self.moved)
        avals = map(_with_sharding, self.jaxpr.in_avals[n:], self.shardings)
        return tree.tree_unflatten(self.in_tree, list(map(ArgInfo, avals, self.donated[n:])))

    @property
    def out_avals(self) -> Any:
        """Types of the result, as a tree."""
        return tree.tree_unflatten(self.out_tree, self.jaxpr.out_avals[: self.out_tree.num_leaves])

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the result, as a tree."""
        infos = map(ShapeDtypeStruct.of_aval, self.jaxpr.out_avals[: self.out_tree.num_leaves])
        return tree.tree_unflatten(self.out_tree, infos)

    def __call__(self, *args, **kwargs) -> Any:
        """Evaluate the traced program on arguments of the same structure."""
        leaves, structure = tree.tree_flatten((args, kwargs))
        check_structure(structure, self.in_tree, "traced")
        run = jaxpr_as_fun(self.jaxpr)
        outs = ref_state.call(lambda operands, _: run(*operands), self.moved, leaves, self.written)
        return tree.tree_unflatten(self.out_tree, outs)


def _with_sharding(aval: Any, sharding: Any) -> Any:
    """The type of an argument with this sharding."""
    split = None if sharding is None or aval.is_ref else of_sharding(sharding, aval.ndim)
    return aval if split is None else aval.update(split=split)


def check_structure(given: tree.PyTreeDef, expected: tree.PyTreeDef, verb: str) -> None:
    """Raise TypeError unless the arguments of a call have the structure that the stage expects."""
    if given == expected:
        return
    errors = list(tree.equality_errors_pytreedef(given, expected))
    lines = [
        f"Function {verb} with input pytree does not match the input pytree it was called with. There are "
        f"{len(errors)} mismatches, including:"
    ]
    for (side, *rest), now, before, explanation in errors:
        where = ("args", "kwargs")[side.idx] + tree.keystr(tuple(rest))
        lines.append(f"    * at {where}, seen {before} but now given {now}, so {explanation}")
    raise TypeError("\n".join(lines))
