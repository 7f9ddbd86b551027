"""Whole libraries: calls with DLTensors, messages, weights, the C header, unfit processors, valgrind."""

import ctypes
import json
import shutil
import subprocess
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from relaxir.backends.llvm.call_ir import ERROR_ARGUMENT, ERROR_FROM_DATA, HostFunction, Site
from relaxir.backends.llvm.compile import Workers, compile_objects
from relaxir.backends.llvm.cpuid import X86_BITS
from relaxir.backends.llvm.header import header_text
from relaxir.backends.llvm.library import Library, RxOptions
from relaxir.backends.llvm.memory import HugeMemory
from relaxir.backends.llvm.runtime_ir import RUNTIME_DECLARATIONS, runtime_text
from relaxir.backends.llvm.target import Target
from relaxir.ir.types import TensorType
from relaxir.runtime.signature import Signature, TensorSpec
from relaxir.support.errors import TargetError
from relaxir.sym import dim
from tests.backends.library_types import BuildLibrary

SITES = (
    Site(16, "'x' has rank %lld, not 1"),
    Site(17, "'n' is %lld, but 1 <= n <= %lld (100 %% sure)"),
    Site(18, "no memory for 'out' of %lld elements"),
)

# out[i] = x[i] + weights[0], in parallel over eight chunks, for x of rank 1 and n <= 1000
HOST = (
    RUNTIME_DECLARATIONS
    + """
%args = type { ptr, ptr, i64, float }
define internal void @body(ptr %args, i64 %chunk, i64 %chunks, i64 %worker) {
entry:
  %out_p = getelementptr ptr, ptr %args, i64 1
  %n_p = getelementptr i64, ptr %args, i64 2
  %bias_p = getelementptr float, ptr %args, i64 6
  %x = load ptr, ptr %args
  %out = load ptr, ptr %out_p
  %n = load i64, ptr %n_p
  %bias = load float, ptr %bias_p
  br label %head
head:
  %i = phi i64 [ %chunk, %entry ], [ %i1, %step ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %step, label %done
step:
  %xi = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %xi
  %w = fadd float %v, %bias
  %oi = getelementptr float, ptr %out, i64 %i
  store float %w, ptr %oi
  %i1 = add i64 %i, %chunks
  br label %head
done:
  ret void
}
define i32 @host_main(ptr %ctx, ptr %ws, ptr %in, ptr %out) {
entry:
  %args = alloca [4 x i64], align 16
  %rank_p = getelementptr i8, ptr %in, i64 16
  %rank = load i32, ptr %rank_p
  %flat = icmp eq i32 %rank, 1
  br i1 %flat, label %size, label %bad_rank
bad_rank:
  %rank64 = sext i32 %rank to i64
  call void @rx_fail(ptr %ws, i32 16, i32 0, i64 %rank64, i64 0, i64 0, i64 0)
  ret i32 16
size:
  %shape_p = getelementptr i8, ptr %in, i64 24
  %shape = load ptr, ptr %shape_p
  %n = load i64, ptr %shape
  %fits = icmp ule i64 %n, 1000
  br i1 %fits, label %place, label %bad_n
bad_n:
  call void @rx_fail(ptr %ws, i32 17, i32 1, i64 %n, i64 1000, i64 0, i64 0)
  ret i32 17
place:
  %frame = call ptr @rx_frame_push(ptr %ws, i64 1000)
  %given = load ptr, ptr %out
  %none = icmp eq ptr %given, null
  br i1 %none, label %allocate, label %run
allocate:
  %bytes = shl i64 %n, 2
  %block = call ptr @rx_alloc(ptr %ctx, i64 %bytes)
  store ptr %block, ptr %out
  %out_shape_p = getelementptr i8, ptr %out, i64 24
  %out_shape = load ptr, ptr %out_shape_p
  store i64 %n, ptr %out_shape
  br label %run
run:
  %to = phi ptr [ %given, %place ], [ %block, %allocate ]
  %x = load ptr, ptr %in
  %weights = load ptr, ptr %ctx
  %bias = load float, ptr %weights
  store ptr %x, ptr %args
  %a1 = getelementptr i64, ptr %args, i64 1
  store ptr %to, ptr %a1
  %a2 = getelementptr i64, ptr %args, i64 2
  store i64 %n, ptr %a2
  %a3 = getelementptr i64, ptr %args, i64 3
  store float %bias, ptr %a3
  call void @rx_parallel(ptr %ctx, ptr @body, ptr %args, i64 8)
  call void @rx_frame_pop(ptr %ws, i64 1000)
  ret i32 0
}
define i32 @query_main(ptr %ctx, ptr %ws, ptr %in, ptr %out, ptr %bytes) {
  %shape_p = getelementptr i8, ptr %in, i64 24
  %shape = load ptr, ptr %shape_p
  %n = load i64, ptr %shape
  %out_shape_p = getelementptr i8, ptr %out, i64 24
  %out_shape = load ptr, ptr %out_shape_p
  store i64 %n, ptr %out_shape
  store i64 1000, ptr %bytes
  ret i32 0
}
define i32 @"host_two words"(ptr %ctx, ptr %ws, ptr %in, ptr %out) {
  ret i32 99
}
"""
)
FUNCTIONS = (HostFunction("main", 1, 1, query=True), HostFunction("two words", 0, 0))
METADATA = json.dumps({"name": 'quoted "text" \\ backslash', "unicode": "ä日本"}, ensure_ascii=False)
WEIGHTS = b"\0\0\0\x3f" + bytes(60)  # 0.5
N = dim("n", min=1, max=1000)
VECTOR = TensorType((N,), "float32")
SIGNATURES = (
    Signature("main", (TensorSpec("x", VECTOR),), (TensorSpec("out", VECTOR),), True),
    Signature("two words", (), (), False),
)


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Model:
    """The library above with one context."""

    def __init__(self, library: Library) -> None:
        self.loaded = library.load()
        self.context = self.loaded.create()

    def call(self, values: list[float], rank: int = 1, function: int = 0, inputs: int = 1) -> tuple[int, list[float]]:
        """Call with an output of the library's; returns the code and the output."""
        data = (ctypes.c_float * max(1, len(values)))(*values)
        shapes = [(ctypes.c_int64 * 4)(len(values)), (ctypes.c_int64 * 4)(-1)]
        tensors = [DLTensor(None, (1, 0), rank, 2, 32, 1, ctypes.addressof(shape), None, 0) for shape in shapes]
        tensors[0].data = ctypes.addressof(data)
        arguments = (ctypes.byref(tensors[0]), inputs, ctypes.byref(tensors[1]), 1 if function == 0 else 0)
        code = self.loaded.cdll.rx_call(self.context, function, *arguments)
        if code:
            return code, []
        result = list((ctypes.c_float * shapes[1][0]).from_address(tensors[1].data)) if shapes[1][0] else []
        self.loaded.cdll.rx_free(self.context, tensors[1].data)
        return code, result

    @property
    def error(self) -> str:
        return self.loaded.last_error(self.context)

    def close(self) -> None:
        self.loaded.cdll.rx_destroy(self.context)
        self.loaded.close()


@pytest.fixture(scope="module")
def library(build: BuildLibrary) -> Library:
    return build([HOST], functions=FUNCTIONS, sites=SITES, metadata_json=METADATA, weights=WEIGHTS)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 16, 33, 1000])
def test_calls(library: Library, n: int) -> None:
    model = Model(library)
    for _ in range(3):
        assert model.call([float(value) for value in range(n)]) == (0, [value + 0.5 for value in range(n)])
    model.close()


def test_messages(library: Library) -> None:
    model = Model(library)
    assert model.call([1.0], rank=3) == (16, [])
    assert model.error == "'x' has rank 3, not 1"
    assert model.call([0.0] * 1001) == (17, [])
    assert model.error == "'n' is 1001, but 1 <= n <= 1000 (100 % sure)"
    assert model.call([2.0]) == (0, [2.5])
    assert model.call([1.0], inputs=2) == (ERROR_ARGUMENT, [])
    assert model.error == "'main' takes 1 inputs and 1 outputs, not 2 and 1"
    for function in (2, -1, 1 << 40):
        assert model.call([], function=function)[0] == ERROR_ARGUMENT
        assert model.error == f"there is no function number {function}"
    assert model.call([], function=1, inputs=0) == (99, [])
    assert model.error == "error 99"
    assert model.loaded.cdll.rx_call(None, 0, None, 0, None, 0) == ERROR_ARGUMENT
    model.close()


def test_shapes_can_be_asked_for(library: Library) -> None:
    model = Model(library)
    shapes = [(ctypes.c_int64 * 1)(33), (ctypes.c_int64 * 1)(-1)]
    tensors = [DLTensor(None, (1, 0), 1, 2, 32, 1, ctypes.addressof(shape), None, 0) for shape in shapes]
    frame = ctypes.c_int64(-1)
    query = model.loaded.cdll.rx_query
    arguments = (model.context, 0, ctypes.byref(tensors[0]), 1, ctypes.byref(tensors[1]), 1)
    assert query(*arguments, ctypes.byref(frame)) == 0
    assert (shapes[1][0], frame.value) == (33, 1000)
    assert query(*arguments, None) == 0
    assert query(model.context, 1, None, 0, None, 0, None) == ERROR_FROM_DATA
    assert model.error == "the output shapes of function number 1 depend on data"
    assert query(model.context, 0, None, 0, None, 1, None) == ERROR_ARGUMENT
    model.close()


def test_each_thread_has_its_own_error_text(library: Library) -> None:
    model = Model(library)
    mixed: list[str] = []

    def work(rank: int) -> None:
        for _ in range(300):
            model.call([1.0], rank=rank)
            if model.error != f"'x' has rank {rank}, not 1":
                mixed.append(model.error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mixed == []
    assert model.error == "no error"
    model.close()


def test_concurrent_calls_on_one_context(library: Library) -> None:
    model = Model(library)
    wrong: list[object] = []

    def work(base: int) -> None:
        for n in range(150):
            got = model.call([float(base + value) for value in range(n)])
            if got != (0, [base + value + 0.5 for value in range(n)]):
                wrong.append((base, n, got))

    threads = [threading.Thread(target=work, args=(base,)) for base in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    model.close()


def test_metadata_and_version(library: Library) -> None:
    loaded = library.load()
    assert json.loads(loaded.cdll.rx_metadata()) == json.loads(METADATA)
    assert loaded.cdll.rx_abi_version() == 1
    assert loaded.cdll.rx_check_cpu() == 0
    loaded.close()


def test_options_are_checked(library: Library) -> None:
    loaded = library.load()
    size = ctypes.sizeof(RxOptions)
    for options, message in (
        (None, "this library carries no weights: pass rx_options.weights"),
        (RxOptions(8, None, None, None, None), "rx_options.size is too small: set it to sizeof(rx_options)"),
        (RxOptions(size, 64, 64, None, None), "rx_options needs both alloc and free or neither"),
    ):
        assert loaded.cdll.rx_create(None if options is None else ctypes.byref(options)) is None
        assert loaded.cdll.rx_create_error().decode() == message
    loaded.cdll.rx_destroy(None)
    loaded.close()


def test_weights_in_the_file_and_in_memory(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    assert library.export(path, SIGNATURES) == path.stat().st_size
    assert path.read_bytes() != library.bytes(), "the exported one knows its name"
    cdll = ctypes.CDLL(str(path))
    cdll.rx_create.restype = ctypes.c_void_p
    context = cdll.rx_create(None)
    assert context
    weights = ctypes.c_void_p.from_address(context).value
    assert weights is not None
    assert ctypes.string_at(weights, len(WEIGHTS)) == WEIGHTS
    loaded = library.load()
    in_process = loaded.create()
    assert library.weights is not None
    assert ctypes.c_void_p.from_address(in_process).value == library.weights.address
    assert library.weights.address % (2 << 20) == 0
    loaded.cdll.rx_destroy(in_process)
    loaded.close()


def test_huge_memory() -> None:
    memory = HugeMemory(3 << 20)
    assert memory.address % (2 << 20) == 0
    assert len(memory.view) == 3 << 20
    memory.view[5:8] = b"abc"
    assert ctypes.string_at(memory.address + 5, 3) == b"abc"
    assert HugeMemory.holding(b"").size == 0
    with pytest.raises(ValueError, match="-1 bytes"):
        HugeMemory(-1)


def test_export_is_deterministic(library: Library, build: BuildLibrary, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    library.export(tmp_path / "m.so", SIGNATURES)
    again = build([HOST], functions=FUNCTIONS, sites=SITES, metadata_json=METADATA, weights=WEIGHTS)
    again.export(tmp_path / "a" / "m.so", SIGNATURES)
    assert (tmp_path / "m.so").read_bytes() == (tmp_path / "a" / "m.so").read_bytes()
    assert (tmp_path / "m.h").read_text() == (tmp_path / "a" / "m.h").read_text()


def test_an_unfit_processor_is_refused(build: BuildLibrary, target: Target) -> None:
    if target.arch != "x86_64":
        pytest.skip("only x86-64 libraries check")
    absent = [name for name in X86_BITS if name not in target.required]
    if not absent:
        pytest.skip("this processor has everything")
    unfit = replace(target, required=(target.required[0], absent[0], target.required[-1]))
    loaded = build(to=unfit).load()
    assert loaded.cdll.rx_check_cpu() == 2
    with pytest.raises(RuntimeError, match=f"this processor lacks {absent[0]}, which the library was built to use"):
        loaded.create()
    loaded.close()


@pytest.mark.parametrize("message", ["%s", "%d of %lld", "%", "%lld %lld %lld %lld %lld", "%5lld", "%ll"])
def test_dangerous_formats_are_refused(message: str) -> None:
    with pytest.raises(ValueError, match="message"):
        Site(20, message)


def test_the_runtime_is_made_for_every_linux_target() -> None:
    for name in ("x86-64", "x86-64-v4", "aarch64", "riscv64"):
        text = runtime_text(
            Target.parse(name), sites=SITES, functions=FUNCTIONS, metadata_json="{}", host_arch="aarch64"
        )
        assert "asm" not in text, "inline assembly only for the machine at hand"
    with pytest.raises(TargetError, match="cannot be made for wasm32"):
        runtime_text(Target.parse("wasm32"), sites=(), functions=(), metadata_json="")
    with pytest.raises(ValueError, match="two functions of one name"):
        runtime_text(Target.parse("aarch64"), sites=(), functions=(FUNCTIONS[0],) * 2, metadata_json="")


@pytest.mark.parametrize("name", ["aarch64", "riscv64", "x86-64-v2", "x86-64-v4"])
def test_the_runtime_compiles_for_other_targets(workers: Workers, name: str) -> None:
    made = Library.from_texts(
        [HOST],
        Target.parse(name),
        functions=FUNCTIONS,
        sites=SITES,
        weights=WEIGHTS,
        compiler=partial(compile_objects, workers=workers),
    )
    if name == "riscv64":
        with pytest.raises(TargetError, match="cannot be made for riscv64"):
            made.bytes()
    else:
        assert made.bytes()[:4] == b"\x7fELF"


PROGRAM = """\
#include <stdio.h>
#include <string.h>
#include "model.h"
int main(void) {
  rx_context *ctx = rx_create(NULL);
  if (!ctx) { puts(rx_create_error()); return 1; }
  rx_set_threads(3);
  for (int64_t n = 0; n <= 1000; n += 100) {
    float x[1000], y[1000];
    for (int i = 0; i < 1000; i++) { x[i] = i; y[i] = -1; }
    int64_t shape[1] = {n}, out_shape[1] = {-1};
    DLTensor in = {x, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0}, out = {NULL, {1, 0}, 1, {2, 32, 1}, out_shape, NULL, 0};
    if (rx_call(ctx, MODEL_MAIN, &in, 1, &out, 1)) { puts(rx_last_error(ctx)); return 2; }
    if (out_shape[0] != n) return 3;
    for (int i = 0; i < n; i++) if (((float *)out.data)[i] != i + 0.5f) return 4;
    rx_free(ctx, out.data);
    out.data = y;
    if (rx_call(ctx, MODEL_MAIN, &in, 1, &out, 1)) return 5;
    for (int i = 0; i < n; i++) if (y[i] != i + 0.5f) return 6;
    in.ndim = 2;
    if (rx_call(ctx, MODEL_MAIN, &in, 1, &out, 1) != 16 || strcmp(rx_last_error(ctx), "'x' has rank 2, not 1")) return 7;
  }
  if (rx_call(ctx, MODEL_TWO_WORDS, NULL, 0, NULL, 0) != 99) return 8;
  rx_destroy(ctx);
  return MODEL_FUNCTIONS != 2;
}
"""


def make_program(library: Library, folder: Path, language: str) -> Path:
    compiler = shutil.which("cc" if language == "c" else "c++")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library.export(folder / "model.so", SIGNATURES)
    source = folder / f"main.{language}"
    source.write_text(PROGRAM)
    warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(
        [compiler, "-O1", *warnings, source, folder / "model.so", "-o", folder / "main", f"-Wl,-rpath,{folder}"],
        check=True,
    )
    return folder / "main"


@pytest.mark.parametrize("language", ["c", "cc"])
def test_c_and_cpp_programs(library: Library, tmp_path: Path, language: str) -> None:
    assert subprocess.run([make_program(library, tmp_path, language)], check=False).returncode == 0


def test_valgrind_finds_nothing(build: BuildLibrary, tmp_path: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("needs valgrind")
    portable = build(
        [HOST], functions=FUNCTIONS, sites=SITES, metadata_json=METADATA, weights=WEIGHTS, to=Target.parse("x86-64-v2")
    )
    program = make_program(portable, tmp_path, "c")
    command = [valgrind, "-q", "--error-exitcode=9", "--leak-check=full", "--fair-sched=yes", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_header_text() -> None:
    odd = Signature("f*/x", (TensorSpec("a*/", TensorType((N, 2 * N), "float32")),), (), False)
    text = header_text("my-model 1", (odd, *SIGNATURES))
    assert "MY_MODEL_1_F__X = 0," in text
    assert "MY_MODEL_1_MAIN = 1," in text
    assert "in  0  a* /: float32[n, n * 2]" in text
    assert "where  1 <= n <= 1000" in text


def test_loading_many_libraries_leaks_no_descriptor(library: Library) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    loaded = [library.load() for _ in range(20)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    for each in loaded:
        each.close()
