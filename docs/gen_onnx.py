"""Write docs/reference/onnx.md: every ONNX operator, and whether, from which opset and with which types it is imported.

``python docs/gen_onnx.py`` writes the page, ``--check`` fails if it is not what it would write. Both read the types
from docs/onnx_types.json; ``--types`` writes that file first, by importing a node of each operator with each type (half
a minute), and ``--sample`` compares it for some operators.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, ValueInfoProto
from onnx.backend.test.loader import load_model_tests
from writer import publish

from relaxir.frontends.onnx import from_onnx
from relaxir.frontends.onnx.importer import SUPPORTED_OPSETS
from relaxir.frontends.onnx.limits import LIMITS
from relaxir.frontends.onnx.table import CONVERTERS
from relaxir.frontends.onnx.tensors import ELEMENT_TYPES
from relaxir.support.errors import RelaxirError

SAMPLE = 7
"""One operator in so many is tried by ``--sample``."""
TYPES = Path(__file__).resolve().parent / "onnx_types.json"
HEAD = """# ONNX operators

<!-- made by docs/gen_onnx.py: do not edit -->

`relaxir.from_onnx` imports models of opsets {low} to {high}, every operator in the form of each of them. A model with
other operators is refused, with all of its nodes in one error. What a size depends on (targets, pads, axes, counts) may
be constant, computed from shapes, or known only at run time, unless a limit says otherwise.

Floats of 8 and 4 bits and integers of 4 and 2 bits may be moved, converted, quantised and dequantised; results of these
types and of bfloat16 are arrays of the types of ml_dtypes. Sequences and optionals exist at import only: a model's own
inputs and outputs are tensors. Not imported: strings, sparse tensors, complex numbers, random numbers.

*Types* are those of the first operand: `all` stands for every type that the standard allows and relaxir has; `-` for an
operator without a typed operand.

## Operators of the standard ({count} of {total})

| operator | since | imported | types | limits |
|---|---|---|---|---|
"""
OTHER = """
## Operators of {domain} ({count})

| operator | limits |
|---|---|
"""
REST = """
## Operators that are not imported

Beside those of the standard that the table above names: {names}.
"""


def newest() -> Mapping[str, Any]:
    """The newest schema of each operator of the standard."""
    return {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == ""}


def since() -> Mapping[str, int]:
    """The first opset of each operator."""
    first: dict[str, int] = {}
    for s in onnx.defs.get_all_schemas_with_history():
        if s.domain == "":
            first[s.name] = min(s.since_version, first.get(s.name, s.since_version))
    return first


def how(name: str, schema: Any) -> str:
    """How an operator is imported: yes, by its definition in the standard, or no."""
    if ("", name) in CONVERTERS:
        return "yes"
    return "by its definition" if schema.has_function or schema.has_context_dependent_function else "no"


# ---- types, by trial -----------------------------------------------------------------------------------------------


def trials() -> Iterator[tuple[str, ModelProto]]:
    """The first test case of the standard for each operator, as a model of one node."""
    seen = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes infinities on purpose
        cases = load_model_tests(kind="node")
    for model in (c.model for c in cases if c.model is not None and len(c.model.graph.node) == 1):
        node = model.graph.node[0]
        if node.domain == "" and node.op_type not in seen:
            seen.add(node.op_type)
            yield node.op_type, model


def retyped(model: ModelProto, schema: Any, code: int) -> ModelProto:
    """The model with another type for its first operand and those of the same type that may have it."""
    copy: ModelProto = ModelProto.FromString(model.SerializeToString())
    node, formals, name = copy.graph.node[0], schema.inputs, f"tensor({spelt(ELEMENT_TYPES[code])})"
    codes = {v.name: v.type.tensor_type.elem_type for v in copy.graph.input}
    free = {n for k, n in enumerate(node.input) if name in formals[min(k, len(formals) - 1)].types}
    for v in copy.graph.input:
        if v.name in free and codes[v.name] == codes[node.input[0]]:
            v.type.tensor_type.elem_type = code
    for v in copy.graph.output:
        v.type.tensor_type.elem_type = 0
    for a in node.attribute:
        if a.name == "to":  # BitCast needs types of one size
            a.i = code
    return copy


def accepted(model: ModelProto, schema: Any) -> str:
    """The types of the first operand with which a node is imported."""
    sides = (*model.graph.input, *model.graph.output)
    if not schema.inputs or not any(model.graph.node[0].input[:1]) or not all(map(is_tensor, sides)):
        return "-"
    allowed = schema.inputs[0].types
    tried = {n: c for c, n in ELEMENT_TYPES.items() if f"tensor({spelt(n)})" in allowed}
    works = [n for n, c in tried.items() if imports(retyped(model, schema, c))]
    return "all" if len(works) == len(tried) else ", ".join(works) or "none"


def is_tensor(info: ValueInfoProto) -> bool:
    """Whether a model's input or output is a tensor."""
    return bool(info.type.HasField("tensor_type"))


def spelt(dtype: str) -> str:
    """A dtype as schemas write it."""
    return {"float32": "float", "float64": "double"}.get(dtype, dtype)


def imports(model: ModelProto) -> bool:
    """Whether a model is imported."""
    try:
        from_onnx(model)
    except RelaxirError:
        return False
    return True


def found_types(names: frozenset[str] | None = None) -> dict[str, str]:
    """Types of all operators, or of some."""
    schemas = newest()
    return {
        name: accepted(model, schemas[name])
        for name, model in trials()
        if name in schemas and (names is None or name in names) and how(name, schemas[name]) != "no"
    }


# ---- the page ------------------------------------------------------------------------------------------------------


def page(types: Mapping[str, str]) -> str:
    """The whole page."""
    schemas, first = newest(), since()
    rows, count = [], 0
    for name, schema in sorted(schemas.items()):
        way = how(name, schema) if types.get(name) != "none" else "no"
        count += way != "no"
        until = f" to {schema.since_version - 1}" if schema.deprecated else ""
        kinds = types.get(name, "-") if way != "no" else ""
        rows.append(f"| {name} | {first[name]}{until} | {way} | {kinds} | {LIMITS.get(('', name), '')} |")
    domains = sorted({(s.domain, s.name) for s in onnx.defs.get_all_schemas() if s.domain})
    rest = ", ".join(f"{d}: {n}" for d, n in domains if (d, n) not in CONVERTERS)
    head = HEAD.format(low=SUPPORTED_OPSETS.start, high=SUPPORTED_OPSETS.stop - 1, count=count, total=len(rows))
    text = head + "\n".join(rows) + "\n"
    for domain in sorted({d for d, _ in CONVERTERS if d}):
        other = [f"| {name} | {LIMITS.get((d, name), '')} |" for d, name in sorted(CONVERTERS) if d == domain]
        text += OTHER.format(domain=domain, count=len(other)) + "\n".join(other) + "\n"
    return (text + REST.format(names=rest)).replace("|  |", "| |").replace("|  |", "| |")


def main() -> None:
    """Write the page, or compare it."""
    if "--types" in sys.argv[1:]:
        TYPES.write_text(json.dumps(found_types(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    types = json.loads(TYPES.read_text("utf-8"))
    if "--sample" in sys.argv[1:]:
        some = found_types(frozenset(sorted(types)[::SAMPLE]))
        wrong = [f"{n}: {types[n]}, now {t}" for n, t in some.items() if types[n] != t]
        if wrong:
            sys.exit(f"docs/onnx_types.json is not true: {'; '.join(wrong)}; run python docs/gen_onnx.py --types")
    sys.exit(publish({"reference/onnx.md": page(types)}, "gen_onnx.py"))


if __name__ == "__main__":
    main()
