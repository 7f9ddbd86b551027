"""The page about the text form names every form, and its module is one."""

from __future__ import annotations

import re
from pathlib import Path

from relaxir.ops import TABLE
from relaxir.support.dtypes import DTYPES
from relaxir.text import parse
from relaxir.text.tensor_expr import FUNCTIONS
from relaxir.text.tensor_host import DEFINITIONS, EFFECTS
from relaxir.text.types import TYPE_NAMES
from relaxir.tir import ForKind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "language.md").read_text(encoding="utf-8")


def test_the_module_is_as_printed() -> None:
    block = re.search(r"```python\n(.*?)\n```", PAGE, re.DOTALL)
    assert block is not None
    assert str(parse(block[1], TABLE)) == block[1]


def test_every_form_is_named() -> None:
    forms = [*(f"T.{n}" for n in (*DEFINITIONS, *EFFECTS, *FUNCTIONS)), *(f"R.{n}" for n in TYPE_NAMES)]
    forms += [f"T.{k.value}" for k in ForKind]
    assert not [f for f in forms if f not in PAGE]
    assert not [d.short for d in DTYPES.values() if not re.search(rf"\b{d.short}\b", PAGE)]
