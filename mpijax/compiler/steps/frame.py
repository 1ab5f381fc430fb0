"""How a loop that is one function leaves for better code, and how that code goes on: parts of the function's IR.

Baseline code counts the iterations of its outermost loops. After `end` of them, an argument of at least 2, it writes
its state to memory of the run, the frame, and returns. The executor then calls it again, or optimised code if that
exists meanwhile, which begins by reading the frame. The first word of the frame is the number of the loop that goes on,
or 0 at the beginning and after the end. The words behind it are the counters of these loops, the pointers that the
function moves, and its small values.
"""

from __future__ import annotations

from mpijax.compiler.backend.baseline import LIMIT


class ResumeFrame:
    """What a frame holds, and which loops may be left."""

    def __init__(self) -> None:
        self._state: list[tuple[str, int]] = []
        self._heads: list[str] = []

    def keep(self, name: str, nbytes: int) -> None:
        """Something on the stack of the function is part of its state."""
        self._state.append((name, nbytes))

    def loop(self, head: str) -> None:
        """An outermost loop, whose iterations begin at the label `head`."""
        self._heads.append(head)

    @property
    def words(self) -> int:
        """Words of 8 bytes; 0: there is no loop to leave."""
        return 1 + sum(-(-nbytes // 8) for _, nbytes in self._state) if self._heads else 0

    def body(self, lines: list[str]) -> list[str]:
        """The lines of the function, which count iterations where these begin."""
        numbers = {f"{head}:": k for k, head in enumerate(self._heads, 1)}
        return [text for line in lines for text in (line, *(_counts(numbers[line]) if line in numbers else ()))]

    def entry(self, slots: int) -> list[str]:
        """The branch to the beginning, `start`, or to the loop that goes on. slots: pointers that precede the frame."""
        cases = " ".join(f"i64 {k}, label %{head}" for k, head in enumerate(self._heads[:-1], 1))
        return [
            "  %iterations = alloca i64, align 8",
            "  store i64 0, ptr %iterations, align 8",
            f"  %frame = getelementptr i64, ptr %buffers, i64 {slots}",
            "  %loop = load i64, ptr %frame, align 8",
            "  %new = icmp eq i64 %loop, 0",
            "  br i1 %new, label %start, label %resume",
            "resume:",
            *self._copies("resumed", read=True),
            f"  switch i64 %loop, label %{self._heads[-1]} [ {cases} ]",
        ]

    def end(self) -> list[str]:
        """What precedes the return at the end of all loops."""
        return ["  store i64 0, ptr %frame, align 8"]

    def leaving(self) -> list[str]:
        """The blocks that return while a loop goes on."""
        lines = []
        for k in range(1, len(self._heads) + 1):
            lines += [f"leave{k}:", f"  store i64 {k}, ptr %frame, align 8", "  br label %leave"]
        return [*lines, "leave:", *self._copies("left", read=False), "  ret void"]

    def _copies(self, hint: str, read: bool) -> list[str]:
        lines, word = [], 1
        for i, (name, nbytes) in enumerate(self._state):
            place = f"%{hint}{i}"
            target, origin = (name, place) if read else (place, name)
            lines.append(f"  {place} = getelementptr i64, ptr %frame, i64 {word}")
            lines.append(f"  {memcpy(target, origin, nbytes)}")
            word += -(-nbytes // 8)
        return lines


def _counts(k: int) -> tuple[str, ...]:
    """Without a limit, which is 0 then, LLVM removes all of this: the count never is 0, because it does not wrap."""
    return (
        f"  %before{k} = load i64, ptr %iterations, align 8",
        f"  %count{k} = add nuw i64 %before{k}, 1",
        f"  store i64 %count{k}, ptr %iterations, align 8",
        f"  %limit{k} = {LIMIT}",
        f"  %leaves{k} = icmp eq i64 %count{k}, %limit{k}",
        f"  br i1 %leaves{k}, label %leave{k}, label %stay{k}",
        f"stay{k}:",
    )


def memcpy(target: str, origin: str, nbytes: int) -> str:
    """A copy of a few bytes."""
    return f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {origin}, i64 {nbytes}, i1 0)"
