"""The public functions: compile, load, evaluate, memory, cost, parse."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relaxir.backends.llvm.build import BuildOptions, build, library_symbols
from relaxir.backends.llvm.cache import ObjectCache
from relaxir.backends.llvm.elf_check import check_library, fresh_name
from relaxir.backends.llvm.emit_sites import ERROR_CODES, SiteTable, code_number
from relaxir.backends.llvm.host_profile import Stamps
from relaxir.backends.llvm.library import Library, LoadedLibrary
from relaxir.backends.llvm.symbols import import_symbol
from relaxir.backends.llvm.target import MADE_FOR, Target
from relaxir.cost import TargetInfo
from relaxir.ir.expr import Array, CallDPS, Check, Function
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import all_bindings
from relaxir.ir.types import TupleType, Type, free_dims_of_type
from relaxir.ir.verify import check_module
from relaxir.ops import TABLE
from relaxir.passes import Instrument, Pass, PassContext
from relaxir.passes.instruments import Timing
from relaxir.pipelines import DEFAULT
from relaxir.runtime.arguments import stored
from relaxir.runtime.callbacks import Imports
from relaxir.runtime.callbacks import Library as ForeignLibrary
from relaxir.runtime.costs import Cost, costs_of
from relaxir.runtime.executable import Executable
from relaxir.runtime.facts import Facts, facts_of
from relaxir.runtime.interp import evaluate as interpret
from relaxir.runtime.memory import Memory
from relaxir.runtime.signature import Signature, from_json, signature_of, to_json
from relaxir.support.arrays import array_of
from relaxir.support.checks import check_count, check_function, check_kind
from relaxir.support.clock import Clock
from relaxir.support.elements import held, shown
from relaxir.support.errors import LoadError, RelaxirError, TargetError, VerifyError
from relaxir.support.optional import load as load_optional
from relaxir.sym import DimLike
from relaxir.text import parse as parse_text
from relaxir.tir import PrimFunc
from relaxir.tir.host import reuse_pairs

FORMAT_VERSION = 2
"""Version of the metadata that exported libraries carry."""


def parse(text: str, constants: Mapping[str, Array] | str | Path | None = None, file: str = "<string>") -> IRModule:
    """Read a module from IR text; large constants come from ``constants`` (a mapping, or the .npz beside the text).

    ``file`` is what messages call the text.

    Raises:
        ParseError: with the place in the text.
        InferError: where a call of an operator has no type; with the place, too.
        ArgumentError: something else than a text.
    """
    check_kind("text", text, str, "pass the text of a module; read a file first")
    if constants is not None:
        check_kind(
            "constants", constants, (Mapping, str, os.PathLike), "pass arrays by name, or the path of an .npz file"
        )
    return parse_text(text, TABLE, constants, file)


def from_onnx(model: object, dims: Mapping[str, DimLike] | None = None) -> IRModule:
    """Import an ONNX model: a path, bytes, or a ModelProto.

    Args:
        model: the model.
        dims: dimensions for the model's named dynamic sizes, e.g. ``{"batch": rx.dim("b", min=1)}``, or ints.

    Raises:
        LoadError: a malformed file, or external data outside the model's folder.
        UnsupportedError: every node that cannot be imported, at once.
        ArgumentError: a negative size in ``dims``, or a name that the model does not have.
    """
    if dims is not None:
        check_kind("dims", dims, Mapping, 'pass sizes by name, e.g. {"batch": 1}')
    frontend = load_optional("relaxir.frontends.onnx", extra="onnx")
    module: IRModule = frontend.from_onnx(model, dims=dims)
    return module


def from_torch(program: object) -> IRModule:
    """Import a program of torch.export, raw or decomposed, as the function ``main``.

    Parameters and buffers become constants, which share memory with the program: change them only after compiling. New
    values of buffers that the program writes are extra outputs, before the others; the function's attribute
    ``mutations`` names the buffer for each output.

    Args:
        program: a ``torch.export.ExportedProgram``. Its dynamic sizes keep their names and bounds, but for torch's
            own lower bound of 2: sizes 0 and 1 work.

    Raises:
        LoadError: something else, or a malformed program.
        UnsupportedError: every node that cannot be imported, at once.
    """
    frontend = load_optional("relaxir.frontends.torch", extra="torch")
    module: IRModule = frontend.from_torch(program)
    return module


def evaluate(module: IRModule, name: str, *arrays: object) -> Array | tuple[Array, ...]:
    """Run a function in the NumPy reference interpreter, at any stage of the IR.

    Arrays and results are as compiled functions take and give them; host programs know bfloat16 as bits in uint16 only.
    """
    check_kind("module", module, IRModule, "build one with rx.BlockBuilder, rx.parse or rx.from_onnx")
    check_kind("name", name, str, 'the function comes before the arrays: rx.evaluate(module, "main", x)')
    func = module.functions.get(name)
    values = [array_of(f"{name}: argument {n}", a) for n, a in enumerate(arrays)]
    result: Array | tuple[Array, ...]
    if not isinstance(func, Function):
        result = interpret(module, name, *(held(v, "bfloat16", np.dtype(np.uint16)) for v in values))
        return result
    signature = signature_of(name, func)
    if len(values) == len(signature.inputs):
        values = [stored(v, spec) for v, spec in zip(values, signature.inputs, strict=True)]
    result = _shown(interpret(module, name, *values), func.ret, iter([o.element for o in signature.outputs]))
    return result


def _shown(value: Any, t: Type, formats: Iterator[str]) -> Any:
    """A result as callers get it, with the element formats of its tensors in order."""
    if isinstance(t, TupleType):
        return tuple(_shown(v, field, formats) for v, field in zip(value, t.fields, strict=True))
    element = next(formats)
    return shown(value, element) if element else value


def make_target(target: str | Target) -> Target:
    """A target from its name.

    Raises:
        TargetError: an unknown name.
        ArgumentError: not a name.
    """
    if isinstance(target, Target):
        return target
    check_kind("target", target, str, "name one, e.g. native or x86-64-v3")
    try:
        return Target.parse(target)
    except ValueError as error:
        raise TargetError(str(error), help=MADE_FOR) from error


def target_info(target: Target, threads: int | None) -> TargetInfo:
    """What schedules need to know of a target."""
    return TargetInfo(
        vector_bytes=target.vector_bytes,
        registers=target.num_vector_registers,
        masked=target.has_masked,
        threads=threads or available_threads(),
    )


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile(  # the public name of DESIGN section 3
    module: IRModule,
    target: str | Target = "native",
    threads: int | None = None,
    pipeline: Pass | None = None,
    *,
    cache: bool | str | Path = True,
    jobs: int | None = None,
    profile: bool = False,
    instruments: tuple[Instrument, ...] = (),
    progress: Callable[[int, int], None] | None = None,
    libraries: Mapping[str, ForeignLibrary] | None = None,
) -> Executable:
    """Compile a module to native code, once for all shapes.

    Args:
        module: what to compile; every graph function becomes callable.
        target: ``native``, ``x86-64-v2/v3/v4``, ``aarch64`` or an LLVM triple. Code for another machine can
            be exported, not run.
        threads: most threads a call uses; None: as many as the process may use (or RELAXIR_NUM_THREADS).
        pipeline: passes instead of the default ones; must end in planned host programs.
        cache: keep compiled objects on disk (True: the user's cache folder, a path: there, False: nowhere).
        jobs: compile processes; None: one per processor.
        profile: note when each kernel runs and at which sizes, for `rx.profile`; costs some 0.1 us per kernel call.
        instruments: observers of the passes.
        progress: called with (done, total) as objects are finished.
        libraries: where `call_dps_packed` finds its functions: by symbol a Python callable, a ctypes.CDLL or a path;
            symbols not given are looked up in the process. Callables given to `call_dps_packed` itself are known.

    The result's ``details["seconds"]`` says how long each pass and each step of code generation took, and
    ``details["cache"]`` how many objects were found in the object cache, and of how many.

    Raises:
        ArgumentError: an argument that is not what it should be.
        VerifyError: the module breaks an invariant of the IR.
        TargetError: an unknown target.
        UnsupportedError: an operator or type without code generation.
    """
    check_kind("module", module, IRModule, "build one with rx.BlockBuilder, rx.parse or rx.from_onnx")
    if pipeline is not None:
        check_kind("pipeline", pipeline, Pass, "pass rx.Pipeline([...])")
    if libraries is not None:
        check_kind("libraries", libraries, Mapping, "pass functions by symbol")
    workers = available_threads() if jobs is None else check_count("jobs", jobs)
    if threads is not None:
        threads = check_count("threads", threads)
    machine = make_target(target)
    check_module(module)
    clock = Clock()
    context = PassContext(target=target_info(machine, threads), instruments=(Timing(clock), *instruments))
    planned = (pipeline or DEFAULT).run(module, context)
    stamps = Stamps() if profile else None
    options = BuildOptions(machine, workers, object_cache(cache), progress, stamps=stamps, clock=clock)
    with clock("cost"):
        face = Face(signatures_of(module, planned), facts_of(planned), options)
    library = build(planned, options, face.metadata)
    imports = Imports(library_symbols(planned), {**callables_of(module), **(libraries or {})})
    exe = executable(library, face, imports)
    if threads is not None:
        exe.set_threads(threads)
    if machine.name == "native":
        load_now(exe, library, clock)
    return exe


@dataclass(frozen=True)
class Face:
    """What a compiled module tells of itself: its library carries it, its executable shows it."""

    signatures: tuple[Signature, ...]
    formulas: Facts
    """What was known before the build."""
    options: BuildOptions

    @property
    def facts(self) -> Facts:
        """What is known after the build: also where time stamps were written."""
        stamps = self.options.stamps
        return self.formulas if stamps is None else replace(self.formulas, places=tuple(stamps.places))

    @property
    def details(self) -> dict[str, Any]:
        """What the compilation reports; the seconds of steps to come are added by the clock."""
        cache, clock = self.options.cache, self.options.clock
        found = (0, 0) if cache is None else (cache.hits, cache.lookups)
        return {"target": self.options.target.name, "seconds": clock.seconds, "cache": found}

    def metadata(self, sites: SiteTable) -> str:
        """JSON text that a library carries about itself, for `load`."""
        target = self.options.target
        extra: dict[str, Any] = {
            "format": FORMAT_VERSION,
            "target": target.name,
            "triple": target.triple,
            "features": list(target.features),
            "codes": {str(code_number(c)): c for c in ERROR_CODES},
            **self.facts.to_json(),
        }
        return to_json(self.signatures, extra)


def signatures_of(module: IRModule, planned: IRModule) -> tuple[Signature, ...]:
    """The functions that can be called from outside, with the memory that planning lets inputs and outputs share."""
    entries = (signature_of(n, f) for n, f in module.graph_functions().items() if is_entry(f))
    return tuple(replace(s, reuse=reuse_of(planned, s.name)) for s in entries)


def is_entry(func: Function) -> bool:
    """Whether a function can be called from outside."""
    return not func.attrs.get("primitive")


def reuse_of(planned: IRModule, name: str) -> tuple[tuple[int, int], ...]:
    """The inputs and outputs of a function that may share memory."""
    func = planned.functions[name]
    return reuse_pairs(func) if isinstance(func, PrimFunc) else ()


def object_cache(cache: bool | str | Path) -> ObjectCache | None:
    """The object cache that the caller asked for."""
    if cache is False:
        return None
    return ObjectCache() if cache is True else ObjectCache(Path(cache))


def callables_of(module: IRModule) -> dict[str, ForeignLibrary]:
    """Python callables that the module's functions call, by symbol."""
    found: dict[str, ForeignLibrary] = {}
    for func in module.graph_functions().values():
        values = (b.value for b in all_bindings(func.body) if not isinstance(b, Check))
        for call in (v for v in values if isinstance(v, CallDPS) and callable(v.target)):
            if found.setdefault(call.symbol, call.target) is not call.target:
                raise VerifyError(f"two library functions are called `{call.symbol}`", code="verify-name")
    return found


def executable(library: Library, face: Face, imports: Imports) -> Executable:
    """Compiled code with a face; it is loaded when first used."""

    def export(path: Path) -> int:
        return library.export(path, face.signatures)

    def load() -> LoadedLibrary:
        loaded = library.load()
        imports.resolve(loaded.cdll, import_symbol)
        return loaded

    codes = {code_number(c): c for c in ERROR_CODES}
    return Executable(load, face.signatures, codes, export, face.facts, face.details, imports)


def load_now(exe: Executable, library: Library, clock: Clock) -> None:
    """Link and load the code, so that the first call is as fast as any."""
    with clock("link"):
        library.code  # noqa: B018  # computed once and kept
    with clock("load"):
        exe.context  # noqa: B018  # so is this


def load(path: str | Path) -> Executable:
    """Load an exported library.

    Raises:
        LoadError: no such file, not a relaxir library, another version, or missing CPU features.
    """
    file = library_file(path)
    try:
        check_library(file)
        library = LoadedLibrary(ctypes.CDLL(fresh_name(file.resolve())), None)
    except (OSError, AttributeError) as error:
        raise LoadError(
            f"`{file}` is not a relaxir library for this machine: {error}", code="load-malformed"
        ) from error
    try:
        signatures, data = from_json(library.cdll.rx_metadata().decode())
        version = data.get("format")
        if version == FORMAT_VERSION:
            codes = {int(k): str(v) for k, v in data["codes"].items()}
            facts = Facts.from_json(data)
            return Executable(lambda: library, signatures, codes, None, facts, {"target": data["target"]})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, RelaxirError) as error:
        raise LoadError(
            f"`{file}` carries damaged metadata: {type(error).__name__}: {error}",
            code="load-malformed",
            help="export it again",
        ) from error
    raise LoadError(f"`{file}` has format {version}, expected {FORMAT_VERSION}", code="load-version")


def library_file(path: str | Path) -> Path:
    """The file that the caller names.

    Raises:
        LoadError: there is none.
        ArgumentError: not a path.
    """
    check_kind("path", path, (str, os.PathLike))
    file = Path(path)
    try:
        found = file.is_file()
    except (OSError, ValueError) as error:
        raise LoadError(f"cannot read `{str(file)[:80]}`: {error_text(error)}", code="load-path") from error
    if not found:
        raise LoadError(f"no file `{file}`", code="load-path")
    return file


def error_text(error: Exception) -> str:
    """The system's words for an error, without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def memory(exe: Executable, function: str = "main") -> Memory:
    """Peak frame memory of a function as a formula in its symbols: print it, or call it with sizes.

    The frames of the largest of the graph functions that it calls are in it; a recursive function counts once. The
    formula may use symbols of its own, which the lines below it define: ``n_or_1`` is ``n``, but 1 where ``n`` is 0 or
    no temporary sized by it is needed; ``extent`` is the same of an extent with a division, a minimum or a maximum.

    Raises:
        ArgumentError: no such function, or something else than an executable.
    """
    check_kind("exe", exe, Executable, "pass what rx.compile or rx.load gives")
    exe[function]  # an error that lists the functions, for a wrong name
    return replace(exe.facts.memory[function], known=symbols_of(exe.signatures[function]))


def cost(compiled: Executable | IRModule, function: str = "main") -> Cost:
    """Operations and bytes of a call, kernel by kernel, as formulas in the function's symbols.

    Print it, or call it with sizes: ``rx.cost(exe)(n=128).flops``. A module is taken through the default passes first,
    which is most of the work of compiling it.

    Raises:
        ArgumentError: no such function, or something else than an executable or a module.
    """
    if isinstance(compiled, IRModule):
        functions = compiled.graph_functions()
        check_function(function, functions)
        check_module(compiled)
        planned = DEFAULT.run(compiled, PassContext(target=target_info(make_target("native"), None)))
        signature = signature_of(function, functions[function])
        return replace(costs_of(planned.prim_funcs())[function], known=symbols_of(signature))
    check_kind("compiled", compiled, Executable, "pass what rx.compile or rx.load gives, or a module")
    compiled[function]  # an error that lists the functions, for a wrong name
    return replace(compiled.facts.costs()[function], known=symbols_of(compiled.signatures[function]))


def symbols_of(signature: Signature) -> frozenset[str]:
    """Names of all symbols in a function's interface."""
    return frozenset(d.name for t in (*signature.inputs, *signature.outputs) for d in free_dims_of_type(t.type))
