"""The ELF linker: several objects, relocations of all kinds, weights, determinism, refusals."""

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from relaxir.backends.llvm.compile import Workers, compile_objects
from relaxir.backends.llvm.elf import WeightsSegment, link, link_to_file
from relaxir.backends.llvm.elf_read import read_object
from relaxir.backends.llvm.errors import LinkError
from relaxir.backends.llvm.loader import load_memory, unload
from relaxir.backends.llvm.target import Target

MAIN = """\
declare double @cos(double)
declare double @table(i64)
declare ptr @malloc(i64)
declare void @free(ptr)
@data = external global [4 x i64]
@zeroed = internal global [1000 x i64] zeroinitializer, align 64
@counter = global i64 40
@pointers = internal constant [3 x ptr] [ptr @one, ptr @two, ptr @cos]
@rx_weights = extern_weak global i8
define internal i64 @one(i64 %x) {
  ret i64 1
}
define internal i64 @two(i64 %x) {
  ret i64 2
}
define double @through_libm(double %x) {
  %y = call double @cos(double %x)
  %z = fadd double %y, 0x3FB999999999999A
  ret double %z
}
define double @through_table(i64 %i) {
  %y = call double @table(i64 %i)
  ret double %y
}
define i64 @through_pointer(i64 %i) {
  %p = getelementptr ptr, ptr @pointers, i64 %i
  %f = load ptr, ptr %p
  %r = call i64 %f(i64 0)
  ret i64 %r
}
define i64 @state(i64 %i) {
  %d = getelementptr i64, ptr @data, i64 %i
  %v = load i64, ptr %d
  %z = getelementptr i64, ptr @zeroed, i64 %i
  %old = load i64, ptr %z
  %new = add i64 %old, %v
  store i64 %new, ptr %z
  %c = load i64, ptr @counter
  %sum = add i64 %c, %new
  store i64 %sum, ptr @counter
  ret i64 %sum
}
define ptr @weights() {
  ret ptr @rx_weights
}
define i64 @allocate(i64 %n) {
  %p = call ptr @malloc(i64 %n)
  store i64 77, ptr %p
  %v = load i64, ptr %p
  call void @free(ptr %p)
  ret i64 %v
}
"""

OTHER = """\
@data = global [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@rows = internal constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
define double @table(i64 %i) {
  %p = getelementptr double, ptr @rows, i64 %i
  %v = load double, ptr %p
  ret double %v
}
define i64 @jump(i64 %i, i64 %x) {
  switch i64 %i, label %other [
    i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e
    i64 5, label %f
  ]
a:
  %va = add i64 %x, 100
  ret i64 %va
b:
  %vb = mul i64 %x, 7
  ret i64 %vb
c:
  %vc = xor i64 %x, 255
  ret i64 %vc
d:
  %vd = sub i64 5, %x
  ret i64 %vd
e:
  %ve = shl i64 %x, 3
  ret i64 %ve
f:
  %vf = lshr i64 %x, 1
  ret i64 %vf
other:
  ret i64 -1
}
"""

EXPORTS = ("through_libm", "through_table", "through_pointer", "state", "weights", "allocate", "jump", "counter")


@pytest.fixture(scope="module")
def objects(workers: Workers, target: Target) -> list[bytes]:
    return compile_objects([MAIN, OTHER], target, workers=workers)


@pytest.fixture(scope="module")
def foreign(workers: Workers) -> list[bytes]:
    return compile_objects([MAIN, OTHER], Target.parse("aarch64"), workers=workers)


def check_behaviour(library: ctypes.CDLL, weights: bytes | None) -> None:
    library.through_libm.restype = library.through_table.restype = ctypes.c_double
    library.through_libm.argtypes = [ctypes.c_double]
    library.weights.restype = ctypes.c_void_p
    for name in ("through_pointer", "state", "allocate", "jump"):
        getattr(library, name).restype = ctypes.c_int64
        getattr(library, name).argtypes = [ctypes.c_int64] * (2 if name == "jump" else 1)
    assert library.through_libm(0.0) == 1.1
    assert [library.through_table(index) for index in range(4)] == [1.5, 2.5, 3.5, 4.5]
    assert [library.through_pointer(index) for index in range(2)] == [1, 2]
    assert [library.state(index) for index in (0, 3, 0)] == [50, 90, 110]
    assert ctypes.c_int64.in_dll(library, "counter").value == 110
    assert library.allocate(64) == 77
    assert [library.jump(index, 8) for index in range(7)] == [108, 56, 247, -3, 64, 4, -1]
    address = library.weights()
    if weights is None:
        assert address is None
    else:
        assert address % 64 == 0
        assert ctypes.string_at(address, len(weights)) == weights


@pytest.mark.parametrize("weights", [None, b"w", bytes(range(256)) * 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_linked_code_runs(objects: list[bytes], weights: bytes | None, reverse: bool) -> None:
    segment = None if weights is None else WeightsSegment([weights])
    library = load_memory(link(objects[::-1] if reverse else objects, exports=EXPORTS, weights=segment))
    check_behaviour(library, weights)
    unload(library)


def test_two_libraries_of_one_kind_do_not_mix(objects: list[bytes]) -> None:
    image = link(objects, exports=EXPORTS, soname="same.so")
    libraries = [load_memory(image) for _ in range(3)]
    for library in libraries:
        check_behaviour(library, None)
    for library in libraries:
        unload(library)


def test_the_file_equals_the_bytes_and_weights_are_streamed(objects: list[bytes], tmp_path: Path) -> None:
    chunks = [bytes([index]) * 4096 for index in range(8)]
    segment = WeightsSegment([memoryview(chunk) for chunk in chunks])
    path = tmp_path / "model.so"
    size = link_to_file(path, objects, exports=EXPORTS, soname="model.so", weights=segment)
    assert path.stat().st_size == size
    assert path.read_bytes() == link(objects, exports=EXPORTS, soname="model.so", weights=segment)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.so"]
    library = ctypes.CDLL(str(path))
    check_behaviour(library, b"".join(chunks))
    link_to_file(path, objects, exports=EXPORTS, weights=WeightsSegment([b"other"]))  # the loaded one keeps its file
    assert ctypes.string_at(library.weights(), 4) == b"\0\0\0\0"
    unload(library)


def test_deterministic(objects: list[bytes], workers: Workers, target: Target) -> None:
    again = compile_objects([MAIN, OTHER], target, workers=workers)
    assert link(objects, exports=EXPORTS) == link(again, exports=tuple(reversed(EXPORTS)))


def test_only_exports_are_visible_and_only_libc_is_needed(objects: list[bytes], tmp_path: Path) -> None:
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("needs readelf")
    path = tmp_path / "m.so"
    link_to_file(path, objects, exports=EXPORTS, soname="m.so", weights=WeightsSegment([bytes(1000)]))
    text = subprocess.run([readelf, "-W", "-d", "-l", "--dyn-syms", path], capture_output=True, text=True, check=True)
    assert text.stderr == ""
    defined = {
        line.split()[-1] for line in text.stdout.splitlines() if " GLOBAL DEFAULT " in line and " UND " not in line
    }
    assert defined == set(EXPORTS)
    undefined = {line.split()[-1] for line in text.stdout.splitlines() if " UND " in line and "GLOBAL" in line}
    assert undefined == {"cos", "malloc", "free"}
    assert [line.split()[-1] for line in text.stdout.splitlines() if "(NEEDED)" in line] == [
        "[libm.so.6]",
        "[libc.so.6]",
    ]
    assert not [line for line in text.stdout.splitlines() if "LOAD" in line and "RWE" in line]


@pytest.mark.parametrize("weights", [None, b"weights" * 1000])
def test_aarch64_structure(foreign: list[bytes], weights: bytes | None) -> None:
    image = link(foreign, exports=EXPORTS, weights=None if weights is None else WeightsSegment([weights]))
    assert struct.unpack_from("<H", image, 18) == (183,)
    entries = [
        struct.unpack_from("<IIQQQQQQ", image, 64 + 56 * index)
        for index in range(struct.unpack_from("<H", image, 56)[0])
    ]
    loads = [entry for entry in entries if entry[0] == 1]
    assert len(loads) == 3 + (weights is not None)
    ends = 0
    for _, flags, offset, address, _, in_file, in_memory, alignment in loads:
        assert alignment == 0x10000
        assert (address - offset) % alignment == 0
        assert address >= ends, "segments lie in order and apart"
        assert offset + in_file <= len(image)
        assert flags != 7
        ends = -(-(address + in_memory) // alignment) * alignment
    if weights is not None:
        offset, in_file = loads[3][2], loads[3][5]
        assert image[offset : offset + in_file] == weights


def test_aarch64_runs_under_qemu(foreign: list[bytes], tmp_path: Path) -> None:
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    compiler = shutil.which("aarch64-linux-gnu-gcc")
    if qemu is None or compiler is None:
        pytest.skip("needs qemu and an aarch64 compiler")
    link_to_file(tmp_path / "libm1.so", foreign, exports=EXPORTS, soname="libm1.so")
    source = tmp_path / "main.c"
    source.write_text(
        "long jump(long, long); double through_libm(double);\nint main(void) { return !(jump(1, 6) == 42 && through_libm(0) == 1.1); }\n"
    )
    subprocess.run([compiler, source, "-o", tmp_path / "main", f"-L{tmp_path}", "-lm1"], check=True)
    subprocess.run(
        [qemu, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={tmp_path}", tmp_path / "main"], check=True
    )


def test_refusals(objects: list[bytes], foreign: list[bytes], workers: Workers, target: Target) -> None:
    with pytest.raises(LinkError, match="defined twice"):
        link([objects[1], objects[1]], exports=[])
    with pytest.raises(LinkError, match="exported but not defined: absent"):
        link(objects, exports=["jump", "absent"])
    with pytest.raises(LinkError, match="different architectures"):
        link([objects[0], foreign[1]], exports=[])
    with pytest.raises(LinkError, match="not a little-endian ELF64 object"):
        link([b"MZ" + bytes(100)], exports=[])
    with pytest.raises(LinkError, match="not a relocatable object"):
        link([link(objects, exports=[])], exports=[])
    with pytest.raises(LinkError, match="nothing to link"):
        link([], exports=[])
    local = compile_objects(["@t = thread_local global i64 1\n"], target, workers=workers)
    with pytest.raises(LinkError, match="thread-local"):
        link(local, exports=[])


def test_link_editors_and_debuggers_can_read_it(objects: list[bytes], tmp_path: Path) -> None:
    tools = {name: shutil.which(name) for name in ("cc", "nm", "readelf", "objdump")}
    if tools["cc"] is None or tools["nm"] is None or tools["readelf"] is None or tools["objdump"] is None:
        pytest.skip("needs a C compiler and binutils")
    link_to_file(
        tmp_path / "libmodel.so",
        objects,
        exports=EXPORTS,
        soname="libmodel.so",
        weights=WeightsSegment([b"weights" * 9]),
    )
    names = subprocess.run([tools["nm"], tmp_path / "libmodel.so"], capture_output=True, text=True, check=True).stdout
    kinds = {line.split()[-1]: line.split()[-2] for line in names.splitlines()}
    assert (kinds["jump"], kinds["two"], kinds["counter"], kinds["zeroed"], kinds["rows"]) == ("T", "t", "D", "b", "r")
    listing = subprocess.run(
        [tools["objdump"], "-d", tmp_path / "libmodel.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "<through_pointer>:" in listing
    checked = subprocess.run(
        [tools["readelf"], "-a", "-W", tmp_path / "libmodel.so"], capture_output=True, text=True, check=True
    )
    assert checked.stderr == ""
    source = tmp_path / "main.c"
    source.write_text(
        "long jump(long, long); const char *weights(void);\nint main(void) { return !(jump(1, 6) == 42 && weights()[1] == 'e'); }\n"
    )
    subprocess.run(
        [tools["cc"], source, "-o", tmp_path / "main", f"-L{tmp_path}", "-lmodel", f"-Wl,-rpath,{tmp_path}"], check=True
    )
    subprocess.run([tmp_path / "main"], check=True)


def test_an_undefined_symbol_is_named_by_the_dynamic_linker(workers: Workers, target: Target) -> None:
    objects = compile_objects(
        ["declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}\n"],
        target,
        workers=workers,
    )
    with pytest.raises(OSError, match="nowhere"):
        load_memory(link(objects, exports=["f"]))


def test_weak_definitions_yield(workers: Workers, target: Target) -> None:
    weak = "define weak i64 @f() {\n  ret i64 1\n}\ndefine i64 @g() {\n  %x = call i64 @f()\n  ret i64 %x\n}\n"
    strong = "define i64 @f() {\n  ret i64 2\n}\n"
    library = load_memory(link(compile_objects([weak, strong], target, workers=workers), exports=["g"]))
    assert library.g() == 2
    unload(library)


def test_odd_names_and_many_exports(workers: Workers, target: Target) -> None:
    names = ['a b"c', "日本", "x$y", *(f"f{index}" for index in range(300))]
    spelt = [name.replace('"', "\\22") for name in names]
    text = "".join(f'define i32 @"{name}"() {{\n  ret i32 {index}\n}}\n' for index, name in enumerate(spelt))
    library = load_memory(link(compile_objects([text], target, workers=workers), exports=names))
    assert [library[name]() for name in names] == list(range(len(names)))
    unload(library)


def test_reading_gives_every_global_symbol(objects: list[bytes]) -> None:
    names = {symbol.name for symbol in read_object(objects[0], "o").symbols if symbol.defined and symbol.bind}
    assert names == {*EXPORTS} - {"jump"}
