"""The compile worker: LLVM text in, object code out, on standard input and output.

llvmlite holds one global lock and its LLVM aborts the process on bad text, so code is generated in child processes.
This file is run **by path** with ``python -I -S worker.py DIRECTORY_OF_LLVMLITE``, not as a module: it imports
nothing of relaxir and nothing from ``site``, which keeps the start-up short. ``python -m
relaxir.backends.llvm.worker`` works too.

A request is the pair of a text and :func:`compile_text`'s keyword arguments; its answer is the code, or the words of
LLVM's error. Both ends run the same interpreter, so `marshal` carries these values as they are: bytes are code, a
string is an error.
"""

import marshal
import signal
import sys
from contextlib import suppress
from typing import IO, Any

if __name__ == "__main__" and len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])

import llvmlite.binding as llvm


def initialize() -> None:
    """Start LLVM with every target it was built with (idempotent)."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def compile_text(
    text: str, *, triple: str, cpu: str, features: str, abi: str, opt: int, passes: str, output: str
) -> bytes:
    """Compile LLVM ``text`` to a relocatable object.

    Args:
        text: an LLVM module; its triple and data layout are set here.
        triple: the LLVM triple.
        cpu: LLVM's processor name.
        features: comma-separated ``+name`` and ``-name``.
        abi: the calling convention's name, or empty.
        opt: code generation level 0 to 3.
        passes: ``none`` (the text is final) or ``sroa`` (stack slots become registers, then a light clean-up).
        output: ``object`` or ``assembly``.

    Raises:
        RuntimeError: LLVM cannot parse or verify the text.
        ValueError: an unknown ``passes`` or ``output``.
    """
    reloc = "static" if triple.startswith("wasm") else "pic"
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=opt, reloc=reloc, codemodel="default", abiname=abi
    )
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.data_layout = str(machine.target_data)
    module.verify()
    if passes == "sroa":
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
        manager = llvm.create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
        manager.run(module, builder)
    elif passes != "none":
        raise ValueError(f"unknown passes '{passes}': 'none' or 'sroa'")
    if output == "assembly":
        machine.set_asm_verbosity(True)
        return str(machine.emit_assembly(module)).encode()
    if output != "object":
        raise ValueError(f"unknown output '{output}': 'object' or 'assembly'")
    return bytes(machine.emit_object(module))


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer requests from ``source`` until it ends."""
    initialize()
    with suppress(EOFError):
        while True:
            text, options = marshal.load(source)
            marshal.dump(answer(text, options), sink)
            sink.flush()


def answer(text: str, options: dict[str, Any]) -> bytes | str:
    """The code, or the words of the error."""
    try:
        return compile_text(text, **options)
    except (RuntimeError, ValueError) as error:
        return str(error)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's interrupt is for the parent, which ends us
    serve(sys.stdin.buffer, sys.stdout.buffer)
