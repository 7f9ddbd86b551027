"""The entry of a host program: binding its symbols from the arguments' extents and checking everything declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relaxir.ir.types import TensorType, dims_text
from relaxir.support.errors import InferError
from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike, Relation, free_dims, fresh, solve_linear, to_text
from relaxir.tir import Assert, BindDim, BinOp, Buffer, Expr, Extent, Stmt, as_expr, binary

Place = tuple[Buffer, int, DimLike]
"""An axis of an argument, and its extent."""
OPERATORS = (("==", BinOp.EQ), ("<=", BinOp.LE), ("<", BinOp.LT))


def condition(relation: Relation) -> Expr:
    """A symbolic relation as a run-time condition."""
    op = next(o for text, o in OPERATORS if text == relation.op)
    return binary(op, as_expr(relation.left), as_expr(relation.right))


@dataclass
class EntryBinder:
    """Emits the statements that define and check the symbols of one function's parameters."""

    function: str
    span: Span | None = None
    known: dict[Dim, str] = field(default_factory=dict)  # symbol -> where its value comes from, in words
    taken: set[str] = field(default_factory=set)

    def bind(self, params: Sequence[tuple[Buffer, TensorType]], where: Sequence[Relation]) -> Iterator[Stmt]:
        """All entry statements: bare symbols, compound extents, ranges, declared relations.

        Raises:
            InferError: when some symbol cannot be determined from the arguments.
        """
        places = [(b, axis, d) for b, t in params for axis, d in enumerate(t.shape)]
        self.taken.update(s.name for _, _, d in places for s in free_dims(d))
        for buffer, axis, d in places:
            if isinstance(d, Dim) and d not in self.known:
                yield from self.define(d, Extent(buffer, axis), buffer, axis)
        yield from self.compound([p for p in places if not isinstance(p[2], Dim)])
        for buffer, axis, d in places:
            if isinstance(d, Dim) and self.known[d] != self.place(buffer, axis):
                yield self.equal(buffer, axis, d)
        yield from map(self.declared, where)

    def compound(self, pending: Sequence[Place]) -> Iterator[Stmt]:
        """Check the compound extents whose symbols are known; each other one must give a symbol to go on with."""
        while pending:
            rest = [p for p in pending if any(s not in self.known for s in free_dims(p[2]))]
            yield from (self.equal(*p) for p in pending if p not in rest)
            solved = next((p for p in rest if self.solvable(p[2])), None)
            if solved is None:
                if rest:
                    self.unsolved(rest)
                break
            yield from self.solve(*solved)
            pending = [p for p in rest if p is not solved]

    def declared(self, relation: Relation) -> Stmt:
        """Check a relation that the function declares."""
        args = tuple(dict.fromkeys((*free_dims(relation.left), *free_dims(relation.right))))[:4]
        shown = ", ".join(f"{s.name} is {{}}" for s in args)
        text = f"{self.function}: declared {relation} does not hold; {shown}"
        return Assert(condition(relation), "runtime-shape", text, tuple(as_expr(a) for a in args), self.span)

    def place(self, buffer: Buffer, axis: int) -> str:
        """Words for one extent."""
        return f"argument `{buffer.name}`, axis {axis}"

    def define(self, d: Dim, value: Expr, buffer: Buffer, axis: int) -> Iterator[Stmt]:
        """Bind a symbol and check its declared range."""
        self.known[d] = self.place(buffer, axis)
        yield BindDim(d, value)
        yield from self.ranges(d, self.known[d])

    def ranges(self, d: Dim, origin: str) -> Iterator[Stmt]:
        """Checks of a symbol's declared minimum, maximum and multiple."""
        size = as_expr(d)
        start = f"{self.function}: {origin}: {d.name} is {{}}, but must be"
        limits: list[tuple[str, Expr]] = []
        if d.min:
            limits.append((f"at least {d.min}", size >= d.min))
        if d.max is not None:
            limits.append((f"at most {d.max}", size <= d.max))
        if d.multiple_of != 1:
            whole = binary(BinOp.EQ, binary(BinOp.MOD, size, d.multiple_of), 0)
            limits.append((f"a multiple of {d.multiple_of}", whole))
        text = f"{start} {', '.join(words for words, _ in limits)}"
        for _, check in limits:
            yield Assert(check, "runtime-shape", text, (size,), self.span)

    def equal(self, buffer: Buffer, axis: int, d: DimLike) -> Stmt:
        """Check one extent against a known expression."""
        extent = Extent(buffer, axis)
        if isinstance(d, int):
            text = f"{self.function}: {self.place(buffer, axis)}: got {{}}, expected {d}"
            return Assert(binary(BinOp.EQ, extent, d), "runtime-shape", text, (extent,), self.span)
        origin = f" (from {self.known[d]})" if isinstance(d, Dim) else ""
        text = f"{self.function}: {self.place(buffer, axis)}: got {{}}, expected {to_text(d)} = {{}}{origin}"
        return Assert(binary(BinOp.EQ, extent, as_expr(d)), "runtime-shape", text, (extent, as_expr(d)), self.span)

    def unknown(self, d: DimLike) -> Dim | None:
        """The only symbol of an expression that is not known yet, or None."""
        missing = [s for s in free_dims(d) if s not in self.known]
        return missing[0] if len(missing) == 1 else None

    def solvable(self, d: DimLike) -> bool:
        """Whether the missing symbol follows from the extent."""
        missing = self.unknown(d)
        return missing is not None and solve_linear(d, missing, 0) is not None

    def solve(self, buffer: Buffer, axis: int, d: DimLike) -> Iterator[Stmt]:
        """Define the missing symbol of a compound extent; what division leaves over is an error at run time."""
        missing = self.unknown(d)
        assert missing is not None
        length = fresh(f"{buffer.name}_{axis}" if buffer.name.isidentifier() else f"extent_{axis}", self.taken)
        self.taken.add(length.name)
        self.known[length] = self.place(buffer, axis)
        yield BindDim(length, Extent(buffer, axis))
        answer = solve_linear(d, missing, length)
        assert answer is not None
        value, relations = answer
        for r in relations:
            where = f"{self.function}: {self.place(buffer, axis)}"
            text = f"{where}: got {{}}, which is not {to_text(d)} for any {missing.name}"
            yield Assert(condition(r), "runtime-shape", text, (as_expr(length),), self.span)
        yield from self.define(missing, as_expr(value), buffer, axis)
        yield self.equal(buffer, axis, d)

    def unsolved(self, rest: Sequence[Place]) -> None:
        """Report the symbols that no argument determines."""
        names = sorted({s.name for _, _, d in rest for s in free_dims(d) if s not in self.known})
        shapes = ", ".join(dict.fromkeys(f"`{b.name}` {dims_text(b.shape)}" for b, _, _ in rest))
        raise InferError(
            f"{self.function}: cannot determine `{names[0]}` from the arguments' shapes ({shapes})",
            span=self.span,
            help=f"add a parameter with `{names[0]}` as a dimension of its own, or of the form a*{names[0]} + c",
        )
