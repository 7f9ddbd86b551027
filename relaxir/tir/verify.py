"""The verifier of tensor programs: collects every violation of these invariants.

 1. A buffer is a parameter, or defined before its use by an enclosing Alloc or an earlier host statement. What a loop's
    body defines ends with it, and of an If's arms what both define outlives them; so it is with symbols.
 2. A variable is used inside the loop, block or Let that binds it.
 3. No variable or buffer is bound again while it is visible; parameters are distinct.
 4. Every symbol is one of ``dims``, bound by an enclosing Switch, or bound by an earlier BindDim; no two symbols share
    a name.
 5. Indices are int64, as many as the buffer has axes, and a constant index lies inside a constant extent.
 6. Dtypes fit: conditions are bool, loops and sizes int64, a Let's variable has its value's dtype, ``/`` takes floats,
    bitwise operators no floats, shifts integers.
 7. ``outputs`` and ``workspaces`` are counts within the parameters, and parameters have scope GLOBAL.
 8. Reduce axes come after spatial ones; with a reduce axis every store to a buffer from outside the block has a
    ``combine``, and ``init`` uses no reduce axis.
 9. Iterations of PARALLEL and VECTOR loops are independent: a store to a buffer from outside the loop combines, has the
    loop's variable in its indices, or stands under an equality test of that variable.
10. A Switch has at least one case, and its symbol's range holds all of them.
11. STACK and REGISTER buffers have a constant size (symbols of an enclosing Switch count as constants), and so have
    UNROLL loops.
12. An Assert has at most four int64 values, one ``{}`` for each, and the code of an error.
13. Host statements and FRAME buffers stand in host programs only; an Extent names an axis of a parameter.
14. Hints are in range: a prefetch level is 1, 2 or 3, an unroll count at least 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from relaxir.support.dtypes import info
from relaxir.support.errors import VerifyError, codes
from relaxir.sym import Dim, DimLike, free_dims
from relaxir.tir.buffer import Buffer, Scope
from relaxir.tir.expr import Bcast, Binary, BinOp, Bits, Call, Const, Expr, Intrinsic, Load, Select, Size, Var
from relaxir.tir.func import PrimFunc
from relaxir.tir.host import (
    Alias,
    AllocFrame,
    BindDim,
    BufferDef,
    CallKernel,
    Extent,
    Grow,
    InRoom,
    OpenFrame,
    Together,
)
from relaxir.tir.independence import dependent_stores
from relaxir.tir.stmt import (
    Alloc,
    Assert,
    AxisKind,
    Block,
    For,
    ForKind,
    If,
    Let,
    Prefetch,
    Stmt,
    Store,
    Switch,
    While,
)
from relaxir.tir.visit import HOST_STATEMENTS, child_exprs, child_stmts, symbols_after, walk, walk_expr

BITWISE: Final = frozenset({BinOp.AND, BinOp.OR, BinOp.XOR})
SHIFTS: Final = frozenset({BinOp.SHL, BinOp.SHR})
PAGE: Final = "relaxir/tir/verify.py"


def verify_prim_func(name: str, func: PrimFunc) -> tuple[VerifyError, ...]:
    """Every violation in a tensor program, in program order; ``name`` is its name in messages."""
    checker = _Checker(name, func)
    checker.run()
    return tuple(checker.errors)


def violation(page: str, invariant: int, message: str, code: str, **extra: object) -> VerifyError:
    """The error for one violation; it cites the invariant's number."""
    return VerifyError(message, code=code, notes=(f"invariant {invariant} of {page}",), **extra)  # type: ignore[arg-type]  # span and help


class _Checker:
    def __init__(self, name: str, func: PrimFunc) -> None:
        self.name = name
        self.func = func
        self.errors: list[VerifyError] = []
        self.buffers: set[Buffer] = set()
        self.vars: set[Var] = set()
        self.dims: set[Dim] = set()
        self.symbols: dict[str, Dim] = {}
        self.constant_dims: set[Dim] = set()
        self.unrolled: set[Var] = set()

    def fail(self, invariant: int, message: str, code: str) -> None:
        self.errors.append(violation(PAGE, invariant, f"{self.name}: {message}", code, span=self.func.span))

    # ---- the whole program -----------------------------------------------------------------------------------------

    def run(self) -> None:
        func = self.func
        bound = symbols_after(func.body)
        self._bind_dims(func.dims)
        if len(set(func.dims)) != len(func.dims):
            self.fail(4, "a symbol is listed twice in dims", "verify-redefined")
        counts = (func.outputs, func.workspaces, len(func.params) - func.outputs - func.workspaces)
        if min(counts) < 0:
            message = f"{func.outputs} outputs and {func.workspaces} workspaces of {len(func.params)} parameters"
            self.fail(7, message, "verify")
        for p in func.params:
            if p in self.buffers:
                self.fail(3, f"parameter `{p.name}` appears twice", "verify-redefined")
            if p.scope is not Scope.GLOBAL:
                self.fail(7, f"parameter `{p.name}` has scope {p.scope.value}", "verify-buffer")
            self.buffers.add(p)
            for d in p.shape:
                self._dim(d, f"parameter `{p.name}`", also=bound)
        self.stmt(func.body)

    def _bind_dims(self, dims: Iterable[Dim]) -> None:
        for d in dims:
            if self.symbols.setdefault(d.name, d) != d:
                self.fail(4, f"two different symbols are named `{d.name}`", "verify-redefined")
            self.dims.add(d)

    def _dim(self, expr: DimLike, where: str, also: Iterable[Dim] = ()) -> None:
        for d in free_dims(expr):
            if d not in self.dims and d not in also:
                self.fail(4, f"symbol `{d.name}` of {where} is not bound", "verify-scope")

    @contextmanager
    def _inside(self, *items: Var | Buffer) -> Iterator[None]:
        """Bind variables and buffers inside the ``with``."""
        added: list[Var | Buffer] = []
        for item in items:
            if item in self.vars or item in self.buffers:
                self.fail(3, f"`{item.name}` is bound again while it is visible", "verify-redefined")
                continue
            added.append(item)
            if isinstance(item, Var):
                self.vars.add(item)
            else:
                self.buffers.add(item)
        yield
        self.vars.difference_update(added)
        self.buffers.difference_update(added)

    def _arms(self, arms: Sequence[Stmt], *, one_runs: bool) -> None:
        """Bodies of a statement; what each of them defines outlives it where ``one_runs``."""
        dims, buffers = self.dims, self.buffers
        ends: list[tuple[set[Dim], set[Buffer]]] = []
        for arm in arms:
            self.dims, self.buffers = set(dims), set(buffers)
            self.stmt(arm)
            ends.append((self.dims, self.buffers))
        self.dims = set.intersection(*(d for d, _ in ends)) if one_runs else dims
        self.buffers = set.intersection(*(b for _, b in ends)) if one_runs else buffers

    # ---- statements ------------------------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        bound = s.var if isinstance(s, For | Let) else None
        for e in child_exprs(s):
            if e is not bound:
                self.expr(e)
        if isinstance(s, Store | Prefetch):
            self._element(s.buffer, s.indices)
        if isinstance(s, For):
            self._for(s)
        elif isinstance(s, Block):
            self._block(s)
        elif isinstance(s, Let):
            if s.var.dtype != s.value.dtype:
                self.fail(6, f"`{s.var.name}` is {s.var.dtype}, its value {s.value.dtype}", "verify-type")
            with self._inside(s.var):
                self.stmt(s.body)
        elif isinstance(s, Alloc):
            self._allocation(s.buffer)
            with self._inside(s.buffer):
                self.stmt(s.body)
        elif isinstance(s, Switch):
            self._switch(s)
        elif isinstance(s, If | While):
            if s.cond.dtype != "bool":
                self.fail(6, f"a condition is {s.cond.dtype}, not bool", "verify-type")
            self._arms(child_stmts(s), one_runs=isinstance(s, If) and s.other is not None)
        else:
            self._leaf(s)
            for child in child_stmts(s):
                self.stmt(child)

    def _for(self, s: For) -> None:
        if s.var.dtype != "int64" or s.extent.dtype != "int64":
            self.fail(6, f"loop `{s.var.name}` is not int64", "verify-type")
        if s.unroll < 1:
            self.fail(14, f"loop `{s.var.name}` has unroll count {s.unroll}", "verify")
        if s.kind is ForKind.UNROLL and not self._is_constant(s.extent):
            self.fail(11, f"unrolled loop `{s.var.name}` has no constant extent", "verify")
        if s.kind in (ForKind.PARALLEL, ForKind.VECTOR):
            for store in dependent_stores(s.var, s.body):
                message = f"iterations of the {s.kind.value} loop `{s.var.name}` all store to `{store.buffer.name}`"
                self.fail(9, message, "verify")
        if s.kind is ForKind.UNROLL:
            self.unrolled.add(s.var)
        with self._inside(s.var):
            self._arms((s.body,), one_runs=False)
        self.unrolled.discard(s.var)

    def _block(self, s: Block) -> None:
        kinds = [a.kind for a in s.axes]
        if kinds != sorted(kinds, key=lambda k: k is AxisKind.REDUCE):
            self.fail(8, f"block `{s.name}` has a spatial axis after a reduce axis", "verify")
        for a in s.axes:
            self._dim(a.extent, f"axis `{a.var.name}` of block `{s.name}`")
            if a.var.dtype != "int64":
                self.fail(6, f"axis `{a.var.name}` of block `{s.name}` is not int64", "verify-type")
        reduce = {a.var for a in s.axes if a.kind is AxisKind.REDUCE}
        if reduce:
            own = {x.buffer for x in walk(s.body) if isinstance(x, Alloc)}
            for store in walk(s.body):
                if isinstance(store, Store) and store.combine is None and store.buffer not in own:
                    message = f"block `{s.name}` stores to `{store.buffer.name}` under a reduce axis without combining"
                    self.fail(8, message, "verify")
        if s.init is not None:
            with self._inside(*(a.var for a in s.axes if a.kind is AxisKind.SPATIAL)):
                self.stmt(s.init)
        with self._inside(*(a.var for a in s.axes)):
            self.stmt(s.body)

    def _allocation(self, b: Buffer) -> None:
        for d in b.shape:
            self._dim(d, f"buffer `{b.name}`")
        small = b.scope in (Scope.STACK, Scope.REGISTER)
        if small and any(d not in self.constant_dims for extent in b.shape for d in free_dims(extent)):
            self.fail(11, f"{b.scope.value} buffer `{b.name}` has no constant size", "verify-buffer")

    def _switch(self, s: Switch) -> None:
        if s.low >= s.high:
            self.fail(10, f"the switch over `{s.dim.name}` has no case", "verify")
        elif s.dim.min > s.low or (s.dim.max is not None and s.dim.max < s.high - 1):
            self.fail(10, f"the range of `{s.dim.name}` lacks a case of its switch", "verify")
        if s.dim in self.dims:
            self.fail(3, f"`{s.dim.name}` is bound again while it is visible", "verify-redefined")
            self.stmt(s.body)
            return
        self._bind_dims((s.dim,))
        self.constant_dims.add(s.dim)
        self.stmt(s.body)
        self.constant_dims.discard(s.dim)
        self.dims.discard(s.dim)
        self.symbols.pop(s.dim.name, None)

    def _leaf(self, s: Stmt) -> None:
        if isinstance(s, Assert):
            self._assert(s)
        elif isinstance(s, Prefetch) and s.level not in (1, 2, 3):
            self.fail(14, f"prefetch of `{s.buffer.name}` at level {s.level}", "verify")
        elif isinstance(s, HOST_STATEMENTS):
            self._host(s)

    def _assert(self, s: Assert) -> None:
        if len(s.args) > 4 or any(a.dtype != "int64" for a in s.args):
            self.fail(12, "an assertion has values that are not int64, or more than four", "verify")
        if s.message.count("{}") != len(s.args):
            self.fail(
                12, f"the message of an assertion has {s.message.count('{}')} places for {len(s.args)} values", "verify"
            )
        if s.code not in codes():
            self.fail(12, f"an assertion has the unknown code `{s.code}`", "verify")
        if s.cond.dtype != "bool":
            self.fail(6, f"an assertion's condition is {s.cond.dtype}, not bool", "verify-type")

    # ---- host statements -------------------------------------------------------------------------------------------

    def _host(self, s: Stmt) -> None:
        if not self.func.is_host:
            self.fail(13, f"{type(s).__name__} stands in a kernel", "verify-level")
        if isinstance(s, BindDim):
            if s.value.dtype != "int64":
                self.fail(6, f"symbol `{s.dim.name}` is bound to {s.value.dtype}, not int64", "verify-type")
            self._bind_dims((s.dim,))
        elif isinstance(s, Together):
            for call in s.calls:
                self._host(call)
        elif isinstance(s, CallKernel):
            for d in s.dims:
                self._dim(d, f"the call of `{s.callee}`")
        elif isinstance(s, OpenFrame):
            self._dim(s.size, f"frame {s.frame}")
        elif isinstance(s, Grow):
            self._dim(s.size, f"room {s.room}")
        if isinstance(s, BufferDef):
            offset = s.offset if isinstance(s, Alias | AllocFrame | InRoom) else None
            for d in (*s.buffer.shape, *(() if offset is None else (offset,))):
                self._dim(d, f"buffer `{s.buffer.name}`")
        for b in used_buffers(s):
            self._defined(b)
        if isinstance(s, BufferDef):
            self.buffers.add(s.buffer)  # visible until the function ends

    def _defined(self, b: Buffer) -> None:
        if b not in self.buffers:
            self.fail(1, f"buffer `{b.name}` is used where nothing before defines it", "verify-use-before-def")
            self.buffers.add(b)  # one report is enough

    # ---- expressions -----------------------------------------------------------------------------------------------

    def expr(self, e: Expr) -> None:
        for x in walk_expr(e):
            if isinstance(x, Var) and x not in self.vars:
                self.fail(2, f"variable `{x.name}` is used outside what binds it", "verify-scope")
            elif isinstance(x, Load):
                self._element(x.buffer, x.indices)
            elif isinstance(x, Size):
                self._dim(x.expr, "an expression")
            elif isinstance(x, Bcast):
                self._dim(x.extent, "an expression")
                if x.index.dtype != "int64":
                    self.fail(6, f"a broadcast index is {x.index.dtype}, not int64", "verify-type")
            elif isinstance(x, Extent):
                self._extent(x)
            else:
                self._dtypes(x)

    def _element(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        self._defined(b)
        for axis, (i, extent) in enumerate(zip(indices, b.shape, strict=False)):
            if i.dtype != "int64":
                self.fail(5, f"index {axis} of `{b.name}` is {i.dtype}, not int64", "verify-buffer")
            elif isinstance(i, Const) and isinstance(extent, int) and extent and not 0 <= i.value < extent:
                self.fail(5, f"index {i.value} is outside axis {axis} of `{b.name}` of size {extent}", "verify-buffer")

    def _extent(self, x: Extent) -> None:
        if not self.func.is_host or x.buffer not in self.func.params or not 0 <= x.axis < len(x.buffer.shape):
            self.fail(
                13, f"axis {x.axis} of `{x.buffer.name}` is not one of a host program's parameter", "verify-buffer"
            )

    def _dtypes(self, x: Expr) -> None:
        if isinstance(x, Select) and x.cond.dtype != "bool":
            self.fail(6, f"the condition of a select is {x.cond.dtype}, not bool", "verify-type")
        elif isinstance(x, Bits) and info(x.dtype).bits != info(x.value.dtype).bits:
            self.fail(6, f"bits of {x.value.dtype} read as {x.dtype}", "verify-type")
        elif isinstance(x, Call) and x.fn is Intrinsic.NOT and info(x.dtype).is_float:
            self.fail(6, f"`not` of {x.dtype}", "verify-type")
        elif isinstance(x, Binary):
            kind = info(x.a.dtype)
            wrong = (
                (x.op is BinOp.DIV and not kind.is_float)
                or (x.op in BITWISE and kind.is_float)
                or (x.op in SHIFTS and not kind.is_integer)
            )
            if wrong:
                self.fail(6, f"`{x.op.value}` of {x.a.dtype}", "verify-type")

    def _is_constant(self, e: Expr) -> bool:
        """Whether an extent is known when code is made."""
        for x in walk_expr(e):
            if isinstance(x, Load | Extent | Bcast) or (isinstance(x, Var) and x not in self.unrolled):
                return False
            if isinstance(x, Size) and any(d not in self.constant_dims for d in free_dims(x.expr)):
                return False
        return True


def used_buffers(s: Stmt) -> tuple[Buffer, ...]:
    """Buffers that a host statement reads or writes, without the one it defines."""
    found: list[Buffer] = []
    for name in ("source", "target", "args", "outputs"):
        value = getattr(s, name, ())
        found.extend(value if isinstance(value, tuple) else (value,))
    return tuple(found)
