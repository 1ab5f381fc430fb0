"""Serializes Jaxprs to data and files, for `mpijax.export` and for the keys of the plan cache.

A file is a magic line, a SHA-256 of everything after it, the length of a header in JSON, the header, and the bytes of
the arrays the header refers to. It contains no code, and reading runs none: primitives are found by name, and their
parameters are plain data (`core.records.plain`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from mpijax.core.base import config
from mpijax.core.base.source import UNKNOWN, Source, name_stack_of
from mpijax.core.dtypes.canonical import NARROWED
from mpijax.core.programs.jaxpr import ClosedJaxpr, DropVar, Eqn, Jaxpr, Literal, Var, subjaxprs
from mpijax.core.records import plain
from mpijax.core.records.plain import NotSerializable
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.shapes.scope import SymbolicScope
from mpijax.core.tracing.checks import check_jaxpr
from mpijax.core.types import effects as fx

__all__ = ["JaxprReader", "JaxprWriter", "NotSerializable", "fingerprint", "pack", "unpack"]

# Limit on the equations of a program after inlining calls: more are not compiled within an hour.
_MOST_EQUATIONS = 10_000_000
# The primitive that calls a Jaxpr, and its parameters besides the Jaxpr.
_CALL = "jit"


def _called(given: Jaxpr | ClosedJaxpr) -> Iterator[ClosedJaxpr]:
    """The Jaxprs that the operations of a Jaxpr call."""
    for eqn in given.jaxpr.eqns if isinstance(given, ClosedJaxpr) else given.eqns:
        lower = eqn.primitive.lower
        if type(lower) is InlineJaxpr and isinstance(eqn.params.get(lower.param), (Jaxpr, ClosedJaxpr)):
            yield eqn.params[lower.param]


class JaxprWriter(plain.Writer):
    """Writes Jaxprs too. Equal programs give equal data in every process.

    constants: "bytes" to write arrays; "types" to write their types only, because the compiler's output does not depend
    on their values. `constants` then lists the arrays by their numbers in the data.
    """

    def __init__(self, constants: str = "bytes"):
        super().__init__()
        self._by_type = constants == "types"
        self.constants: list[Any] = []
        self._constant_numbers: dict[int, int] = {}
        self.programs: list[Any] = []
        self._program_numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self.sources: dict[Source, int] = {}
        self.primitives: dict[str, int] = {}

    def source(self, source: Source) -> int:
        """The number of a source line in the table."""
        return self.sources.setdefault(source, len(self.sources))

    def array(self, x: Any) -> Any:
        if not self._by_type:
            return super().array(x)
        number = self._constant_numbers.get(id(x))
        if number is None:
            number = self._constant_numbers[id(x)] = len(self.constants)
            self.constants.append(x)
        return ["x", number]

    def program(self, jaxpr: Jaxpr | ClosedJaxpr) -> int:
        """The number of a Jaxpr in the table. A Jaxpr that is used twice is written once."""
        # Called programs first, so that nested calls need no recursion.
        waiting = [] if id(jaxpr) in self._program_numbers else [(jaxpr, _called(jaxpr))]
        while waiting:
            at, called = waiting[-1]
            inner = next((x for x in called if id(x) not in self._program_numbers), None)
            if inner is not None:
                waiting.append((inner, _called(inner)))
                continue
            waiting.pop()
            written = self._program(at)
            self._program_numbers[id(at)] = len(self.programs)
            self.programs.append(written)
            self._alive.append(at)
        return self._program_numbers[id(jaxpr)]

    def _program(self, given: Jaxpr | ClosedJaxpr) -> list[Any]:
        jaxpr, consts = (given.jaxpr, given.consts) if isinstance(given, ClosedJaxpr) else (given, None)
        numbers: dict[Any, int] = {}
        aval = self.aval
        for v in (*jaxpr.constvars, *jaxpr.invars):
            numbers[v] = len(numbers)
        head = [[aval(v.aval) for v in jaxpr.constvars], [aval(v.aval) for v in jaxpr.invars]]

        def atom(v):
            return [aval(v.aval), self.value(v.val)] if type(v) is Literal else numbers[v]

        eqns = []
        for eqn in jaxpr.eqns:
            name, params = self._operation(eqn)
            inputs = [atom(v) for v in eqn.invars]
            outputs = []
            for v in eqn.outvars:
                outputs.append(~aval(v.aval) if type(v) is DropVar else aval(v.aval))
                numbers[v] = len(numbers)
            number = self.primitives.setdefault(name, len(self.primitives))
            eqns.append([number, inputs, outputs, params, self.source(eqn.source)])
        self.where = "the program"
        values = None if consts is None else [self.value(c) for c in consts]
        return [*head, eqns, [atom(v) for v in jaxpr.outvars], values]

    def _operation(self, eqn: Eqn) -> tuple[str, list[Any]]:
        """Key and parameters of an operation. Calls that are always inlined become plain calls."""
        name, params, lower = eqn.primitive.key, eqn.params, eqn.primitive.lower
        if type(lower) is InlineJaxpr and name != _CALL:
            params = {
                "jaxpr": params.get(lower.param), "name": params.get("name") or name, "inline": False,
                "keep_unused": False, "donated_invars": (False,) * len(eqn.invars),
            }  # fmt: skip
            name = _CALL
            params["name"] = str(getattr(params["name"], "__name__", params["name"]))
        self.where = f"parameter of {eqn.primitive.name} at {eqn.source}"
        flat = []
        for key, value in params.items():
            flat += [key, self.value(value)]
        return name, flat

    def tables(self) -> dict[str, Any]:
        inner = super().tables()
        return {
            **inner, "programs": self.programs, "primitives": list(self.primitives),
            "sources": [list(s) for s in self.sources],
        }  # fmt: skip


# Symbolic dimensions. Those with the same constraints share one scope, because a program has one scope.
plain.register_writer(DimExpr, lambda w, x: ["q", str(x), *x.scope.texts])
plain.register_writer(Source, lambda w, x: ["u", w.source(x)])  # type: ignore[attr-defined]
for _kind in (Jaxpr, ClosedJaxpr):
    plain.register_writer(_kind, lambda w, x: ["j", w.program(x)])  # type: ignore[attr-defined]


class JaxprReader(plain.Reader):
    """Reads what a `JaxprWriter` wrote. constants: the arrays, if it wrote types only.

    The programs are not yet validated: call `check_programs`.
    """

    packages = tuple(
        f"mpijax.{p}." for p in ("checkify", "core", "extend", "lax", "ops", "random", "spmd", "transforms")
    )

    def __init__(self, tables: dict[str, Any], blobs: list[memoryview], constants: list[Any] | None = None):
        self.scopes: dict[tuple[str, ...], Any] = {}
        super().__init__(tables, blobs)
        self.constants = constants or []
        sources = tables["sources"]
        self.sources = [Source(file, line, name, name_stack_of(stack)) for file, line, name, stack in sources]
        self.primitives = [registry[name] for name in tables["primitives"]]
        self.programs: list[Any] = []
        # The number of equations of each program after inlining its calls.
        self._lengths: list[int] = []
        self._length = 0
        for program in tables["programs"]:
            self.programs.append(self._program(*program))

    def scope(self, constraints: tuple[str, ...]) -> Any:
        """The scope with these constraints."""
        if constraints not in self.scopes:
            self.scopes[constraints] = SymbolicScope(constraints)
        return self.scopes[constraints]

    def _program(self, constvars, invars, eqns, outs, values) -> Jaxpr | ClosedJaxpr:
        variables = [Var(self.avals[a]) for a in (*constvars, *invars)]
        constvars, invars = variables[: len(constvars)], variables[len(constvars) :]

        def atom(x):
            return Literal(self.value(x[1]), self.avals[x[0]]) if type(x) is list else variables[x]

        read: list[Eqn] = []
        self._length = len(eqns)
        for number, inputs, outputs, flat, source in eqns:
            primitive = self.primitives[number]
            params = dict(zip(flat[::2], self.values(flat[1::2]), strict=True))
            ins = [atom(x) for x in inputs]
            results = [Var(self.avals[a]) if a >= 0 else DropVar(self.avals[~a]) for a in outputs]
            variables += results
            effects = primitive.effects(params) if primitive.effects is not None else fx.no_effects
            read.append(Eqn(primitive, ins, results, params, effects, self.sources[source]))
        jaxpr = Jaxpr(constvars, invars, [atom(x) for x in outs], read)
        self._lengths.append(self._length)
        if self._length > _MOST_EQUATIONS:
            raise ValueError(f"a program has {self._length:,} equations, more than the limit of {_MOST_EQUATIONS:,}")
        return jaxpr if values is None else ClosedJaxpr(jaxpr, self.values(values))

    def program(self, number: int) -> Jaxpr | ClosedJaxpr:
        """A program of the table that the program being read calls."""
        self._length += self._lengths[number]
        return self.programs[number]

    def check_programs(self) -> None:
        """Check all programs by the type rules of their operations; with 64-bit types if a program has one."""
        wide = any(a.dtype in NARROWED for a in self.avals)
        inner = [p.key for p in self.primitives if p.inner]
        if inner:
            raise ValueError(
                f"a program cannot contain the primitives {inner}: only the interior of other operations has them"
            )
        called = {id(p) for program in self.programs for e in program.eqns for p in subjaxprs(e.params, closed=True)}
        with config.enable_x64(wide):
            for program in self.programs:
                if id(program) not in called:
                    check_jaxpr(program)


plain.register_reader("x", lambda r, x: r.constants[x[1]])  # type: ignore[attr-defined]
plain.register_reader("q", lambda r, x: r.scope(tuple(x[2:])).parse(x[1]))  # type: ignore[attr-defined]
plain.register_reader("u", lambda r, x: r.sources[x[1]] if r.sources[x[1]].file else UNKNOWN)  # type: ignore[attr-defined]
plain.register_reader("j", lambda r, x: r.program(x[1]))  # type: ignore[attr-defined]


def fingerprint(*values: Any, writer: JaxprWriter) -> str:
    """A hash of values. Equal values have equal hashes in every process."""
    content = writer.values(values)
    text = json.dumps([content, writer.tables()], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def pack(magic: bytes, content: Any, writer: JaxprWriter) -> bytes:
    """A file that contains plain data, with the tables and arrays it refers to."""
    sizes = [len(b) for b in writer.blobs]
    header = json.dumps([content, writer.tables(), sizes], separators=(",", ":")).encode()
    body = b"".join([len(header).to_bytes(8, "little"), header, *writer.blobs])
    return magic + hashlib.sha256(magic + body).digest() + body


def unpack(magic: bytes, data: bytes | bytearray | memoryview, what: str) -> tuple[Any, dict, list[memoryview]]:
    """Plain data, tables and arrays of a file. Raises ValueError for a corrupt file or one of another kind."""
    view = memoryview(data).cast("B")
    head, at = len(magic), len(magic) + 32
    if bytes(view[:head]) != magic:
        family = magic[: magic.rindex(b"-")]
        if bytes(view[: len(family)]) == family:
            theirs = bytes(view[:head]).split(b"\n")[0].decode("ascii", "replace")
            raise ValueError(
                f"{what} has format {theirs!r}, but this version of mpijax reads {magic.decode().strip()!r}. Write it "
                "again with this version."
            )
        raise ValueError(f"These bytes are not {what} of mpijax: they begin with {bytes(view[:head])!r}.")
    if hashlib.sha256(magic + bytes(view[at:])).digest() != bytes(view[head:at]):
        raise ValueError(f"{what} is damaged: its checksum is wrong (got {len(view)} bytes)")
    try:
        return _parts(view[at:])
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{what} is damaged: {error}") from error


def _parts(body: memoryview) -> tuple[Any, dict, list[memoryview]]:
    length = int.from_bytes(body[:8], "little")
    content, tables, sizes = json.loads(bytes(body[8 : 8 + length]))
    if any(type(n) is not int or n < 0 for n in sizes) or 8 + length + sum(sizes) != len(body):
        raise ValueError(
            f"the header has {length} bytes and lists arrays of {sizes} bytes, but {len(body)} bytes follow"
        )
    blobs, start = [], 8 + length
    for size in sizes:
        blobs.append(body[start : start + size])
        start += size
    return content, tables, blobs
