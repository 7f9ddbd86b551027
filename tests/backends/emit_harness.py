"""Compiles kernels in this process and calls them on arrays that are surrounded by canaries."""

from __future__ import annotations

import ctypes
import itertools

import llvmlite.binding as llvm
import numpy as np

from relaxir.backends.llvm.emit import emit_module
from relaxir.backends.llvm.emit_sites import SiteTable
from relaxir.backends.llvm.symbols import kernel_symbol
from relaxir.backends.llvm.target import Target
from relaxir.backends.llvm.worker import compile_text, initialize

STUBS = """
define internal void @rx_parallel(ptr %ctx, ptr %body, ptr %arg, i64 %n) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void %body(ptr %arg, i64 %i, i64 %n, i64 0)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
define internal void @rx_fail(ptr %ws, i32 %code, i32 %site, i64 %a, i64 %b, i64 %c, i64 %d) nounwind {
entry:
  %old = load i32, ptr %ws
  %first = icmp eq i32 %old, 0
  br i1 %first, label %set, label %done
set:
  store i32 %code, ptr %ws
  %s = getelementptr i8, ptr %ws, i64 4
  store i32 %site, ptr %s
  %pa = getelementptr i8, ptr %ws, i64 8
  store i64 %a, ptr %pa
  %pb = getelementptr i8, ptr %ws, i64 16
  store i64 %b, ptr %pb
  br label %done
done:
  ret void
}
"""
_COUNT = itertools.count()
_JIT = {}


def compile_module(text, target, passes="sroa"):
    initialize()
    return compile_text(
        text, triple=target.triple, cpu=target.cpu, features=",".join(target.features), abi=target.abi, opt=2,
        passes=passes, output="object",
    )  # fmt: skip


def with_stubs(text):
    for name in ("rx_parallel", "rx_fail"):
        text = "\n".join(line for line in text.split("\n") if not line.startswith("declare") or f"@{name}(" not in line)
    return text + STUBS


class Jit:
    """Compiled kernels; call one with arrays in parameter order."""

    def __init__(self, funcs, target="native", passes="sroa"):
        self.target = Target.parse(target)
        self.funcs = funcs
        self.sites = SiteTable()
        self.text = with_stubs(emit_module(funcs, self.target, self.sites))
        self.object = compile_module(self.text, self.target, passes)
        if "jit" not in _JIT:
            machine = llvm.Target.from_triple(self.target.triple).create_target_machine(
                reloc="pic", codemodel="default", jit=True
            )
            _JIT["jit"] = llvm.create_lljit_compiler(machine, use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(self.object).add_current_process()
        for name in funcs:
            builder.export_symbol(kernel_symbol(name))
        self.library = builder.link(_JIT["jit"], f"emit_test_{next(_COUNT)}")
        self.workspace = np.zeros(16, np.int64)

    def address(self, name):
        return self.library[kernel_symbol(name)]

    def function(self, name):
        func = self.funcs[name]
        kinds = [ctypes.c_void_p] * (1 + len(func.params)) + [ctypes.c_int64] * len(func.dims)
        return ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(self.library[kernel_symbol(name)])

    def __call__(self, name, *arrays, dims=None):
        """Run on copies inside larger blocks; results and temporaries are written back; canaries are checked."""
        func = self.funcs[name]
        dims = {} if dims is None else dims
        known = {d.name: dims[d.name] for d in func.dims if d.name in dims}
        for buffer, array in zip(func.params, arrays, strict=True):
            for extent, size in zip(buffer.shape, array.shape, strict=True):
                if not isinstance(extent, int) and extent in func.dims:
                    known.setdefault(extent.name, size)
        guarded = [_guard(a) for a in arrays]
        self.workspace[:] = 0
        code = self.function(name)(
            self.workspace.ctypes.data, *(g.ctypes.data + 64 for g in guarded), *(known[d.name] for d in func.dims)
        )
        for array, block in zip(arrays, guarded, strict=True):
            assert (block[:64] == 0xA5).all(), "wrote before the array"
            assert (block[64 + array.nbytes :] == 0xA5).all(), "wrote behind the array"
            if array.flags.writeable:
                array[...] = block[64 : 64 + array.nbytes].view(array.dtype).reshape(array.shape)
        return code


def _guard(array):
    raw = np.full(array.nbytes + 128 + 64, 0xA5, np.uint8)
    shift = -(raw.ctypes.data) % 64
    block = raw[shift : shift + array.nbytes + 128]
    block[64 : 64 + array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1) if array.nbytes else 0
    return block
