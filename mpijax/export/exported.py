"""Exports traced programs, serializes and deserializes them, and calls them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from mpijax.compiler.loops.show import nest_text
from mpijax.compiler.steps.planner import plan_program
from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.base.any_depth import any_depth
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.source import callable_name
from mpijax.core.programs.jaxpr import ClosedJaxpr, Jaxpr, jaxpr_as_fun, subjaxprs
from mpijax.core.records.serialize import JaxprReader, JaxprWriter, pack, unpack
from mpijax.core.shapes.dimensions import DimExpr, evaluate
from mpijax.core.sharding.abstract_mesh import AbstractMesh
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding, Sharding
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.export.checks import DisabledSafetyCheck, checked_platforms, default_export_platform
from mpijax.export.devices import LATER, devices_of, meshes_of_shardings, over_devices, sharding_on
from mpijax.export.symbolic import check_one_scope, check_solvable, has_names, solve, specialized
from mpijax.export.trees import read_structure, write_structure
from mpijax.ops.elementwise.convert import convert
from mpijax.spmd.reshard import with_sharding
from mpijax.transforms.call import call_jaxpr
from mpijax.transforms.custom_vjp import custom_vjp
from mpijax.transforms.derivatives import vjp
from mpijax.transforms.jit import PjitFunction, jit
from mpijax.transforms.pullback import DontWant, GradValue
from mpijax.transforms.traced import TracedProgram
from mpijax.version import __version__

_MAGIC = b"mpijax-export-1\n"
_WHAT = "an exported program"
# Errors that calls of valid programs may raise.
_HONEST = (ValueError, JaxRuntimeError, MemoryError, FloatingPointError, NotImplementedError)
# The format versions that this version of mpijax reads and writes.
minimum_supported_calling_convention_version = maximum_supported_calling_convention_version = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Exported:
    """A traced program without a Python function.

    Attributes:
      fun_name: name of the function.
      in_tree, in_avals: structure of ``(args, kwargs)``, and the types of their leaves.
      out_tree, out_avals: structure of the result, and the types of its leaves.
      nr_devices: the number of devices in the meshes of the program and its shardings; 1 without meshes.
      in_shardings, out_shardings: the shardings given to `jit`: for each argument and result a NamedSharding or None.
      platforms: the platforms it was exported for. Programs run on CPUs.
      ordered_effects, unordered_effects: of the program.
      disabled_safety_checks: checks that were disabled at export.
      program: the Jaxpr.

    >>> mpijax.export.export(mpijax.jit(jnp.sin))(jnp.ones(3)).in_avals
    (ShapedArray(float32[3]),)
    """

    fun_name: str
    in_tree: tree.PyTreeDef
    in_avals: tuple[ShapedArray, ...]
    out_tree: tree.PyTreeDef
    out_avals: tuple[ShapedArray, ...]
    nr_devices: int
    platforms: tuple[str, ...]
    ordered_effects: tuple[Any, ...]
    unordered_effects: tuple[Any, ...]
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...]
    program: ClosedJaxpr = dataclasses.field(repr=False)
    in_shardings: tuple[Sharding | None, ...] = dataclasses.field(repr=False)
    out_shardings: tuple[Sharding | None, ...] = dataclasses.field(repr=False)
    _get_vjp: Callable[[Exported], Exported] | None = dataclasses.field(repr=False)
    _is_read: bool = dataclasses.field(default=False, repr=False)

    calling_convention_version = maximum_supported_calling_convention_version
    # XLA's descriptions of shardings, which JAX's exports no longer have either: see `in_shardings_jax`.
    in_shardings_hlo = property(lambda self: (None,) * len(self.in_avals))
    out_shardings_hlo = property(lambda self: (None,) * len(self.out_avals))
    # Whether arguments have symbolic dimensions.
    uses_global_constants = property(lambda self: has_names(self.in_avals))

    def __str__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    @property
    def module_kept_var_idx(self) -> tuple[int, ...]:
        """The arguments that the program keeps: all of them."""
        return tuple(range(len(self.in_avals)))

    def in_shardings_jax(self, mesh: Mesh | AbstractMesh) -> tuple[Sharding | None, ...]:
        """The sharding of each argument, over another mesh with the same axes; None if `jit` was given none.

        Raises ValueError for a mesh with other axes.
        """
        return _over(mesh, self.in_shardings)

    def out_shardings_jax(self, mesh: Mesh | AbstractMesh) -> tuple[Sharding | None, ...]:
        """The sharding of each result, over another mesh with the same axes; None if `jit` was given none.

        Raises ValueError for a mesh with other axes.
        """
        return _over(mesh, self.out_shardings)

    @cached_property
    def mlir_module_serialized(self) -> bytes:
        """The program as `serialize` writes it, without derivatives."""
        return bytes(_write([self]))

    def mlir_module(self, serialized: bool = True) -> str:
        """The lowered program as text (JAX returns MLIR): the Jaxpr, the loop nests and the instructions."""
        del serialized
        if has_names(self.in_avals):
            return f"{self.program}\n\nThe loop nests and instructions depend on the sizes of the arguments.\n"
        plan = plan_program(self.program)
        nests = "\n\n".join(nest_text(k) for k in plan.nests)
        return f"{self.program}\n\n{nests}\n\n{plan.text()}\n"

    def has_vjp(self) -> bool:
        """Whether `vjp` is available."""
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The exported derivative: flat ``(*args, *cotangents) -> cotangents of the args``.

        Raises ValueError for a program that was serialized without derivatives (see `serialize`).
        """
        if self._get_vjp is None:
            raise ValueError(
                f"No VJP is available: {self.fun_name!r} was serialised without derivatives. Serialise it with "
                "exported.serialize(vjp_order=1), or vjp_order=2 for second derivatives."
            )
        return self._get_vjp(self)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The program as bytes, with its derivatives up to `vjp_order`.

        Raises:
          NotImplementedError: for values that are not data, such as Python callbacks; the message names them.
          ValueError: for pytree nodes whose type is not registered for serialization.
        """
        chain = [self]
        for _ in range(vjp_order):
            chain.append(chain[-1].vjp())
        return _write(chain)

    def call(self, *args, **kwargs) -> Any:
        """Call the program, also in traced functions; reverse-mode differentiation uses its `vjp`.

        Raises ValueError for arguments of another structure, shape or dtype than it was exported for.
        """
        leaves, structure = tree.tree_flatten((args, kwargs))
        if structure != self.in_tree:
            self._refuse_structure(structure)
        self._check_platform()
        given = tuple(map(typeof, leaves))
        over = self._devices(leaves)
        flat = self._by_types.get((given, over))
        if flat is None:
            for i, (type_, expected) in enumerate(zip(given, self.in_avals, strict=True)):
                self._check_type(i, type_, expected)
            sizes = solve(self.in_avals, given, self._argument) if has_names(self.in_avals) else {}
            flat = self._by_types[given, over] = self._flat(sizes, over)
        return tree.tree_unflatten(self.out_tree, self._run(flat, leaves))

    def _devices(self, leaves: Sequence[Any]) -> tuple | None:
        """The devices of a call; None if the program determines them, or nothing does; LATER for traced values.

        Raises ValueError if the arguments are on another number of devices, or, for a program over meshes without
        devices, on none. The devices of traced values are known only when the enclosing program is compiled.
        """
        over = devices_of(leaves)
        if self.nr_devices == 1 or (over is not None and len(over) == self.nr_devices):
            return over
        if over is None and any(isinstance(x, Tracer) for x in leaves):
            return LATER
        if over is not None or any(type(mesh) is AbstractMesh for mesh in self._meshes):
            raise ValueError(
                f"Function {self.fun_name} was exported for {self.nr_devices} devices and is called in a context with "
                f"{1 if over is None else len(over)} devices, which is not allowed. Shard its arguments with "
                "jax.device_put(x, sharding), or enter `jax.set_mesh(mesh)`."
            )
        return None

    @cached_property
    def _meshes(self) -> set[Mesh | AbstractMesh]:
        """The meshes in the shardings of arguments and results, and in the program."""
        shardings = (*self.in_shardings, *self.out_shardings)
        return {s.mesh for s in shardings if isinstance(s, NamedSharding)} | meshes_of_shardings(self.program.jaxpr)

    def _run(self, flat: Callable[..., list[Any]], leaves: Sequence[Any]) -> list[Any]:
        """The results; ValueError for a file with invalid parameters that only lowering detects."""
        try:
            return flat(*leaves)
        except _HONEST:
            raise
        except Exception as error:
            if not self._is_read or any(isinstance(x, Tracer) for x in leaves):
                raise
            raise ValueError(
                f"The file of {self.fun_name!r} is damaged, or it needs something that mpijax {__version__} does not "
                f"have: {type(error).__name__}: {error}"
            ) from error

    @cached_property
    def _by_types(self) -> dict[tuple[tuple[ShapedArray, ...], tuple | None], Callable[..., list[Any]]]:
        """Results of `_flat`, by the argument types and devices of calls."""
        return {}

    def _flat(self, sizes: dict[str, Any], over: tuple | None) -> Callable[..., list[Any]]:
        """The program on flat arguments of these sizes, over these devices, with its exported derivative as rule."""
        wide = any(getattr(a.dtype, "itemsize", 0) >= 8 for a in (*self.in_avals, *self.out_avals))
        with config.enable_x64(wide or config.enable_x64.value):
            program = self.program if over is None else over_devices(self.program, over)
            program = specialized(program, sizes) if sizes else program

        placed = self.in_shardings if over is None else [sharding_on(s, over) for s in self.in_shardings]

        @custom_vjp
        def flat(*args):
            args = [x if s is None else with_sharding(x, s) for x, s in zip(args, placed, strict=True)]
            real = [x for x, a in zip(args, self.in_avals, strict=True) if _is_real(a)]
            with config.enable_x64(wide or config.enable_x64.value):
                outs = iter(call_jaxpr(program, real, name=self.fun_name))
                return [
                    convert(next(outs), a.dtype, a.weak_type) if _is_real(a) else _nothing(a, sizes)
                    for a in self.out_avals
                ]

        def backward(args, cotangents):
            derivative = self.vjp()
            return tuple(derivative.call(*args, *cotangents))

        flat.defvjp(lambda *args: (flat(*args), args), backward)
        return flat

    def _refuse_structure(self, structure) -> None:
        lines = [
            f"   - {tree.keystr(path) or 'the whole'} is {given} in the call but {known} in the exported function, so "
            f"{why}"
            for path, given, known, why in tree.equality_errors_pytreedef(structure, self.in_tree)
        ]
        raise ValueError(
            "The invocation args and kwargs must have the same pytree structure as when the function "
            f"{self.fun_name!r} was exported, but:\n" + "\n".join(lines)
        )

    def _check_platform(self) -> None:
        here = default_export_platform()
        if here not in self.platforms and DisabledSafetyCheck.platform() not in self.disabled_safety_checks:
            raise ValueError(
                f"Function {self.fun_name!r} was exported for platforms {self.platforms} but it is used on {here!r}. "
                f"Export it with platforms=({here!r}, ...), or with "
                "disabled_checks=[export.DisabledSafetyCheck.platform()]."
            )

    def _check_type(self, i: int, given: ShapedArray, expected: ShapedArray) -> None:
        """Raise ValueError for an argument with another rank, dtype, or constant size."""
        agree = [a == b or isinstance(b, DimExpr) for a, b in zip(given.shape, expected.shape, strict=False)]
        if given.ndim == expected.ndim and given.dtype == expected.dtype and all(agree):
            return
        where = self._argument(i)
        what = "Rank" if given.ndim != expected.ndim else "Dtype" if given.dtype != expected.dtype else "Shape"
        if what == "Shape":
            where += f".shape[{agree.index(False)}] (expected same constant)"
        raise ValueError(
            f"{what} mismatch for {where} of {self.fun_name!r}: exported for {expected.str_short(True)}, called with "
            f"{given.str_short(True)}. Convert the argument, or export the function for its type. If sizes differ "
            "between calls, give them names (mpijax.export.symbolic_shape)."
        )

    def _argument(self, i: int) -> str:
        """The name of an argument: ``args[0]['x']``."""
        return _argument(self.in_tree, i)


def export(
    fun_jit: Any,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
) -> Callable[..., Exported]:
    """``export(jit(f))(*args, **kwargs) -> Exported``: traces for arguments, or for `ShapeDtypeStruct`s.

    Args:
      fun_jit: the result of `jit`, or a function of mpijax, which is jitted here.
      platforms: platforms to export for; programs run on "cpu".
      disabled_checks: checks to disable when the program is called.

    Raises:
      ValueError: for a function that is not jitted, or that closes over traced values.
      NotImplementedError: for programs with Python callbacks or other values that are not data.

    >>> mpijax.export.export(mpijax.jit(lambda x: x * x))(jnp.arange(3)).call(jnp.array([1, 2, 3]))
    Array([1, 4, 9], dtype=int32)
    """
    if _is_ours(fun_jit):
        fun_jit = jit(fun_jit)
    if not isinstance(fun_jit, PjitFunction):
        raise ValueError(
            f"Function to be exported must be the result of `jit` but is: {fun_jit}. Write export(jit(f))(...)."
        )
    named = checked_platforms(platforms)
    _check_version()

    def do_export(*args, **kwargs) -> Exported:
        check_one_scope(args, kwargs, callable_name(fun_jit))
        traced = fun_jit.trace(*args, **kwargs)
        results = tree.tree_leaves(fun_jit.eval_shape(*args, **kwargs))
        made = of_traced(
            traced, traced.in_tree, traced.out_tree, [x.sharding for x in results], named, disabled_checks
        )
        # Raise now for values that cannot be serialized, rather than later.
        JaxprWriter("types").value(made.program)
        return made

    return do_export


def of_traced(
    traced: TracedProgram,
    in_tree: tree.PyTreeDef,
    out_tree: tree.PyTreeDef,
    out_shardings: Sequence[Any],
    platforms: Sequence[str] = ("cpu",),
    checks: Sequence[DisabledSafetyCheck] = (),
) -> Exported:
    """A traced program as an `Exported` with these structures, and these shardings of results.

    Raises ValueError for a program that uses references, or values of an enclosing transformation.
    """
    if traced.uses_refs:
        raise ValueError(
            f"{traced.name!r} uses mutable array references, which cannot be exported. Pass and return their values."
        )
    if traced.moved:
        raise ValueError(
            f"{traced.name!r} closes over values of an enclosing transformation, so it cannot be exported. Pass them "
            "as arguments, or export outside of the transformation."
        )
    closed = traced.jaxpr
    check_solvable(closed, partial(_argument, traced.in_tree))
    return _exported(
        traced.name, closed, closed.in_avals, in_tree, closed.out_avals, out_tree, tuple(platforms), tuple(checks),
        tuple(traced.shardings), tuple(out_shardings),
    )  # fmt: skip


def _argument(in_tree: tree.PyTreeDef, i: int) -> str:
    paths = tree.tree_leaves_with_path(tree.tree_unflatten(in_tree, range(in_tree.num_leaves)))
    side, *rest = paths[i][0]
    return ("args" if side.idx == 0 else "kwargs") + tree.keystr(tuple(rest))


def _nothing(aval: ShapedArray, sizes: dict[str, Any]) -> np.ndarray:
    """A value of float0."""
    return np.zeros(tuple(evaluate(d, sizes) for d in aval.shape), aval.dtype)


def _is_ours(fun: Any) -> bool:
    """Whether `fun` is a function of mpijax that JAX's counterpart jits."""
    module, name = getattr(fun, "__module__", None), getattr(fun, "__qualname__", "")
    return str(module).partition(".")[0] == "mpijax" and name.isidentifier() and not isinstance(fun, type)


def _check_version() -> None:
    lowest, highest = minimum_supported_calling_convention_version, maximum_supported_calling_convention_version
    asked = config.export_calling_convention_version.value
    if not lowest <= asked <= highest:
        raise ValueError(
            f"The requested export calling convention version {asked} is outside the range of supported versions "
            f"[{lowest}..{highest}]. Set jax_export_calling_convention_version to one of these, or do not set it."
        )


def _exported(
    name, closed: ClosedJaxpr, in_avals, in_tree, out_avals, out_tree, platforms, checks, in_shardings, out_shardings
) -> Exported:
    effects = sorted(closed.effects, key=str)
    placed_in, placed_out = (
        tuple(s if isinstance(s, NamedSharding) else None for s in given) for given in (in_shardings, out_shardings)
    )
    devices = max([_devices_in(closed.jaxpr), *(s.mesh.size for s in (*placed_in, *placed_out) if s is not None)])
    return Exported(
        name, in_tree, tuple(in_avals), out_tree, tuple(out_avals), devices, platforms,
        tuple(e for e in effects if e.ordered), tuple(e for e in effects if not e.ordered), checks, closed,
        placed_in, placed_out, _derivative,
    )  # fmt: skip


def _over(mesh: Mesh | AbstractMesh, shardings: Sequence[Any]) -> tuple[Sharding | None, ...]:
    """Shardings moved to another mesh; raises ValueError unless it has the same axes."""
    for s in shardings:
        if s is not None and s.mesh.abstract_mesh != mesh.abstract_mesh:
            raise ValueError(
                f"NamedSharding new mesh {mesh} does not match the mesh used for export {s.mesh.abstract_mesh}: "
                "names, sizes or types of the axes differ."
            )
    return tuple(None if s is None else NamedSharding(mesh, s.spec, memory_kind=s.memory_kind) for s in shardings)


@any_depth
def _devices_in(jaxpr: Jaxpr) -> int:
    """The number of devices of the largest mesh in a program."""
    found = 1
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            mesh = getattr(value, "mesh", value)
            if isinstance(mesh, (Mesh, AbstractMesh)):
                found = max(found, mesh.size)
        found = max([found, *map(_devices_in, subjaxprs(eqn.params))])
    return found


def _derivative(primal: Exported) -> Exported:
    """The VJP of a program as a program: a flat function of arguments and cotangents."""
    n = len(primal.program.in_avals)
    fun = jaxpr_as_fun(primal.program)
    tangents = [a.to_tangent_aval() for a in primal.program.out_avals]
    differentiable = [_is_real(a.to_tangent_aval()) for a in primal.program.in_avals]

    def fun_vjp(*flat):
        outs, pullback = vjp(fun, *flat[:n])
        given = iter(flat[n:])
        # For a result without tangents, pass the result itself as unused cotangent: its dimensions may be symbolic.
        cts = [next(given) if _is_real(a) else x for a, x in zip(tangents, outs, strict=True)]
        results = pullback.with_refs(*(GradValue() if real else DontWant() for real in differentiable))(cts)
        return [ct for ct, real in zip(results, differentiable, strict=True) if real]

    in_avals = [*primal.in_avals, *(a.to_tangent_aval() for a in primal.out_avals)]
    out_avals = [a.to_tangent_aval() for a in primal.in_avals]
    return _exported(
        f"{primal.fun_name}_vjp", trace_to_closed_jaxpr(fun_vjp, list(filter(_is_real, in_avals))),
        in_avals, tree.tree_structure((tuple(range(len(in_avals))), {})),
        out_avals, tree.tree_structure(tuple(range(len(out_avals)))),
        primal.platforms, primal.disabled_safety_checks,
        (*primal.in_shardings, *primal.out_shardings), primal.in_shardings,
    )  # fmt: skip


def _is_real(aval: ShapedArray) -> bool:
    """Whether the program has an argument or result for this type: float0 values have no data."""
    return aval.dtype != dtypes.float0


# ---------------------------------------------------------------- files


def _write(chain: list[Exported]) -> bytearray:
    """Serializes a program and its derivatives, in this order."""
    writer = JaxprWriter()
    entries = []
    for e in chain:
        entries.append(
            {
                "name": e.fun_name,
                "in_tree": write_structure(e.in_tree, writer.value),
                "out_tree": write_structure(e.out_tree, writer.value),
                "platforms": list(e.platforms),
                "checks": [str(c) for c in e.disabled_safety_checks],
                "types": writer.values([list(e.in_avals), list(e.out_avals)]),
                "layouts": writer.values([list(e.in_shardings), list(e.out_shardings)]),
                "program": writer.value(e.program),
            }
        )
    return bytearray(pack(_MAGIC, {"mpijax": __version__, "programs": entries}, writer))


def deserialize(blob: bytes | bytearray) -> Exported:
    """The program that `Exported.serialize` wrote, possibly on another rank or in an earlier job.

    Raises:
      ValueError: for bytes that are damaged, of another kind or format version, or that need operations,
        pytree nodes or devices that do not exist here.

    >>> blob = mpijax.export.export(mpijax.jit(lambda x: x * x))(jnp.arange(3)).serialize()
    >>> mpijax.export.deserialize(blob).call(jnp.array([1, 2, 3]))
    Array([1, 4, 9], dtype=int32)
    """
    content, tables, blobs = unpack(_MAGIC, blob, _WHAT)
    try:
        with config.enable_x64(True):  # read types as written
            reader = JaxprReader(tables, blobs)
        reader.check_programs()
        chain = [_read(entry, reader) for entry in content["programs"]]
        found = chain[-1]
    except Exception as error:  # the bytes are untrusted, so any error is possible
        raise ValueError(
            f"{_WHAT} is damaged, or needs something that mpijax {__version__} does not have: {type(error).__name__}: "
            f"{error}"
        ) from error
    for primal in reversed(chain[:-1]):
        found = _with_derivative(primal, found)
    return found


def _with_derivative(primal: Exported, derivative: Exported) -> Exported:
    return dataclasses.replace(primal, _get_vjp=lambda _: derivative)


def _read(entry: dict[str, Any], reader: JaxprReader) -> Exported:
    # JAX's files have no weak types.
    in_avals, out_avals = ([a.strip_weak_type() for a in avals] for avals in reader.values(entry["types"]))
    program = reader.value(entry["program"])
    in_tree = read_structure(entry["in_tree"], reader.value, in_avals)
    out_tree = read_structure(entry["out_tree"], reader.value, out_avals)
    if [(node.node_data() or (None, None))[0] for node in in_tree.children()] != [tuple, dict]:
        raise ValueError(f"its arguments are {in_tree}, expected (args, kwargs)")
    _check_signature(program.in_avals, in_avals, in_tree)
    _check_signature(program.out_avals, out_avals, out_tree)
    unknown = [(None,) * len(in_avals), (None,) * len(out_avals)]
    in_shardings, out_shardings = reader.values(entry["layouts"]) if "layouts" in entry else unknown
    made = _exported(
        str(entry["name"]), program, in_avals, in_tree, out_avals, out_tree,
        tuple(entry["platforms"]), tuple(map(DisabledSafetyCheck, entry["checks"])),
        in_shardings, out_shardings,
    )  # fmt: skip
    return dataclasses.replace(made, _get_vjp=None, _is_read=True)


def _check_signature(own: Sequence[ShapedArray], avals: Sequence[ShapedArray], structure: tree.PyTreeDef) -> None:
    """Raise ValueError unless a program has these types of arguments or results, one for each leaf."""
    real = [a for a in avals if _is_real(a)]
    if structure.num_leaves != len(avals) or [(a.shape, a.dtype) for a in own] != [(a.shape, a.dtype) for a in real]:
        raise ValueError(f"its program has types {own}, but the file declares {avals} for {structure}")
