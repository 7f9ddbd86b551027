"""Compile a real model once and run it at several batch sizes: in this process, from its library, and from C.

The model is magika's file-type classifier (3 MB, dynamic batch), taken from its wheel on the Python package index.
Run it with ``make demo``; files are kept in build/demo.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import relaxir as rx

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "demo"
WHEEL = "magika==1.0.3"
MEMBER = "magika/models/standard_v3_3/model.onnx"
SHA256 = "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"
BATCHES = (1, 3, 8, 0)
TOLERANCE = 1e-5
WIDTH = 2048
PADDING = 256


def fetch_model() -> Path:
    """Return the path of the model, downloaded with pip and checked on first use."""
    path = BUILD / "model.onnx"
    if not path.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        if subprocess.run([*pip, "--only-binary=:all:", "--dest", BUILD, WHEEL], check=False).returncode:
            raise SystemExit(f"could not download {WHEEL}: the demo needs a package index on its first run")
        wheel = next(BUILD.glob("magika-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(MEMBER)
        wheel.unlink()
        if hashlib.sha256(data).hexdigest() != SHA256:
            raise SystemExit(f"{MEMBER} of {WHEEL} is not the file this demo was written for")
        path.write_bytes(data)
    return path


def file_bytes(batch: int) -> np.ndarray:
    """Return the model's input for some source files: the first and the last 1024 bytes of each, padded."""
    half = WIDTH // 2
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    out = np.full((batch, WIDTH), PADDING, np.int32)
    for row, path in zip(out, files, strict=False):
        data = np.frombuffer(path.read_bytes().strip(), np.uint8)
        head, tail = data[:half], data[-half:]
        row[: len(head)] = head
        row[WIDTH - len(tail) :] = tail
    return out


def timed(call: Callable[[], np.ndarray], budget: float = 1.0) -> tuple[np.ndarray, float]:
    """Return the result of a call and the time of the fastest in microseconds; calls for about ``budget`` seconds."""
    best, end = float("inf"), time.perf_counter() + budget
    while True:
        start = time.perf_counter()
        result = call()
        stop = time.perf_counter()
        best = min(best, stop - start)
        if stop > end:
            return result, best * 1e6


def build_host(library: Path) -> Path | None:
    """Compile the C program against the generated header, or return None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    host = BUILD / "host"
    source = ROOT / "examples" / "host.c"
    include = ["-I", str(library.parent)]
    link = [str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run([compiler, "-O2", "-Wall", "-o", host, source, *include, *link], check=True)
    return host


def run_host(host: Path, array: np.ndarray, width: int) -> tuple[np.ndarray, float]:
    """Run the C program on a batch; return the scores and the time of one call in microseconds."""
    done = subprocess.run([host, str(len(array))], input=array.tobytes(), capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"the C program failed: {done.stderr.decode()}")
    return np.frombuffer(done.stdout, np.float32).reshape(len(array), width), float(done.stderr)


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest absolute difference, infinite where shapes differ."""
    if got.shape != expected.shape:
        return float("inf")
    return float(np.abs(got - expected).max(initial=0.0))


Runner = Callable[[np.ndarray], tuple[np.ndarray, float]]


def compare(mod: rx.IRModule, runners: Sequence[tuple[str, Runner]], console: Console) -> bool:
    """Run every batch size on every runner, print a table, and return whether all agree with the interpreter."""
    table = Table("batch", "input", "output", "called from", "difference", "us/call", title="one build, every batch")
    agree = True
    for batch in BATCHES:
        array = file_bytes(batch)
        expected = rx.evaluate(mod, "main", array)
        for name, run in runners:
            got, taken = run(array)
            worst = difference(got, expected)
            agree &= worst <= TOLERANCE
            colour = "green" if worst <= TOLERANCE else "red"
            shapes = (str(array.shape), str(got.shape))
            table.add_row(str(batch), *shapes, name, f"[{colour}]{worst:.1e}[/]", f"{taken:.0f}")
        table.add_section()
    console.print(table)
    return agree


def main() -> int:
    """Run the demonstration; the exit status is 0 when all results agree."""
    console = Console()
    BUILD.mkdir(parents=True, exist_ok=True)
    model = fetch_model()

    start = time.perf_counter()
    mod = rx.from_onnx(model, dims={"unk__214": rx.dim("batch", min=0)})
    exe = rx.compile(mod)
    library = BUILD / "model.so"
    exe.export(library)
    size = library.stat().st_size / 1e6
    console.print(f"built in {time.perf_counter() - start:.1f} s; {library.relative_to(ROOT)}: {size:.1f} MB")

    here, loaded = exe["main"], rx.load(library)["main"]
    runners: list[tuple[str, Runner]] = [
        ("Python", lambda array: timed(lambda: here(array))),
        ("Python, library", lambda array: timed(lambda: loaded(array))),
    ]
    host = build_host(library)
    if host is None:
        console.print("no C compiler (cc): the C program is left out")
    else:
        width = here(file_bytes(1)).shape[1]
        runners.append(("C, library", lambda array: run_host(host, array, width)))

    agree = compare(mod, runners, console)
    console.print("memory of a call:")
    console.print(rx.memory(exe))
    if not agree:
        console.print(f"[red]some results differ from the interpreter's by more than {TOLERANCE}[/]")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
