"""Find the results that may be written into the memory of an input, should a caller donate it.

Before:
    @R.function
    def main(x: R.Tensor(("n",), "f32")):
        lv0 = R.call_tir(Module.add, (x, R.const(1.0, "f32")), ...)     # reads x[i], writes lv0[i]
        return lv0
After:
    @R.function(reuse=("0>0",))          # the memory of input 0 may hold output 0
    def main(x: R.Tensor(("n",), "f32")):
        lv0 = R.call_tir(Module.add, (x, R.const(1.0, "f32")), ...)
        return lv0

An input qualifies that is not read after the call which makes the result; where that call itself reads it, only if it
does so at exactly the index that it writes. The program of such a call is marked (``donated``), so that the backend
does not tell LLVM that the two are apart. Nothing happens unless a call donates: see `CompiledFunction.donating`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from relaxir.ir.expr import CallDPS, CallTIR, Check, Expr, FuncCall, Function, OpCall, TupleExpr, TupleGetItem, Var
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.rewrite import function_dims, used_vars
from relaxir.ir.types import TensorType, Type, leaf_types
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.sym import Facts, Proof
from relaxir.tir import Block, Buffer, PrimFunc
from relaxir.tir.classify import plain_store, reduce_vars, stages
from relaxir.tir.host import REUSE
from relaxir.tir.visit import reads_of, stores_of


def in_place(func: PrimFunc, source: Buffer, target: Buffer) -> bool:
    """Whether a program in block form may be called with one memory for an input and a result.

    One stage reads the input and writes the result, each point at the same index, before any other stage writes the
    result. No other stage reads the input, and none reduces: partial sums might lie in the result.
    """
    if source.shape != target.shape or source.dtype != target.dtype:
        return False
    written = False
    for stage in stages(func.body):
        if isinstance(stage, Block) and (stage.init is not None or reduce_vars(stage)):
            return False
        store = plain_store(stage)
        stored = any(s.buffer is target for s in stores_of(stage))
        loads = [e for e in reads_of(stage) if e.buffer in (source, target)]
        if stored and not written:
            if store is None or any(e.buffer is target or e.indices != store.indices for e in loads):
                return False
            written = True
        elif any(e.buffer is source for e in loads) or (store is not None and loads):
            return False
    return written


@dataclass(frozen=True)
class _Origin:
    """The call that makes a value."""

    place: int
    call: CallTIR
    item: int = 0


class _Search:
    """The inputs and results of one function that may share memory."""

    def __init__(self, func: Function, programs: Mapping[str, PrimFunc]) -> None:
        self.func = func
        self.programs = programs
        self.roots: dict[Var, frozenset[Var]] = {p: frozenset({p}) for p in func.params}
        self.last: dict[Var, int] = {}
        self.origins: dict[Expr, _Origin] = {}
        self.donated: dict[str, dict[str, None]] = {}

    def run(self) -> tuple[str, ...]:
        """All pairs, in order of the outputs; any choice of them in which nothing stands twice may be used together."""
        bindings = self.func.body.bindings
        for place, b in enumerate(bindings):
            if not isinstance(b, Check):
                seen = self.behind(b.value)
                self.last.update(dict.fromkeys(seen, place))
                fills_own = isinstance(b.value, CallTIR | CallDPS | FuncCall)
                self.roots[b.var] = frozenset() if fills_own else seen
                self.trace(place, b.var, b.value)
        result = self.func.body.result
        self.last.update(dict.fromkeys(self.behind(result), len(bindings)))
        leaves = result.fields if isinstance(result, TupleExpr) else (result,)
        if any(not isinstance(leaf.type, TensorType) for leaf in leaves):
            return ()
        return tuple(self.pairs(leaves))

    def behind(self, value: Expr) -> frozenset[Var]:
        """Parameters whose memory a value reads or names."""
        return frozenset(p for v in used_vars(value) for p in self.roots.get(v, ()))

    def trace(self, place: int, var: Var, value: Expr) -> None:
        """Note which call makes a variable's memory."""
        if isinstance(value, CallTIR):
            self.origins[var] = _Origin(place, value)
        elif isinstance(value, TupleGetItem) and value.value in self.origins:
            self.origins[var] = replace(self.origins[value.value], item=value.index)
        elif isinstance(value, Var) and value in self.origins:
            self.origins[var] = self.origins[value]
        elif isinstance(value, OpCall) and value.op.name == "reshape" and value.args[0] in self.origins:
            self.origins[var] = self.origins[value.args[0]]

    def pairs(self, leaves: tuple[Expr, ...]) -> Iterator[str]:
        """Each output with the inputs that fit."""
        facts = Facts(function_dims(self.func), self.func.where)
        made: set[tuple[int, int]] = set()
        for number, leaf in enumerate(leaves):
            origin = self.origins.get(leaf)
            if origin is None or (origin.place, origin.item) in made:
                continue
            made.add((origin.place, origin.item))
            for place, p in _numbered(self.func.params):
                if _same(p.type, leaf.type, facts) and self.fits(p, origin):
                    yield f"{place}>{number}"

    def fits(self, param: Var, origin: _Origin) -> bool:
        """Whether a call may write its result where a parameter lies; notes the program if it reads the parameter."""
        last = self.last.get(param, -1)
        if last != origin.place:
            return last < origin.place
        reading = [n for n, a in enumerate(origin.call.args) if param in self.behind(a)]
        func = self.programs[origin.call.callee]
        if len(reading) != 1:
            return False
        source, target = func.inputs[reading[0]], func.results[origin.item]
        if not in_place(func, source, target):
            return False
        self.donated.setdefault(origin.call.callee, {}).update({source.name: None, target.name: None})
        return True


def _numbered(params: tuple[Var, ...]) -> Iterator[tuple[int, Var]]:
    """Parameters that are tensors, with their places among all inputs."""
    place = 0
    for p in params:
        if isinstance(p.type, TensorType):
            yield place, p
        place += len(leaf_types(p.type))


def _same(a: Type, b: Type, facts: Facts) -> bool:
    """Whether two tensors have the same type at every size."""
    if not (isinstance(a, TensorType) and isinstance(b, TensorType) and a.rank == b.rank and a.dtype == b.dtype):
        return False
    return all(facts.prove_equal(x, y) is Proof.PROVED for x, y in zip(a.shape, b.shape, strict=True))


@dataclass(frozen=True)
class ReuseInputs(Pass):
    """State which outputs of a function may be written into the memory of a donated input."""

    name: ClassVar[str] = "ReuseInputs"
    requires: ClassVar[Level] = Level.LEGAL

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One search per function that can be called from outside."""
        programs = module.prim_funcs()
        changes: dict[str, AnyFunc | None] = {}
        for name, func in module.graph_functions().items():
            search = _Search(func, programs)
            pairs = () if func.attrs.get("primitive") else search.run()
            others = {k: v for k, v in func.attrs.items() if k != REUSE}
            stated = {**others, REUSE: pairs} if pairs else others
            if stated != func.attrs:
                changes[name] = replace(func, attrs=MappingProxyType(stated))
            for callee, buffers in search.donated.items():
                program = programs[callee]
                known = program.attrs.get("donated", ())
                names = tuple(dict.fromkeys((*(known if isinstance(known, tuple) else ()), *buffers)))
                programs[callee] = replace(program, attrs=MappingProxyType({**program.attrs, "donated": names}))
                changes[callee] = programs[callee]
        return module.with_functions(changes) if changes else module
