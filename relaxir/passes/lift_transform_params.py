"""Transform weights once, at compile time.

Before:
    lv0 = R.call_tir(Module.matmul, (x, R.const("w")), ...)            # w: (768, 3072)
After:
    lv0 = R.call_tir(Module.matmul, (x, R.const("w_packed")), ...)     # w_packed: (192, 768, 16)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relaxir.cost import Config
from relaxir.ir.expr import CallTIR, Constant, Expr
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.numbering import ConstantNumbers
from relaxir.ir.rewrite import Rewriter, called_programs, map_functions
from relaxir.ir.types import TensorType
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.passes.fold_constant import constant
from relaxir.runtime.interp import run_prim_func
from relaxir.schedule import contraction_plans, pack_func, rewrite_to_packed
from relaxir.support.dtypes import info
from relaxir.tir import PrimFunc


@dataclass(frozen=True, slots=True)
class _Packed:
    """A program rewritten for packed operands, and the programs that pack them, by position."""

    func: PrimFunc
    packers: Mapping[int, PrimFunc]


def pack_program(func: PrimFunc, constant_args: frozenset[int]) -> _Packed | None:
    """The rewritten program, or None when no constant operand has a packed layout."""
    text = func.attrs.get("config")
    config = Config.parse(text) if isinstance(text, str) and text else Config()
    packers: dict[int, PrimFunc] = {}
    for plan in contraction_plans(func, config):
        if plan.operand in constant_args and plan.operand not in packers:
            packer = pack_func(func, plan.operand, config)
            if not packer.dims:
                packers[plan.operand] = packer
                func = rewrite_to_packed(func, plan.operand, config)
    return _Packed(func, packers) if packers else None


class _Lifter(Rewriter):
    """Replaces constant operands by their packed forms, each packed once."""

    def __init__(self, packed: Mapping[str, _Packed]) -> None:
        super().__init__()
        self.packed = packed
        self.done: dict[tuple[str, int, int], Constant] = {}
        self.numbers = ConstantNumbers()

    def expr(self, expr: Expr) -> Expr:
        out = super().expr(expr)
        if not isinstance(out, CallTIR) or out.callee not in self.packed:
            return out
        args = list(out.args)
        for position, packer in self.packed[out.callee].packers.items():
            weight = args[position]
            assert isinstance(weight, Constant)
            args[position] = self.pack(out.callee, position, packer, weight)
        return replace(out, args=tuple(args))

    def pack(self, callee: str, position: int, packer: PrimFunc, weight: Constant) -> Constant:
        """Run the packing program on a weight."""
        key = (callee, position, self.numbers(weight))
        if key not in self.done:
            result = packer.results[0]
            out = np.zeros(tuple(int(d) for d in result.shape), info(result.dtype).numpy)
            run_prim_func(packer, (weight.data, out), {})
            self.done[key] = Constant(constant(out, result.dtype).data, TensorType(result.shape, result.dtype))
        return self.done[key]


@dataclass(frozen=True)
class LiftTransformParams(Pass):
    """Give constant factors of contractions the packed layout of their program's configuration."""

    name: ClassVar[str] = "LiftTransformParams"
    requires: ClassVar[Level] = Level.LEGAL

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Pack operands that are constant in every call of a program."""
        calls: dict[str, list[CallTIR]] = {}
        for func in module.graph_functions().values():
            for call in called_programs(func):
                calls.setdefault(call.callee, []).append(call)
        packed: dict[str, _Packed] = {}
        for name, uses in calls.items():
            always = frozenset(
                i for i, _ in enumerate(uses[0].args) if all(isinstance(u.args[i], Constant) for u in uses)
            )
            found = pack_program(module.prim_funcs()[name], always) if always else None
            if found is not None:
                packed[name] = found
        if not packed:
            return module
        lifter = _Lifter(packed)
        changes: dict[str, AnyFunc | None] = {n: p.func for n, p in packed.items()}
        return map_functions(module, lifter.function).with_functions(changes)
