"""Commands and their options; each prints errors as blocks and exits with 1 instead of a traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

import relaxir as rx
from relaxir.cli.inputs import make_inputs, parse_dims, parse_sizes, read_inputs
from relaxir.cli.progress import progress_bar
from relaxir.cli.stages import compare_stages, stage_text
from relaxir.ir import IRModule
from relaxir.runtime.executable import Executable
from relaxir.support.errors import ArgumentError, LoadError, RelaxirError, codes
from relaxir.support.errors import explain as explain_code


class Group(click.Group):
    """Shows relaxir's own errors as they are meant to be read."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors go to standard error."""
        try:
            return super().invoke(ctx)
        except RelaxirError as error:
            click.echo(str(error), err=True)
            sys.exit(1)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compile models with dynamic shapes to native code."""


DIMS = click.option(
    "--dim", "dims", multiple=True, metavar="NAME=MIN..MAX", help="range of a named dimension, or one value; repeatable"
)
MODEL = click.argument("model", type=click.Path(path_type=Path))


def load_module(path: Path, dims: tuple[str, ...]) -> IRModule:
    """A module from an ONNX file or IR text."""
    if not path.is_file():
        raise LoadError(f"no file `{path}`", code="load-path")
    if path.suffix == ".rx":
        if dims:
            raise ArgumentError("--dim is for ONNX models: a .rx file declares its own ranges")
        constants = path.with_suffix(".npz")
        return rx.parse(path.read_text(), constants if constants.is_file() else None)
    return rx.from_onnx(path, dims=parse_dims(dims))


@main.command()
@MODEL
@click.option("-o", "--output", type=click.Path(path_type=Path), help="library to write (default: MODEL with .so)")
@click.option("--target", default="native", show_default=True, help="native, x86-64-v2/v3/v4, aarch64 or an LLVM triple")
@click.option("--threads", type=click.IntRange(1, 64), help="most threads of a call (default: all the process may use)")
@click.option("--no-cache", is_flag=True, help="do not use the object cache")
@DIMS
def compile(model: Path, output: Path | None, target: str, threads: int | None, no_cache: bool, dims: tuple[str, ...]) -> None:  # the command's name
    """Compile MODEL (.onnx or .rx) to a self-contained library and a C header."""
    module = load_module(model, dims)
    with progress_bar("compiling") as tick:
        exe = rx.compile(module, target=target, threads=threads, cache=not no_cache, progress=tick)
    path = exe.export(output or model.with_suffix(".so"))
    click.echo(f"wrote {path} ({path.stat().st_size:,} bytes) and {path.with_suffix('.h')}")


@main.command()
@MODEL
@click.option("-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE", help=".npy for one input, .npz for several")
@click.option("-s", "--size", "sizes", multiple=True, metavar="NAME=N", help="size of a symbol for generated inputs (default 1)")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="write the results to this .npz")
@click.option("-f", "--function", default="main", show_default=True)
@click.option("--threads", type=click.IntRange(1, 64))
@click.option("--seed", default=0, show_default=True, help="of generated inputs")
@DIMS
def run(
    model: Path,
    inputs: tuple[str, ...],
    sizes: tuple[str, ...],
    output: Path | None,
    function: str,
    threads: int | None,
    seed: int,
    dims: tuple[str, ...],
) -> None:
    """Run MODEL (.onnx, .rx or an exported .so) on files or generated inputs."""
    exe = executable(model, dims, threads)
    signature = exe.signatures.get(function)
    if signature is None:
        raise ArgumentError(f"no function `{function}`", help=f"the module has {', '.join(exe.signatures)}")
    feeds = read_inputs(inputs, signature) if inputs else {}
    feeds = {**make_inputs(signature, parse_sizes(sizes), seed, have=feeds), **feeds}
    result = exe[function](**feeds)
    results = result if isinstance(result, tuple) else (result,)
    named = dict(zip(exe[function].output_names, results, strict=True))
    if output is not None:
        np.savez(output, **named)  # type: ignore[arg-type]  # keyword names are the outputs'
        click.echo(f"wrote {output}")
    table = Table("result", "dtype", "shape", "first values")
    for name, array in named.items():
        table.add_row(name, array.dtype.name, str(list(array.shape)), np.array2string(array.reshape(-1)[:4], precision=5))
    Console().print(table)


def executable(path: Path, dims: tuple[str, ...], threads: int | None) -> Executable:
    """A library as it is, anything else compiled."""
    if path.suffix == ".so":
        exe = rx.load(path)
        if threads is not None:
            exe.set_threads(threads)
        return exe
    module = load_module(path, dims)
    with progress_bar("compiling") as tick:
        return rx.compile(module, threads=threads, progress=tick)


@main.command()
@MODEL
@click.option("--after", default="", metavar="PASS", help="show the module after this pass; `all`: after each")
@click.option("--changed", is_flag=True, help="with --after all: only where the text changed")
@DIMS
def show(model: Path, after: str, changed: bool, dims: tuple[str, ...]) -> None:
    """Print the IR of MODEL, as imported or after a pass, in colour on a terminal."""
    text = stage_text(load_module(model, dims), after, changed)
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, "python", background_color="default", word_wrap=True))
    else:
        click.echo(text)


@main.command()
@MODEL
@click.option("-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE", help=".npy for one input, .npz for several")
@click.option("-s", "--size", "sizes", multiple=True, metavar="NAME=N", help="size of a symbol for generated inputs (default 2)")
@click.option("-f", "--function", default="main", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--rtol", default=1e-4, show_default=True)
@DIMS
def check(
    model: Path,
    inputs: tuple[str, ...],
    sizes: tuple[str, ...],
    function: str,
    seed: int,
    rtol: float,
    dims: tuple[str, ...],
) -> None:
    """Run MODEL after every pass in the reference interpreter, then compiled; name the first pass that changes a result."""
    module = load_module(model, dims)
    table = Table("stage", "largest difference", "seconds")
    ok = True
    for row in compare_stages(module, function, inputs, parse_sizes(sizes), seed, rtol):
        table.add_row(row.name, f"{row.difference:.3g}" if row.ok else f"[red]{row.difference:.3g}", f"{row.seconds:.2f}")
        ok = ok and row.ok
        if not row.ok:
            break
    Console().print(table)
    if not ok:
        click.echo("the first wrong stage is the last row", err=True)
        sys.exit(1)


@main.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Show the page of an error CODE; without one, list all codes."""
    if code is None:
        click.echo("\n".join(codes()))
        return
    if code not in codes():
        raise ArgumentError(f"no error code `{code}`", help="run `relaxir explain` for the list")
    click.echo(explain_code(code))
