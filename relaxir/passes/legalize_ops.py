"""Replace operators by calls of tensor programs in block form.

Before:
    lv0: R.Tensor((n, 4), "f32") = R.add(x, y)
After:
    lv0: R.Tensor((n, 4), "f32") = R.call_tir(Module.add, (x, y), out=R.Tensor((n, 4), "f32"), dims=(n,))
    @T.prim_func
    def add(x: ..., y: ..., out: ...): ...
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final

from relaxir.ir.attrs import attr_dims, map_attrs
from relaxir.ir.expr import Bind, Binding, CallTIR, Constant, Expr, OpCall
from relaxir.ir.module import IRModule
from relaxir.ir.op import Op
from relaxir.ir.rewrite import Rewriter
from relaxir.ir.types import TensorType, TupleType, Type, map_type, type_dims
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.support.errors import UnsupportedError
from relaxir.sym import Dim, DimLike, dim, free_dims, substitute
from relaxir.tir import Const, Load, PrimFunc, const
from relaxir.tir import Expr as TExpr
from relaxir.tir.visit import free_dims_of, map_stmt

HOST_OPS: Final = frozenset({"reshape", "tensor_to_shape"})
"""Operators that stay: a view of memory, and reading dimensions from data."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A program already made: its name, and the caller's symbols it was made from."""

    callee: str
    symbols: tuple[Dim, ...]
    func: PrimFunc


class _Legalizer(Rewriter):
    """One per module: equal calls (up to names of symbols) share a program."""

    def __init__(self, module: IRModule) -> None:
        super().__init__()
        self.module = module
        self.known: dict[Hashable, _Known] = {}

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if not isinstance(new, Bind) or not isinstance(new.value, OpCall) or new.value.op.name in HOST_OPS:
            return (new,)
        return (replace(new, value=self.call(new.value)),)

    def call(self, call: OpCall) -> CallTIR:
        """The program's call in place of the operator's."""
        outs = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
        if not all(isinstance(o, TensorType) for o in outs):
            raise UnsupportedError(
                f"{call.op.name}: a result that is not a tensor reached code generation", span=call.span
            )
        inline = tuple(immediate(a) for a in call.args)
        types = (*(a.type for a in call.args), *outs)
        symbols = symbols_of(types, call)
        key = signature_key(call, types, inline, symbols)
        made = self.known.get(key)
        if made is None:
            made = self.known[key] = self.make(call, outs, inline, symbols)  # type: ignore[arg-type]  # tensors, checked above
        values = dict(zip(made.symbols, symbols, strict=True))
        dims = tuple(values.get(d, d) for d in made.func.dims)
        pairs = zip(call.args, inline, strict=True)
        args = tuple(a for a, c in pairs if c is None and isinstance(a.type, TensorType))
        return CallTIR(made.callee, args, dims, call.type, call.span)

    def make(
        self, call: OpCall, outs: tuple[TensorType, ...], inline: tuple[Const | None, ...], symbols: tuple[Dim, ...]
    ) -> _Known:
        """Lower the operator and add the program to the module."""
        if type(call.op).lower is Op.lower:
            raise UnsupportedError(
                f"{call.op.name}: the operator has no loops of its own",
                code="lower-unsupported",
                span=call.span,
                help="run Decompose before LegalizeOps, as rx.pipelines.DEFAULT does",
            )
        func = call.op.lower(tuple(a.type for a in call.args), call.attrs, outs)  # type: ignore[misc]  # as inferred
        func = with_immediates(
            func, tuple(c for a, c in zip(call.args, inline, strict=True) if isinstance(a.type, TensorType))
        )
        func = replace(func, span=call.span, attrs=MappingProxyType({**func.attrs, "op": call.op.name}))
        name = self.module.unique_name(call.op.name)
        self.module = self.module.with_functions({name: func})
        return _Known(name, symbols, func)


def immediate(arg: Expr) -> Const | None:
    """A one-element constant as a literal of the program; None for everything else."""
    if isinstance(arg, Constant) and arg.data.size == 1 and arg.type.dtype != "bfloat16":
        return const(arg.data.reshape(-1)[0].item(), arg.type.dtype)
    return None


def with_immediates(func: PrimFunc, inline: tuple[Const | None, ...]) -> PrimFunc:
    """Replace the loads of some inputs by literals and drop those parameters."""
    literals = {p: c for p, c in zip(func.inputs, inline, strict=True) if c is not None}
    if not literals:
        return func

    def swap(e: TExpr) -> TExpr:
        return literals.get(e.buffer, e) if isinstance(e, Load) else e

    params = tuple(p for p in func.params if p not in literals)
    body = map_stmt(func.body, on_expr=swap)
    used = set(free_dims_of(params, body))
    return replace(func, params=params, body=body, dims=tuple(d for d in func.dims if d in used))


def symbols_of(types: tuple[Type, ...], call: OpCall) -> tuple[Dim, ...]:
    """Symbols of a call in order of first appearance."""
    found: dict[Dim, None] = {}
    for d in (*(d for t in types for d in type_dims(t)), *attr_dims(call.attrs)):
        for s in free_dims(d):
            found.setdefault(s)
    return tuple(found)


def signature_key(
    call: OpCall, types: tuple[Type, ...], inline: tuple[Const | None, ...], symbols: tuple[Dim, ...]
) -> Hashable:
    """Equal for calls that differ in the names of their symbols only."""
    names: dict[Dim, DimLike] = {
        s: dim(f"d{i}", min=s.min, max=s.max, multiple_of=s.multiple_of) for i, s in enumerate(symbols)
    }

    def rename(d: DimLike) -> DimLike:
        return substitute(d, names)

    return call.op.name, map_attrs(call.attrs, rename), tuple(map_type(t, rename) for t in types), inline


@dataclass(frozen=True)
class LegalizeOps(Pass):
    """Lower every operator to a tensor program in block form; views and size reads stay operators."""

    name: ClassVar[str] = "LegalizeOps"
    ensures: ClassVar[Level | None] = Level.LEGAL

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function, programs shared over the whole module."""
        rewriter = _Legalizer(module)
        for name, func in module.graph_functions().items():
            lowered = rewriter.function(func)  # adds programs to rewriter.module
            rewriter.module = rewriter.module.with_functions({name: lowered})
        return rewriter.module
