"""Import models through torch.export, compile each once, and compare with torch at several sizes; prints a table.

    python -m benchmarks.check_torch [--core] [--interpret] [--models FOLDER] [NAME ...]

FOLDER holds ``torch_models.py`` (a dict ``MODELS``: module, arguments, dynamic shapes, makers of arguments at other
sizes). Names of transformers models (llama, llama_kv, bert, gpt2, vit, whisper, convnext, t5) are made from small
configurations with random weights by ``export_transformers.py`` of the same folder; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import relaxir as rx

TRANSFORMERS = ("llama", "llama_kv", "bert", "gpt2", "vit", "whisper", "convnext", "t5")
SHAPES = ((1, 5), (3, 17), (4, 40), (2, 8), (1, 1))
"""Batch and length of the bindings at which transformers models are compared."""


class Model(NamedTuple):
    """A module, how it is exported, and arguments to compare at: positional and named."""

    module: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    shapes: Any
    cases: Sequence[tuple[Sequence[Any], dict[str, Any]]]


def small_models() -> Iterator[tuple[str, Callable[[], Model]]]:
    """The models of torch_models.py."""
    from torch_models import MODELS  # a folder given on the command line

    for name, (module, args, shapes, makers) in MODELS.items():
        cases = [(args, {}), *((make(), {}) for make in makers)]
        yield name, lambda m=module, a=args, s=shapes, c=cases: Model(m, a, {}, s, c)


def transformers_model(name: str, folder: Path) -> Model:
    """A model of export_transformers.py: only its function ``mk`` is taken, the rest of it is a script."""
    source = (folder / "export_transformers.py").read_text().split("os.makedirs(")[0]
    scope: dict[str, Any] = {}
    os.environ["EAGER"] = "1" if name == "gpt2" else ""
    exec(compile(source, "export_transformers.py", "exec"), scope)  # a script of the user
    module, make, shapes = scope["mk"](name)
    return Model(module, (), make(2, 8), shapes, [((), make(b, t)) for b, t in SHAPES])


def flat(value: Any) -> list[Any]:
    """Tensors of a result."""
    value = value.to_tuple() if hasattr(value, "to_tuple") else value
    if isinstance(value, tuple | list):
        return [x for v in value for x in flat(v)]
    return [value] if isinstance(value, torch.Tensor) else []


def difference(got: Any, want: Sequence[Any]) -> float:
    """Largest difference of two results of the same shapes."""
    results = [np.asarray(r) for r in (got if isinstance(got, tuple | list) else [got])]
    if [r.shape for r in results] != [tuple(w.shape) for w in want]:
        raise ValueError(f"shapes {[r.shape for r in results]}, torch {[tuple(w.shape) for w in want]}")
    pairs = [(r.astype(np.float64), w.detach().double().numpy()) for r, w in zip(results, want, strict=True)]
    return max((float(np.abs(r - w).max()) for r, w in pairs if r.size), default=0.0)


def row(name: str, model: Model, core: bool, interpret: bool) -> tuple[str, bool]:
    """Import, compile, compare: one line of the table, and whether all sizes agree."""
    with torch.no_grad():
        program = torch.export.export(
            model.module, tuple(model.args), model.kwargs, dynamic_shapes=model.shapes, strict=False
        )
    program = program.run_decompositions() if core else program
    start = time.perf_counter()
    module = rx.from_torch(program)
    imported = time.perf_counter() - start
    start = time.perf_counter()
    compiled = None if interpret else rx.compile(module, threads=1)["main"]
    built = time.perf_counter() - start
    shown: list[str] = []
    for args, kwargs in model.cases:
        with torch.no_grad():
            want = flat(model.module(*args, **kwargs))
        arrays = [t.numpy() for t in (*args, *(kwargs[k] for k in program.graph_signature.user_inputs if k in kwargs))]
        got = rx.evaluate(module, "main", *arrays) if compiled is None else compiled(*arrays)
        shown.append(f"{difference(got, want):.1e}")
    return f"{name:16}{imported:8.2f}{built:9.2f}  {' '.join(shown)}", all(float(s) < 1e-4 for s in shown)


def main() -> int:
    """Run the models named on the command line, all by default; the exit status counts failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--core", action="store_true", help="decompose to core ATen first")
    parser.add_argument("--interpret", action="store_true", help="use the interpreter instead of compiling")
    parser.add_argument("--models", type=Path, default=Path("../shared/check"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    sys.path.insert(0, str(options.models))
    torch.manual_seed(0)
    models = dict(small_models())
    models |= {n: lambda n=n: transformers_model(n, options.models) for n in TRANSFORMERS}
    failed = 0
    print(f"{'model':16}{'import s':>8}{'build s':>9}  largest difference at each size")
    for name in options.names or models:
        try:
            line, agrees = row(name, models[name](), options.core, options.interpret)
        except (rx.RelaxirError, ValueError, RuntimeError) as error:
            line, agrees = f"{name:16}failed: {str(error).splitlines()[0]}", False
        failed += not agrees
        print(line, flush=True)
    print(f"{failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
