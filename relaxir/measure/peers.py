"""Other runtimes, as callables to measure against. Needs the extra ``bench``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort

from relaxir.ir.expr import Array
from relaxir.support.errors import LoadError

VERSION: str = ort.__version__


class OnnxRuntime:
    """A model in onnxruntime, on its CPU provider, with as many threads as asked for."""

    name = "onnxruntime"

    def __init__(self, model: Path | bytes, threads: int) -> None:
        """Load a model.

        Raises:
            LoadError: onnxruntime refuses it; the words are its own.
        """
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        source = model if isinstance(model, bytes) else str(model)
        try:
            self._session: Any = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its classes have no common base of their own
            raise LoadError(f"onnxruntime cannot load the model: {error}", code="load-malformed") from error
        self.inputs: tuple[str, ...] = tuple(i.name for i in self._session.get_inputs())

    def caller(self, feeds: Mapping[str, Array]) -> Callable[[], list[Array]]:
        """A call with these inputs."""
        run, own = self._session.run, {n: feeds[n] for n in self.inputs}
        return lambda: run(None, own)
