"""Writing LLVM functions as text: instructions, scopes, loops.

No LLVM optimisation pipeline runs on the text, so the writer itself does what matters:

1. **Value numbering.** A pure instruction is written once per scope; the same text again gives the same value.
2. **Code motion.** A pure instruction goes to the outermost scope in which its operands exist. A load goes outwards as
   long as nothing on the way stores into its buffer and nothing makes it conditional.

A scope has a *slot*: lines placed just before the nested construct being written, where moved code lands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Union

from relaxir.backends.llvm.emit_value import Value, mangled, vector_type
from relaxir.backends.llvm.ir_text import symbol_text
from relaxir.backends.llvm.target import Target

Lines = list[Union[str, "Lines"]]


@dataclass(slots=True)
class Scope:
    """A region of straight-line or structured code that runs as often as its surroundings say."""

    kind: str
    """``entry``, ``pre`` (before a loop that runs at least once), ``body`` (of a loop) or ``branch``."""
    depth: int
    lines: Lines = field(default_factory=list)
    slot: Lines | None = None
    memo: dict[str, Value] = field(default_factory=dict)
    stored: frozenset[object] = frozenset()
    """Buffers written somewhere in this loop body."""
    guarded: bool = False
    """An assertion stands before what follows: loads must not move out."""
    open: bool = False
    """A ``pre`` scope that runs whenever the scope around it does (constant trip count)."""
    serial: int = 0
    """Differs between all scopes of a function."""


class ModuleText:
    """What the functions of one LLVM module share: declarations and helper functions."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.functions: list[str] = []
        self.defined: set[str] = set()

    def declare(self, name: str, result: str, operands: Sequence[str]) -> None:
        """Declare a function once."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} {symbol_text(name)}({', '.join(operands)}) nounwind"

    def define(self, name: str, text: str) -> None:
        """Add a function that other functions of the module may call by its symbol (with the ``@``)."""
        self.functions.append(text)
        self.defined.add(name)

    def text(self) -> str:
        """Return the module."""
        known = {*self.helpers, *self.defined}
        declared = [text for name, text in self.declarations.items() if name not in known]
        return "\n".join([*declared, LOOP_METADATA, *self.helpers.values(), *self.functions]) + "\n"


LOOP_METADATA: Final = """\
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = !{!"branch_weights", i32 1, i32 10000}
!4 = !{!"branch_weights", i32 10000, i32 1}
!5 = !{i32 1}"""
"""Attached to every loop: unrolling and vector code are this emitter's decision."""


class Writer:
    """Writes one function."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.allocas: list[str] = []
        self.scopes = [Scope("entry", 0)]
        self.block = "entry"
        self._count = 0
        self.version = 0
        self.versions: dict[object, int] = {}

    # ---- lines

    @property
    def scope(self) -> Scope:
        """The innermost scope."""
        return self.scopes[-1]

    def line(self, text: str) -> None:
        """Write one line here."""
        self.scope.lines.append("  " + text)

    def name(self, stem: str = "v") -> str:
        """Return a fresh SSA name."""
        self._count += 1
        return f"%{stem}{self._count}"

    def label(self, stem: str) -> str:
        """Return a fresh block label."""
        self._count += 1
        return f"{stem}{self._count}"

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.scope.lines.append(f"{label}:")
        self.block = label

    def body(self) -> str:
        """Return all lines of the function."""
        out: list[str] = [f"  {text}" for text in self.allocas]
        stack: list[Iterator[str | Lines]] = [iter(self.scopes[0].lines)]
        while stack:
            for item in stack[-1]:
                if isinstance(item, str):
                    out.append(item)
                else:
                    stack.append(iter(item))
                    break
            else:
                stack.pop()
        return "\n".join(out)

    # ---- instructions

    def here(self, text: str, type_: str, width: int = 1, nonneg: bool = False) -> Value:
        """Write an instruction at this very place."""
        name = self.name()
        self.line(f"{name} = {text}")
        return Value(name, type_, width, self.scope.depth, nonneg=nonneg)

    def pure(
        self,
        text: str,
        type_: str,
        width: int,
        operands: Sequence[Value],
        *,
        speculate: bool = True,
        nonneg: bool = False,
    ) -> Value:
        """Write an instruction without effects where its operands first exist, unless it is there already.

        ``speculate=False`` keeps it inside the innermost branch (it is costly, or traps outside).
        """
        level = 0
        for operand in operands:
            level = max(level, operand.level)
        if not speculate:
            level = max(level, self.branch_depth())
        return self._place(level, text, type_, width, nonneg)

    def _place(self, level: int, text: str, type_: str, width: int, nonneg: bool = False, key: str = "") -> Value:
        scope = self.scopes[level]
        memo_key = key or text
        found = scope.memo.get(memo_key)
        if found is not None:
            return found
        self._count += 1
        name = f"%v{self._count}"
        (scope.lines if scope.slot is None else scope.slot).append(f"  {name} = {text}")
        value = Value(name, type_, width, level, nonneg=nonneg)
        scope.memo[memo_key] = value
        return value

    def branch_depth(self) -> int:
        """Return the depth of the innermost branch (0 without one)."""
        for scope in reversed(self.scopes):
            if scope.kind == "branch":
                return scope.depth
        return 0

    def load_level(self, buffer: object, level: int) -> int:
        """Return how far out a load of ``buffer`` may go whose address exists from ``level`` on."""
        depth = self.scope.depth
        while depth > level:
            scope = self.scopes[depth]
            fixed = scope.kind == "branch" or scope.guarded or (scope.kind == "pre" and not scope.open)
            if fixed or buffer in scope.stored:
                break
            depth -= 1
        return depth

    def load(self, text: str, type_: str, width: int, buffer: object, operands: Sequence[Value]) -> Value:
        """Write a load of ``buffer``, moved outwards and shared with an equal one while the content is the same."""
        level = self.load_level(buffer, max((o.level for o in operands), default=0))
        return self._place(level, text, type_, width, key=f"{self.versions.get(buffer, 0)}:{text}")

    def touch(self, buffer: object) -> None:
        """Note a write to ``buffer``: loads before and after differ."""
        self.version += 1
        self.versions[buffer] = self.version

    def touch_all(self, buffers: Iterable[object]) -> None:
        """Note writes to buffers."""
        for buffer in buffers:
            self.touch(buffer)

    def alloca(self, type_: str, count: int, align: int) -> Value:
        """Reserve stack memory for the whole function."""
        name = self.name("slot")
        self.allocas.append(f"{name} = alloca [{max(count, 1)} x {type_}], align {align}")
        return Value(name, "ptr")

    def splat(self, value: Value, width: int) -> Value:
        """Return a scalar in all lanes; a vector of that width as it is."""
        if value.width == width:
            return value
        if not value.text.startswith("%"):
            return Value(
                f"splat ({value.type} {value.text})", value.type, width, number=value.number, nonneg=value.nonneg
            )
        into = self.pure(
            f"insertelement <{width} x {value.type}> poison, {value.typed}, i64 0", value.type, width, (value,)
        )
        return self.pure(
            f"shufflevector {into.typed}, <{width} x {value.type}> poison, <{width} x i32> zeroinitializer",
            value.type, width, (into,), nonneg=value.nonneg,
        )  # fmt: skip

    def lane(self, value: Value, index: int) -> Value:
        """Return one lane."""
        return self.pure(f"extractelement {value.typed}, i64 {index}", value.type, 1, (value,), speculate=False)

    def shuffle(self, a: Value, b: Value, picks: Sequence[int]) -> Value:
        """Return lanes picked from two vectors, those of ``b`` counted on from those of ``a``."""
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.pure(
            f"shufflevector {a.typed}, {b.typed}, <{len(picks)} x i32> <{mask}>", a.type, len(picks), (a, b)
        )

    def pick(self, value: Value, picks: Sequence[int]) -> Value:
        """Return lanes picked from one vector."""
        return self.shuffle(value, Value("poison", value.type, value.width), picks)

    def reversed(self, value: Value) -> Value:
        """Return the lanes from the last to the first."""
        return self.shuffle(value, value, range(value.width - 1, -1, -1))

    def lanes(self, values: Sequence[Value]) -> Value:
        """Return a vector of scalars."""
        width = len(values)
        whole = Value("poison", values[0].type, width)
        for index, value in enumerate(values):
            whole = self.pure(
                f"insertelement {whole.typed}, {value.typed}, i64 {index}", value.type, width, (whole, value)
            )
        return whole

    def call(
        self,
        function: str,
        operands: Sequence[Value],
        type_: str,
        width: int,
        *,
        flags: str = "",
        extra: Sequence[str] = (),
        speculate: bool = True,
    ) -> Value:
        """Call a function without effects; ``extra`` are constant operands such as ``i1 false``."""
        result = vector_type(type_, width)
        types = [o.full_type for o in operands] + [e.split(" ")[0] for e in extra]
        self.module.declare(function, result, types)
        arguments = ", ".join([*(o.typed for o in operands), *extra])
        return self.pure(f"call {flags}{result} @{function}({arguments})", type_, width, operands, speculate=speculate)

    def intrinsic(self, stem: str, *operands: Value, flags: str = "", extra: Sequence[str] = ()) -> Value:
        """Call an LLVM intrinsic overloaded on its first operand, whose type is the result's too."""
        first = operands[0]
        suffix = mangled(first.type, first.width)
        return self.call(f"llvm.{stem}.{suffix}", operands, first.type, first.width, flags=flags, extra=extra)

    def effect(self, function: str, operands: Sequence[str]) -> None:
        """Call a ``void`` function here; operands are ``type value`` with optional attributes between."""
        self.module.declare(function, "void", [_type_of(o) for o in operands])
        self.line(f"call void @{function}({', '.join(operands)})")

    # ---- structure

    @contextmanager
    def nested(self, kind: str, *, stored: frozenset[object] = frozenset(), open_: bool = False) -> Iterator[Scope]:
        """Open a scope whose lines stand here; code moved out of it lands in the slots of the scopes around."""
        outer = self.scope
        if outer.slot is None:
            outer.slot = []
            outer.lines.append(outer.slot)
            mine = True
        else:
            mine = False
        self._count += 1
        inner = Scope(kind, outer.depth + 1, stored=stored, open=open_, serial=self._count)
        outer.lines.append(inner.lines)
        self.scopes.append(inner)
        yield inner
        self.scopes.pop()
        if mine:
            outer.slot = None

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Reserve the place where code moved out of a coming construct lands; then write its branch."""
        outer = self.scope
        outer.slot = []
        outer.lines.append(outer.slot)
        yield
        outer.slot = None

    @contextmanager
    def loop(self, low: Value, high: Value, step: int, stored: frozenset[object], stem: str = "i") -> Iterator[Value]:
        """``for i in range(low, high, step)``, tested before the first iteration only where it may be missing.

        ``high - low`` must be a multiple of ``step``.
        """
        self.touch_all(stored)
        never_empty = low.number is not None and high.number is not None and high.number > low.number
        with self.slot():
            before, body, after = self.label("pre"), self.label("loop"), self.label("done")
            if never_empty:
                self.line(f"br label %{before}")
            else:
                self.line(f"%{before}.c = icmp slt i64 {low.text}, {high.text}")
                self.line(f"br i1 %{before}.c, label %{before}, label %{after}")
            with self.nested("pre", open_=never_empty) as pre:
                self.start(before)
                with self.slot():
                    self.line(f"br label %{body}")
                    with self.nested("body", stored=stored):
                        self.start(body)
                        index = Value(self.name(stem), "i64", level=pre.depth + 1, nonneg=low.nonneg)
                        phi: Lines = []
                        self.scope.lines.append(phi)
                        yield index
                        following = self.name(stem)
                        self.line(f"{following} = add nuw nsw i64 {index.text}, {step}")
                        self.line(f"{following}.c = icmp slt i64 {following}, {high.text}")
                        self.line(f"br i1 {following}.c, label %{body}, label %{after}, !llvm.loop !0")
                        phi.append(
                            f"  {index.text} = phi i64 [ {low.text}, %{before} ], [ {following}, %{self.block} ]"
                        )
        self.start(after)
        self.touch_all(stored)

    def rarely(self, lanes: Value, usual: Value, otherwise: Callable[[], Value]) -> Value:
        """Return ``otherwise()`` in the given lanes, computed only if there are any, and ``usual`` in the others."""
        condition = lanes.text
        if lanes.width > 1:
            condition = self.call(f"llvm.vector.reduce.or.v{lanes.width}i1", (lanes,), "i1", 1).text
        rare, join = self.label("rare"), self.label("join")
        with self.slot():
            before = self.block
            self.line(f"br i1 {condition}, label %{rare}, label %{join}, !prof !3")
            with self.branch(rare, join):
                value = otherwise()
                mixed = self.here(f"select {lanes.typed}, {value.typed}, {usual.typed}", usual.type, usual.width)
                end = self.block
        self.start(join)
        return self.here(
            f"phi {usual.full_type} [ {usual.text}, %{before} ], [ {mixed.text}, %{end} ]", usual.type, usual.width
        )

    @contextmanager
    def branch(self, label: str, goto: str) -> Iterator[None]:
        """Write a conditional block that ends by jumping to ``goto`` (open `slot` around the branch first)."""
        with self.nested("branch"):
            self.start(label)
            yield
            self.line(f"br label %{goto}")


def _type_of(operand: str) -> str:
    """Return the type in ``type value``, ``type attribute value`` or ``<n x type> value``."""
    return operand[: operand.index(">") + 1] if operand.startswith("<") else operand.split(" ", maxsplit=1)[0]
