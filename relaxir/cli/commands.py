"""Commands and their options."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

import relaxir as rx
from relaxir.cli.bench import PEERS, check_against, run_bench, write_json
from relaxir.cli.dims import Dims, dims_option
from relaxir.cli.failures import Group
from relaxir.cli.inputs import make_inputs, read_inputs, telling_sizes
from relaxir.cli.models import LIBRARY, check_constants, check_file, load_executable, load_module, output_path
from relaxir.cli.outputs import (
    check_place,
    check_results,
    console,
    results_table,
    save_results,
    seconds_table,
    written_to,
)
from relaxir.cli.progress import progress_bar
from relaxir.cli.stages import COMPILED, HALF_RTOL, Comparison, Row, as_tuple, readable, stage_text
from relaxir.ir import IRModule
from relaxir.ir.expr import Array
from relaxir.measure import check_profiling, write_trace
from relaxir.measure.report import doubts, profile_table, rows_table
from relaxir.passes import Instrument
from relaxir.passes.instruments import CompareEach, VerifyEach
from relaxir.runtime.executable import Executable
from relaxir.runtime.signature import Signature, signature_of
from relaxir.support.checks import check_function
from relaxir.support.clock import Clock
from relaxir.support.errors import InternalError, RelaxirError
from relaxir.support.errors import explain as explain_code
from relaxir.support.errors import summary as error_summary
from relaxir.support.optional import load as load_optional

CHECK_SIZE = 2
"""Size of symbols that `check` takes: 1 would hide what broadcasts."""

FILE: Final = click.Path(readable=False, path_type=Path)  # whether it can be read is an error like any other of it
MODEL = click.argument("model", type=FILE)
INPUTS = click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help=".npy for one input, .npz for several; repeatable.",
)


COMPILED_DIMS = dims_option(
    "Fix a dimension of an ONNX model, or give its range; repeatable.", "NAME=N|MIN..MAX", fixes=True
)
SIZES = dims_option(
    "Size of a dimension for generated inputs, or its range in an ONNX model; repeatable.", "NAME=N|MIN..MAX"
)
SWEEP = dims_option(
    "Sizes to try of a dimension (default 1), or its range in an ONNX model; repeatable.",
    "NAME=N,...|MIN..MAX",
    most=None,
)
FUNCTION = click.option("-f", "--function", default="main", show_default=True, help="Which function of the model.")
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of generated inputs.")
THREADS = click.option(
    "--threads", type=click.IntRange(1, 1024), help="Most threads of a call (default: all the process may use)."
)


def check_tolerance(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """Refuse what no difference can be held against, NaN among it."""
    if not 0 <= value < inf:
        raise click.BadParameter(f"{value} is no number of at least 0; write for example 1e-4", ctx, param)
    return value


@click.group("relaxir", cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--traceback", is_flag=True, help="Show Python's traceback before the message of an error.")
@click.version_option(rx.__version__, message="%(prog)s %(version)s", help="Show the version and exit.")
def main(traceback: bool) -> None:
    """Compile models with dynamic shapes to native code.

    The exit status is 0; 1 after an error; 2 for a command that is not written as its --help says.
    """


@main.command(name="compile", short_help="Compile a model to a library and a C header.")
@MODEL
@click.option(
    "-o", "--output", type=FILE, callback=written_to(LIBRARY), help="Library to write (default: MODEL with .so)."
)
@click.option(
    "--target", default="native", show_default=True, help="native, x86-64-v2/v3/v4, aarch64 or an LLVM triple."
)
@THREADS
@click.option("--no-cache", is_flag=True, help="Do not use the object cache.")
@click.option("--timing", is_flag=True, help="Print the seconds of each pass and step, and what the cache saved.")
@click.option("--profile", is_flag=True, help="Note when kernels run, for `relaxir run --profile`.")
@click.option("--check-each", is_flag=True, help="Verify each pass and compare its result in the interpreter.")
@COMPILED_DIMS
def compile_(
    model: Path,
    output: Path | None,
    target: str,
    threads: int | None,
    no_cache: bool,
    timing: bool,
    profile: bool,
    check_each: bool,
    dims: Dims,
) -> None:
    """Compile MODEL (.onnx or .rx) to a self-contained library and a C header."""
    check_file(model)
    path = output_path(model, output)
    clock = Clock()
    with clock("import"):
        module = load_module(model, dims)
    watchers = checkers(module) if check_each else ()
    with progress_bar("compiling") as tick:
        exe = rx.compile(
            module,
            target=target,
            threads=threads,
            cache=not no_cache,
            profile=profile,
            progress=tick,
            instruments=watchers,
        )
    with clock("export"):
        exe.export(path)
    if timing:
        seconds = {"import": clock.seconds["import"], **exe.details["seconds"], "export": clock.seconds["export"]}
        console().print(seconds_table(seconds, exe.details["cache"]))
    click.echo(f"wrote {path} ({path.stat().st_size:,} bytes) and {path.with_suffix('.h')}")


def checkers(module: IRModule) -> tuple[Instrument, ...]:
    """Instruments that stop a compilation at the first pass that is wrong on generated inputs."""
    signatures = [signature_of(n, f) for n, f in module.graph_functions().items()]
    fed = [(s, list(make_inputs(s, {}, 0, have={}, default=CHECK_SIZE).values())) for s in signatures]

    def evaluate(stage: IRModule) -> list[Array]:
        return [r for s, arrays in fed for r in readable(rx.evaluate(stage, s.name, *arrays), s)]

    coarse = any(o.type.dtype == "bfloat16" for s in signatures for o in s.outputs)
    return (VerifyEach(), CompareEach(evaluate, HALF_RTOL, HALF_RTOL) if coarse else CompareEach(evaluate))


@main.command(short_help="Run a model on files or random inputs, and profile it.")
@MODEL
@INPUTS
@SIZES
@click.option(
    "-o",
    "--output",
    type=FILE,
    callback=written_to(".npz", ".npy"),
    help="Write the results to this .npz or .npy file.",
)
@click.option("--profile", is_flag=True, help="Run it some more times and print the time of each kernel.")
@click.option(
    "--trace", type=FILE, callback=written_to(".json"), help="Write the profile for Perfetto to this .json file."
)
@click.option(
    "--roofline",
    type=FILE,
    callback=written_to(".png", ".svg", ".html"),
    help="Plot the profile to this .png, .svg or .html file.",
)
@FUNCTION
@THREADS
@SEED
def run(
    model: Path,
    inputs: tuple[str, ...],
    dims: Dims,
    output: Path | None,
    profile: bool,
    trace: Path | None,
    roofline: Path | None,
    function: str,
    threads: int | None,
    seed: int,
) -> None:
    """Run MODEL (.onnx, .rx or an exported .so) on files, or on inputs generated in the given sizes (default 1)."""
    check_file(model)
    for place in (output, trace, roofline):
        check_place(place)
    check_constants(model, output)
    draw = None if roofline is None else load_optional("relaxir.measure.roofline", extra="plot").write_roofline
    watched = profile or trace is not None or roofline is not None
    exe = load_executable(model, dims, threads, watched)
    if watched:
        check_profiling(exe)
    main = exe[function]
    check_results(output, len(main.output_names))
    feeds = feed(exe.signatures[function], inputs, dims, seed, 1)
    with telling_sizes(exe.signatures[function], feeds):
        results = dict(zip(main.output_names, as_tuple(main(**feeds)), strict=True))
    console().print(results_table(results))
    if output is not None:
        save_results(output, results)
        click.echo(f"wrote {output}")
    if watched:
        found = rx.profile(exe, feeds, function)
        console().print(profile_table(found))
        for path, write in ((trace, write_trace), (roofline, draw)):
            if path is not None and write is not None:
                write(found, path)
                click.echo(f"wrote {path}")


@main.command(short_help="Time a model at many sizes, also beside a peer.")
@MODEL
@INPUTS
@SWEEP
@click.option("--against", type=click.Choice(PEERS), help="Time this peer in turn on the same inputs.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=9, show_default=True, help="Turns of each.")
@click.option("--json", "json_", type=FILE, callback=written_to(".json"), help="Write all figures to this .json file.")
@FUNCTION
@THREADS
@SEED
def bench(
    model: Path,
    inputs: tuple[str, ...],
    dims: Dims,
    against: str | None,
    rounds: int,
    json_: Path | None,
    function: str,
    threads: int | None,
    seed: int,
) -> None:
    """Time MODEL (.onnx, .rx or an exported .so), compiled once, at every combination of the given sizes."""
    check_file(model)
    check_against(model, against)
    check_place(json_)
    exe = load_executable(model, dims, threads)
    have = read_inputs(inputs, signature_in(exe, function))
    with progress_bar("measuring") as tick:
        rows, peaks = run_bench(model, exe, dims, against, rounds, have, seed, function, tick)
    console().print(rows_table(rows, peaks))
    for doubt in doubts(rows):
        click.echo(doubt)
    if json_ is not None:
        write_json(json_, rows, peaks)
        click.echo(f"wrote {json_}")


def signature_in(exe: Executable, function: str) -> Signature:
    """The interface of a function that the user names."""
    exe[function]  # an error that lists the functions, for a wrong name
    return exe.signatures[function]


def feed(signature: Signature, files: tuple[str, ...], dims: Dims, seed: int, default: int) -> dict[str, Array]:
    """Inputs from files, and generated ones for the others."""
    have = read_inputs(files, signature)
    (sizes,) = dims.points()  # a command that tries several has another way
    return {**make_inputs(signature, sizes, seed, have=have, default=default), **have}


@main.command(short_help="Print the IR of a model, as imported or after a pass.")
@MODEL
@click.option("--after", default="", metavar="PASS", help="Show the module after this pass; `all`: after each.")
@click.option("--changed", is_flag=True, help="With --after all: only where the text changed.")
@click.option("--color/--no-color", default=None, help="Default: where the output is a terminal.")
@COMPILED_DIMS
def show(model: Path, after: str, changed: bool, color: bool | None, dims: Dims) -> None:
    """Print the IR of MODEL, as imported or after a pass."""
    if changed and after != "all":
        raise click.UsageError("--changed is for --after all: it leaves out the passes that change nothing")
    text = stage_text(load_module(model, dims), after, changed)
    out = Console(force_terminal=color)
    if out.is_terminal:  # lines as they are, however narrow it is: the text is a program
        out.print(Syntax(text, "python", background_color="default").highlight(text), soft_wrap=True, end="")
    else:
        click.echo(text)


@main.command(short_help="Find the first pass that changes a result of a model.")
@MODEL
@INPUTS
@SIZES
@FUNCTION
@SEED
@click.option(
    "--rtol",
    callback=check_tolerance,
    default=1e-4,
    show_default=True,
    help="Largest difference, relative to the largest element.",
)
@click.option("--bisect", is_flag=True, help="Run as few stages as find the wrong one: for models slow to interpret.")
def check(
    model: Path,
    inputs: tuple[str, ...],
    dims: Dims,
    function: str,
    seed: int,
    rtol: float,
    bisect: bool,
) -> None:
    """Run MODEL in the interpreter after every pass, then compiled; name the first pass that changes a result."""
    module = load_module(model, dims)
    functions = module.graph_functions()
    check_function(function, functions)
    signature = signature_of(function, functions[function])
    feeds = feed(signature, inputs, dims, seed, CHECK_SIZE)
    with telling_sizes(signature, feeds):
        comparison = Comparison(module, signature, [feeds[i.name] for i in signature.inputs], rtol)
    rows: list[Row] = []
    with progress_bar("checking") as tick:
        for row in comparison.bisect() if bisect else comparison.rows():
            rows.append(row)
            tick(len(rows), len(comparison.pipeline.passes) + 2)
    table = Table("stage", "largest difference", "seconds")
    for row in rows:
        colour = "green" if row.ok else "red"
        table.add_row(row.name, f"[{colour}]{row.difference:.3g}[/]", f"{row.seconds:.2f}")
    console().print(table)
    if "noise" in vars(comparison):
        click.echo(f"rounding alone moves these results by up to {max(comparison.noise):.3g}: a model sensitive to it")
    wrong = [row for row in rows if not row.ok]
    if wrong:
        raise verdict(wrong[-1], model)


def verdict(row: Row, model: Path) -> RelaxirError:
    """The error for the first wrong stage."""
    if row.name == COMPILED:
        return InternalError(
            f"the compiled code is wrong although every pass is right: {row.problem}",
            notes=[f"the tensor programs it was made from: relaxir show {model} --after PlanMemory"],
        )
    return InternalError(
        f"pass `{row.name}` is the first wrong one: {row.problem}",
        notes=[f"what it made: relaxir show {model} --after {row.name}"],
    )


@main.command(short_help="Show what an error code means, or all of them.")
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Show the manual page of an error CODE; without one, a line for each."""
    click.echo(error_summary() if code is None else explain_code(code).rstrip())
