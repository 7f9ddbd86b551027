"""The calls of tensor programs in one block, as fusion sees them: who reads what, where, and what repeating costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from relaxir.ir.expr import Bind, Binding, BindingBlock, CallTIR, Check, Var
from relaxir.ir.rewrite import used_vars
from relaxir.ir.types import TensorType
from relaxir.tir import Block, Buffer, Call, Load, PrimFunc, Stmt, Store
from relaxir.tir import Var as TVar
from relaxir.tir.access import is_identity, variables_of
from relaxir.tir.classify import Pattern, stages
from relaxir.tir.expr import CHEAP_INTRINSICS
from relaxir.tir.visit import all_exprs, stores_of, walk

INJECTIVE: Final = frozenset({Pattern.ELEMENTWISE, Pattern.BROADCAST, Pattern.INJECTIVE})
POINTWISE: Final = frozenset({Pattern.ELEMENTWISE, Pattern.BROADCAST})
MOST_LOADS: Final = 3
"""Loads of a program that is cheap to repeat."""


@dataclass(frozen=True, slots=True, eq=False)
class FusableCall:
    """A call that may be computed together with others, and the program that it calls.

    Attributes:
        position: of its binding in the block.
        binding: what it is bound to.
        value: the call.
        program: what is called.
        pattern: what that is, as `ClassifyPatterns` found; never opaque.
    """

    position: int
    binding: Bind
    value: CallTIR
    program: PrimFunc
    pattern: Pattern

    @property
    def var(self) -> Var:
        """The variable of the result."""
        return self.binding.var

    @property
    def type(self) -> TensorType | None:
        """Type of the result; None for several tensors."""
        return self.var.type if isinstance(self.var.type, TensorType) else None

    @property
    def heavy(self) -> bool:
        """Whether it reduces: it keeps loops of its own."""
        return self.pattern not in INJECTIVE

    @property
    def pointwise(self) -> bool:
        """Whether each element is computed from one element of each operand, at the same point."""
        return self.pattern in POINTWISE

    def same_shape(self, other: FusableCall) -> bool:
        """Whether two calls give tensors of one shape."""
        return self.type is not None and other.type is not None and self.type.shape == other.type.shape

    # ---- where it reads --------------------------------------------------------------------------------------------

    def params_of(self, var: Var) -> set[Buffer]:
        """Parameters of the program for which ``var`` is passed."""
        tensors = [a for a in self.value.args if isinstance(a.type, TensorType)]
        return {p for p, a in zip(self.program.inputs, tensors, strict=True) if a is var}

    def loads(self, var: Var) -> list[Load]:
        """Where it reads ``var``."""
        params = self.params_of(var)
        return [e for e in _loads(self.program) if e.buffer in params]

    def reads_at_own_point(self, var: Var) -> bool:
        """Whether it reads ``var`` only at the indices at which it stores its result."""
        stores = stores_of(self.program.body)
        if len(stores) != 1 or not isinstance(self.program.body, Block):
            return False
        shape = self.program.results[0].shape
        return all(e.indices == stores[0].indices and e.buffer.shape == shape for e in self.loads(var))

    def reads_once(self, var: Var) -> bool:
        """Whether its only stage reads each element of ``var`` at one of its points: no axis is left out."""
        body, loads = self.program.body, self.loads(var)
        return isinstance(body, Block) and len(loads) == 1 and not _missing_axes(body, loads[0])

    def reads_own_rows(self, var: Var) -> bool:
        """Whether every stage reads ``var`` only in the row that it works on."""
        params = self.params_of(var)
        return all(
            _in_own_row(stage, load)
            for stage in stages(self.program.body)
            for load in all_exprs(stage)
            if isinstance(load, Load) and load.buffer in params
        )

    # ---- what repeating it costs -----------------------------------------------------------------------------------

    @property
    def single(self) -> bool:
        """Whether it gives one element."""
        return self.type is not None and all(d == 1 for d in self.type.shape)

    @property
    def cheap(self) -> bool:
        """Whether recomputing an element costs less than storing and loading it."""
        body = self.program.body
        costly = any(isinstance(e, Call) and e.fn not in CHEAP_INTRINSICS for e in all_exprs(body))
        reduces = any(isinstance(s, Block) and s.init is not None for s in walk(body))
        return not costly and not reduces and len(_loads(self.program)) <= MOST_LOADS

    @property
    def repeatable(self) -> bool:
        """Whether all its readers had better run it again.

        It is cheap, and reads only tensors that lack a whole axis of its result, or only moves what it reads.
        """
        body = self.program.body
        if not self.pointwise or not isinstance(body, Block) or not isinstance(body.body, Store) or not self.cheap:
            return False
        loads = _loads(self.program)
        return isinstance(body.body.value, Load) or (bool(loads) and all(_missing_axes(body, e) for e in loads))


class BlockCalls:
    """The calls of one block that may be fused, by position, and which of them read a variable."""

    def __init__(self, block: BindingBlock, outside: set[Var], programs: Mapping[str, PrimFunc]) -> None:
        self.at: dict[int, FusableCall] = {}
        self._readers: dict[Var, list[FusableCall]] = {}
        self._needed = outside | set(block.outputs)  # by others than the calls
        for position, b in enumerate(block.bindings):
            call = _fusable(position, b, programs)
            if call is not None:
                self.at[position] = call
            if isinstance(b, Check):
                continue
            for var in dict.fromkeys(used_vars(b.value)):
                if call is None:
                    self._needed.add(var)
                else:
                    self._readers.setdefault(var, []).append(call)

    def readers(self, call: FusableCall) -> tuple[FusableCall, ...]:
        """The calls that read a result; none where something else needs it too."""
        return () if call.var in self._needed else tuple(self._readers.get(call.var, ()))


def _fusable(position: int, b: Binding, programs: Mapping[str, PrimFunc]) -> FusableCall | None:
    if not isinstance(b, Bind) or not isinstance(b.value, CallTIR) or b.defines:
        return None
    program = programs[b.value.callee]
    pattern = Pattern[str(program.attrs.get("pattern", "opaque")).upper()]
    several = not isinstance(b.value.type, TensorType)
    if pattern is Pattern.OPAQUE or (several and pattern in INJECTIVE):
        return None
    return FusableCall(position, b, b.value, program, pattern)


def _loads(program: PrimFunc) -> list[Load]:
    return [e for e in all_exprs(program.body) if isinstance(e, Load)]


def _missing_axes(block: Block, load: Load) -> set[TVar]:
    """Axes of more than one point along which a load stays where it is."""
    return {a.var for a in block.axes if a.extent != 1} - {v for i in load.indices for v in variables_of(i)}


def _in_own_row(stage: Stmt, load: Load) -> bool:
    """Whether a load is at the stage's leading axes, and anywhere along the row."""
    axes = tuple(a.var for a in stage.axes) if isinstance(stage, Block) else ()
    *row, last = load.indices
    return isinstance(last, TVar) and is_identity(tuple(row), axes[: len(row)])
