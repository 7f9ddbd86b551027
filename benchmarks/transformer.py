"""A transformer encoder in ONNX against onnxruntime, shape by shape: ratios of times, both in turn in one process.

``python -m benchmarks.transformer model.onnx [threads [rounds]]``. The model has integer inputs of shape (batch,
length): token numbers, and masks whose name contains ``mask``. A ratio below 1 means that relaxir is faster. Run it
under a timing lock; each figure is the median over rounds of the ratio within a round. With one thread the time is the
processor time of that thread, which other load disturbs little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import geometric_mean, median

import numpy as np
import onnxruntime as ort

import relaxir as rx

SHAPES = ((1, 7), (1, 32), (1, 128), (1, 384), (8, 16), (8, 128))


def seconds(call: Callable[[], object], repeat: int, clock: Callable[[], float]) -> float:
    """Best time of one call."""
    best = float("inf")
    for _ in range(repeat):
        start = clock()
        call()
        best = min(best, clock() - start)
    return best


def main() -> None:
    """Print one line per shape and the geometric mean."""
    path, *numbers = sys.argv[1:]
    threads, rounds = (int(a) for a in (*numbers, *("1", "9")[len(numbers) :]))
    clock = time.thread_time if threads == 1 else time.perf_counter
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ours = rx.compile(rx.from_onnx(path), threads=threads)["main"]
    rng = np.random.default_rng(0)
    ratios: list[float] = []
    for batch, length in SHAPES:
        feeds = {
            i.name: np.ones((batch, length), np.int64)
            if "mask" in i.name
            else rng.integers(1000, 30000, (batch, length))
            for i in session.get_inputs()
        }
        got, want = np.asarray(ours(**feeds)), session.run(None, feeds)[0]
        error = float(np.abs(got - want).max() / max(1e-2, np.abs(want).max()))
        repeat = max(1, min(20, 1000 // (batch * length)))
        calls = (partial(ours, **feeds), partial(session.run, None, feeds))
        pairs = [tuple(seconds(call, repeat, clock) for call in calls) for _ in range(rounds)]
        ratio = median(a / b for a, b in pairs)
        ratios.append(ratio)
        best = tuple(1e3 * min(p[n] for p in pairs) for n in range(2))
        times = f"best {best[0]:.2f} ms, onnxruntime {best[1]:.2f} ms"
        print(f"({batch}, {length})  ratio {ratio:.2f}  {times}  error {error:.1e}", flush=True)
    print(f"geometric mean {geometric_mean(ratios):.3f}, worst {max(ratios):.2f}")


if __name__ == "__main__":
    main()
