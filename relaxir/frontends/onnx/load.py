"""Reading a model: from a path, bytes or a ModelProto, with its structure checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto

from relaxir.frontends.onnx.functions import inlined
from relaxir.frontends.onnx.graphs import describe, subgraphs
from relaxir.frontends.onnx.wire import without_weights
from relaxir.support.errors import LoadError, UnsupportedError

MAX_DEPTH = 32
"""Nesting of subgraphs beyond which a model is refused; the file format itself ends at 33."""


@dataclass(frozen=True)
class Source:
    """A model and where it came from."""

    model: ModelProto
    name: str
    folder: Path | None
    data: Mapping[int, memoryview] = field(default_factory=dict, repr=False)
    """Elements of initializers of the main graph that the model itself lacks, by their number."""

    @property
    def opsets(self) -> dict[str, int]:
        """Opset by domain; the default domain is ''."""
        return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in self.model.opset_import}


def read_model(model: object) -> Source:
    """The model with local functions expanded.

    Raises:
        LoadError: no such file, not ONNX, or a graph whose structure is broken.
    """
    source = _read(model)
    if not source.model.HasField("graph") or not source.model.opset_import:
        raise LoadError(
            f"`{source.name}` is not an ONNX model: it has no graph or no opset", help="was the download complete?"
        )
    check_nesting(source.model)
    source = replace(source, model=inlined(source.model, source.name))
    check_nesting(source.model)
    check_graph(source.model.graph, frozenset(), f"`{source.name}`")
    return source


def _read(model: object) -> Source:
    if isinstance(model, ModelProto):
        return Source(model, model.graph.name or "model", None)
    if isinstance(model, bytes | bytearray | memoryview):
        return _decode(bytes(model), "model", None)
    if not isinstance(model, str | Path):
        raise LoadError(f"expected a path, bytes or a ModelProto, got {type(model).__name__}", code="load-path")
    path = Path(model)
    try:
        if path.exists() and not path.is_file():
            raise LoadError(f"cannot read `{path}`: not a regular file", code="load-path")
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise LoadError(f"cannot read `{path}`: {getattr(error, 'strerror', error)}", code="load-path") from error
    return _decode(data, path.name, path.parent)


def _decode(data: bytes, name: str, folder: Path | None) -> Source:
    model = ModelProto()
    light, weights = without_weights(data)
    try:
        model.ParseFromString(light)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise LoadError(f"`{name}` is not an ONNX file: {error}", help="was the download complete?") from error
    return Source(model, name, folder, weights)


def check_nesting(model: ModelProto) -> None:
    """Graphs in nodes of graphs, down to a limit that leaves room on the stack.

    Raises:
        LoadError: naming the node that goes deeper.
    """
    functions = (n for f in model.functions for n in f.node)
    todo = [(n, 0) for n in (*model.graph.node, *functions)]
    while todo:
        node, depth = todo.pop()
        inner = [n for g in subgraphs(node) for n in g.node]
        if inner and depth == MAX_DEPTH:
            raise LoadError(f"{describe(node)}: subgraphs are nested more than {MAX_DEPTH} deep")
        todo.extend((n, depth + 1) for n in inner)


def check_graph(graph: GraphProto, outer: frozenset[str], what: str) -> None:
    """Names defined once and before their use, in all subgraphs.

    Raises:
        LoadError: naming the node and the tensor.
        UnsupportedError: a sparse initializer.
    """
    check_text(graph, what)
    for sparse in graph.sparse_initializer:
        raise UnsupportedError(f"initializer `{sparse.values.name}` is sparse", code="import-unsupported")
    inputs, constants = [i.name for i in graph.input], [t.name for t in graph.initializer]
    for kind, names in (("input", inputs), ("initializer", constants)):
        twice = next((n for n in names if names.count(n) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise LoadError(f"two {kind}s are named `{twice}`")
    own = {*inputs, *constants}
    defined = own | outer
    for node in graph.node:
        for name in node.input:
            if name and name not in defined:
                raise LoadError(
                    f"{describe(node)} reads `{name}`, which nothing before it defines", help="is the graph sorted?"
                )
        for a in (a for a in node.attribute if a.ref_attr_name):
            raise LoadError(
                f"{describe(node)}: attribute `{a.name}` is that of a function (`{a.ref_attr_name}`), but the node is"
                " in none"
            )
        for sub in subgraphs(node):
            check_graph(sub, frozenset(defined), f"a graph of {describe(node)}")
        for name in node.output:
            if name and name in own:
                raise LoadError(f"{describe(node)} defines `{name}` a second time")
            if name:
                own.add(name)
                defined.add(name)
    for output in graph.output:
        if output.name not in defined:
            raise LoadError(f"graph output `{output.name}` is defined by nothing")


def check_text(graph: GraphProto, what: str) -> None:
    """Names that are not UTF-8 arrive as bytes.

    Raises:
        LoadError: showing the first one, and what has it.
    """
    infos = (*graph.input, *graph.output, *graph.value_info)
    texts = [
        *((f"a value of {what}", v.name) for v in (*infos, *graph.initializer)),
        *((f"a dimension of `{v.name}`", d.dim_param) for v in infos for d in v.type.tensor_type.shape.dim),
        *(
            (f"{what}, node {i}", t)
            for i, n in enumerate(graph.node)
            for t in (n.op_type, n.domain, n.name, *n.input, *n.output)
        ),
        *((f"an attribute of {describe(n)}", a.name) for n in graph.node for a in n.attribute),
    ]
    for place, text in texts:
        if not isinstance(text, str):
            raise LoadError(f"{place}: a name is not UTF-8 text: {text!r}")
