"""A slow, obvious evaluator of block programs, one scalar at a time: what the contract tests compare references with.

Programs become Python source over NumPy scalars, so it shares nothing with the interpreter of the package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxir.support.bfloat16 import bfloat16_to_float32, float32_to_bfloat16
from relaxir.support.dtypes import info
from relaxir.sym import evaluate
from relaxir.tir import (
    Alloc,
    Assert,
    AxisKind,
    Bcast,
    Binary,
    BinOp,
    Bits,
    Block,
    Buffer,
    Call,
    Cast,
    Combine,
    Const,
    Expr,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    PrimFunc,
    Select,
    Seq,
    Size,
    Stmt,
    Store,
    Switch,
    Var,
    While,
    Word,
)  # fmt: skip

ARRAY = {"bfloat16": np.dtype(np.float32)}


class Failure(Exception):
    """An Assert of the program did not hold."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def np_dtype(dtype: str) -> np.dtype[Any]:
    return ARRAY.get(dtype, info(dtype).numpy)


def convert(value: Any, dtype: str) -> Any:
    target = np_dtype(dtype)
    if dtype == "bool":
        return np.bool_(value != 0)
    if target.kind in "iu" and isinstance(value, np.floating):
        if np.isnan(value):
            return target.type(0)
        limits = np.iinfo(target)
        return target.type(
            max(
                limits.min,
                min(limits.max, int(value) if np.isfinite(value) else (limits.max if value > 0 else limits.min)),
            )
        )
    out = np.asarray(value).astype(target)[()]
    return bfloat16_to_float32(float32_to_bfloat16(np.asarray(out)))[()] if dtype == "bfloat16" else out


def bits(value: Any, source: str, target: str) -> Any:
    held = float32_to_bfloat16(np.asarray(value)) if source == "bfloat16" else np.asarray(value, info(source).numpy)
    if target == "bool":
        return np.bool_(held != 0)
    seen = held.view(info(target).numpy)
    return bfloat16_to_float32(seen)[()] if target == "bfloat16" else seen[()]


def trunc_div(a: Any, b: Any) -> Any:
    q = abs(int(a)) // abs(int(b))
    return np.asarray(q if (int(a) < 0) == (int(b) < 0) else -q).astype(a.dtype)[()]


def word(*parts: Any) -> Any:
    return np.array(parts).view(np.int32)[0]


def dot4(a: Any, b: Any) -> Any:
    unsigned, signed = np.array([a]).view(np.uint8).astype(np.int32), np.array([b]).view(np.int8).astype(np.int32)
    return np.sum(unsigned * signed, dtype=np.int32)


BINARY = {
    BinOp.ADD: np.add, BinOp.SUB: np.subtract, BinOp.MUL: np.multiply, BinOp.DIV: np.divide, BinOp.FLOORDIV: np.floor_divide,
    BinOp.MOD: np.mod, BinOp.TRUNCDIV: trunc_div, BinOp.TRUNCMOD: np.fmod, BinOp.POW: np.power, BinOp.MIN: np.minimum,
    BinOp.MAX: np.maximum, BinOp.AND: np.bitwise_and, BinOp.OR: np.bitwise_or, BinOp.XOR: np.bitwise_xor, BinOp.SHL: np.left_shift,
    BinOp.SHR: np.right_shift, BinOp.EQ: np.equal, BinOp.NE: np.not_equal, BinOp.LT: np.less, BinOp.LE: np.less_equal,
    BinOp.GT: np.greater, BinOp.GE: np.greater_equal, BinOp.ATAN2: np.arctan2,
    BinOp.DOT4: dot4,
}  # fmt: skip
CALLS = {
    Intrinsic.NEG: np.negative, Intrinsic.ABS: np.abs, Intrinsic.NOT: np.invert, Intrinsic.SIGN: np.sign, Intrinsic.EXP: np.exp, Intrinsic.EXP_NONPOSITIVE: np.exp,
    Intrinsic.EXPM1: np.expm1, Intrinsic.LOG: np.log, Intrinsic.LOG1P: np.log1p, Intrinsic.LOG2: np.log2, Intrinsic.SQRT: np.sqrt,
    Intrinsic.RSQRT: lambda x: x.dtype.type(1) / np.sqrt(x), Intrinsic.SIN: np.sin, Intrinsic.COS: np.cos, Intrinsic.TAN: np.tan,
    Intrinsic.ASIN: np.arcsin, Intrinsic.ACOS: np.arccos, Intrinsic.ATAN: np.arctan, Intrinsic.SINH: np.sinh, Intrinsic.COSH: np.cosh,
    Intrinsic.TANH: np.tanh, Intrinsic.ASINH: np.arcsinh, Intrinsic.ACOSH: np.arccosh, Intrinsic.ATANH: np.arctanh,
    Intrinsic.NORMAL_CDF: lambda x: x.dtype.type(math.erfc(-x * math.sqrt(0.5)) / 2),
    Intrinsic.ERF: lambda x: x.dtype.type(math.erf(x)), Intrinsic.SIGMOID: lambda x: x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x)),
    Intrinsic.FLOOR: np.floor, Intrinsic.CEIL: np.ceil, Intrinsic.ROUND: np.rint, Intrinsic.TRUNC: np.trunc, Intrinsic.ISNAN: np.isnan,
    Intrinsic.ISINF: np.isinf,
}  # fmt: skip
COMBINE = {
    Combine.SUM: np.add, Combine.PROD: np.multiply, Combine.MAX: np.maximum, Combine.MIN: np.minimum, Combine.AND: np.logical_and,
    Combine.OR: np.logical_or,
}  # fmt: skip


class _Source:
    """Turns one program, at fixed sizes, into Python source."""

    def __init__(self, env: Mapping[str, int]) -> None:
        self.env = env
        self.names: dict[object, str] = {}
        self.globals: dict[str, Any] = {
            "np": np,
            "bits": bits,
            "convert": convert,
            "Failure": Failure,
            "_at": _at,
            "word": word,
        }
        self.lines: list[str] = []

    def share(self, value: object, stem: str) -> str:
        if value not in self.names:
            self.names[value] = f"{stem}{len(self.names)}"
            self.globals[self.names[value]] = value
        return self.names[value]

    def name(self, node: Var | Buffer) -> str:
        return self.names.setdefault(node, f"v{len(self.names)}")

    def size(self, d: Any) -> int:
        return evaluate(d, self.env)

    def literal(self, value: Any, dtype: str) -> str:
        key = ("const", dtype, np.asarray(value).tobytes())
        self.names.setdefault(key, f"c{len(self.names)}")
        self.globals[self.names[key]] = (
            convert(np.asarray(value)[()], dtype)
            if not isinstance(value, int)
            else np.asarray(value).astype(np_dtype(dtype))[()]
        )
        return self.names[key]

    def expr(self, e: Expr) -> str:
        if isinstance(e, Const):
            return str(e.value) if e.dtype == "int64" and e.value >= 0 else self.literal(e.value, e.dtype)
        if isinstance(e, Var):
            return self.name(e)
        if isinstance(e, Size):
            return str(self.size(e.expr))
        if isinstance(e, Word):
            *rows, first = e.indices
            parts = [Load(e.buffer, (*rows, first + k)) for k in range(4)]
            return f"word({', '.join(map(self.expr, parts))})"
        if isinstance(e, Load):
            return f"_at({self.name(e.buffer)}, ({''.join(self.expr(i) + ', ' for i in e.indices)}))"
        if isinstance(e, Binary):
            a, b = self.expr(e.a), self.expr(e.b)
            if e.a.dtype == "int64":
                a, b = f"np.int64({a})", f"np.int64({b})"
            return f"{self.share(BINARY[e.op], 'f')}({a}, {b})"
        if isinstance(e, Call):
            return f"{self.share(CALLS[e.fn], 'f')}({self.expr(e.arg)})"
        if isinstance(e, Bits):
            return f"bits({self.expr(e.value)}, {e.value.dtype!r}, {e.dtype!r})"
        if isinstance(e, Cast):
            inner = self.expr(e.value)
            return (
                f"convert(np.int64({inner}), {e.dtype!r})"
                if e.value.dtype == "int64"
                else f"convert({inner}, {e.dtype!r})"
            )
        if isinstance(e, Select):
            return f"({self.expr(e.then)} if {self.expr(e.cond)} else {self.expr(e.other)})"
        if isinstance(e, Bcast):
            return "0" if self.size(e.extent) == 1 else self.expr(e.index)
        raise NotImplementedError(type(e).__name__)

    def emit(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def stmt(self, s: Stmt, depth: int) -> None:
        if isinstance(s, Seq):
            for child in s.stmts:
                self.stmt(child, depth)
            if not s.stmts:
                self.emit(depth, "pass")
        elif isinstance(s, Block):
            self.block(s, depth)
        elif isinstance(s, Store):
            target = f"{self.name(s.buffer)}, ({''.join(self.expr(i) + ', ' for i in s.indices)})"
            value = self.expr(s.value)
            if s.combine is not None:
                value = f"{self.share(COMBINE[s.combine], 'f')}(_at({target}), {value})"
            if s.buffer.dtype == "bfloat16":
                value = f"convert({value}, 'bfloat16')"
            self.emit(
                depth,
                f"_at({target}); {self.name(s.buffer)}[({''.join(self.expr(i) + ', ' for i in s.indices)})] = {value}",
            )
        elif isinstance(s, Alloc):
            shape = tuple(self.size(d) for d in s.buffer.shape)
            fill = "np.nan" if np_dtype(s.buffer.dtype).kind == "f" else "77"
            self.emit(
                depth, f"{self.name(s.buffer)} = np.full({shape}, {fill}).astype({np_dtype(s.buffer.dtype).name!r})"
            )
            self.stmt(s.body, depth)
        elif isinstance(s, For):
            self.emit(depth, f"for {self.name(s.var)} in range({self.expr(s.extent)}):")
            self.stmt(s.body, depth + 1)
        elif isinstance(s, While):
            self.emit(depth, f"while {self.expr(s.cond)}:")
            self.stmt(s.body, depth + 1)
        elif isinstance(s, Let):
            self.emit(depth, f"{self.name(s.var)} = {self.expr(s.value)}")
            self.stmt(s.body, depth)
        elif isinstance(s, If):
            self.emit(depth, f"if {self.expr(s.cond)}:")
            self.stmt(s.then, depth + 1)
            if s.other is not None:
                self.emit(depth, "else:")
                self.stmt(s.other, depth + 1)
        elif isinstance(s, Assert):
            args = ", ".join(map(self.expr, s.args))
            self.emit(depth, f"if not {self.expr(s.cond)}: raise Failure({s.code!r}, {s.message!r}.format({args}))")
        else:
            self.rare(s, depth)

    def rare(self, s: Stmt, depth: int) -> None:
        if not isinstance(s, Switch):
            raise NotImplementedError(type(s).__name__)
        outside = self.env
        for case in range(s.low, s.high):
            self.env = {**outside, s.dim.name: case}
            self.emit(depth, f"if {self.expr(s.value)} == {case}:")
            self.stmt(s.body, depth + 1)
        self.env = outside

    def block(self, s: Block, depth: int) -> None:
        started = s.init is None
        for axis in s.axes:
            if axis.kind is AxisKind.REDUCE and not started:
                started = True
                self.stmt(s.init, depth)  # type: ignore[arg-type]  # a reduction has one
            self.emit(depth, f"for {self.name(axis.var)} in range({self.size(axis.extent)}):")
            depth += 1
        if not started:
            self.stmt(s.init, depth)  # type: ignore[arg-type]  # a reduction has one
        self.stmt(s.body, depth)


def _at(array: np.ndarray, index: tuple[int, ...]) -> Any:
    """Bounds-checked element: negative indices are errors of the program, not Python's wrap-around."""
    assert all(0 <= i < n for i, n in zip(index, array.shape, strict=True)), f"index {index} of shape {array.shape}"
    return array[index]


def run_blocks(func: PrimFunc, inputs: Sequence[np.ndarray], env: Mapping[str, int]) -> tuple[np.ndarray, ...]:
    """Run a block program on arrays as programs hold them; ``env`` gives its dims."""
    source = _Source(env)
    params = [source.name(p) for p in func.params]
    source.stmt(func.body, 1)
    text = f"def run({', '.join(params)}):\n" + "\n".join(source.lines) + "\n    pass\n"
    exec(compile(text, "<program>", "exec"), source.globals)
    arrays = [bfloat16_to_float32(a) if p.dtype == "bfloat16" else a for a, p in zip(inputs, func.inputs, strict=True)]
    for a, p in zip(arrays, func.inputs, strict=True):
        assert a.shape == tuple(evaluate(d, env) for d in p.shape), f"{p.name}: {a.shape} for {p.shape} at {env}"
    results = [np.full(tuple(evaluate(d, env) for d in r.shape), 99).astype(np_dtype(r.dtype)) for r in func.results]
    with np.errstate(all="ignore"):
        source.globals["run"](*arrays, *results)
    return tuple(
        float32_to_bfloat16(a) if r.dtype == "bfloat16" else a for a, r in zip(results, func.results, strict=True)
    )
