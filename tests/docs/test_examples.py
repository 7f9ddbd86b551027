"""Every interactive example in the README and under docs/ gives what it shows.

Only ``>>>`` examples run; the examples of one page share their names, from top to bottom.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [p for p in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if ">>> " in p.read_text()]
FENCE = re.compile(r"^```(?:python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS


def examples(text: str, name: str) -> doctest.DocTest:
    """Gather the examples of a page, each with its line number in the page."""
    parser = doctest.DocTestParser()
    found: list[doctest.Example] = []
    for block in FENCE.finditer(text):
        offset = text.count("\n", 0, block.start(1))
        for example in parser.get_examples(block.group(1), name):
            example.lineno += offset
            found.append(example)
    return doctest.DocTest(found, {}, name, name, 0, text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples write files
    test = examples(page.read_text(encoding="utf-8"), page.name)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (b for b in FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8")) if "exe.export" in b)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((768, 3072), np.float32)
    names = {"weights": weights, "array": rng.standard_normal((3, 768), np.float32)}
    exec(block, names)
    assert names["out"].shape == (3, 3072)
    assert {p.name for p in tmp_path.iterdir()} == {"model.so", "model.h"}
    assert capsys.readouterr().out.startswith("main: ")


def test_a_wrong_example_fails() -> None:
    test = examples("# Page\n\n```python\n>>> 1 + 1\n3\n```\n", "page.md")
    assert test.examples[0].lineno == 3
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None).failed == 1


def test_examples_share_names() -> None:
    test = examples("```python\n>>> a = 1\n```\ntext\n```pycon\n>>> a\n1\n```\n", "page.md")
    assert doctest.DocTestRunner(verbose=False).run(test).attempted == 2
