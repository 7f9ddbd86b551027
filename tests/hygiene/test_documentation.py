"""Public names are documented, exceptions to the linters are explained, and what documents mention exists."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping

import pytest

from relaxir.support import errors
from tests.hygiene.source import ROOT, Source, everything, package, source

Function = ast.FunctionDef | ast.AsyncFunctionDef
IGNORE = re.compile(r"#\s*(type:\s*ignore|noqa|pyright:\s*ignore|ruff:\s*noqa)", re.IGNORECASE)
EXPLAINED = re.compile(r"(type: ignore\[[\w, -]+\]|noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*)  # \S.{9,}")


def undocumented(files: Iterable[Source]) -> Iterator[str]:
    """Public modules, classes, functions and methods without a docstring."""
    files = tuple(files)
    classes = {node.name: node for src in files for node in ast.walk(src.tree) if isinstance(node, ast.ClassDef)}
    for src in files:
        if any(part.startswith("_") and part != "__main__" for part in src.name.split(".")):
            continue
        if ast.get_docstring(src.tree) is None:
            yield f"{src.path}:1: module"
        for owner, node in _public(src.tree):
            if ast.get_docstring(node) is None and not (owner and _inherits_doc(owner, node.name, classes)):
                yield f"{src.path}:{node.lineno}: {node.name}"


def _public(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[ast.ClassDef | None, ast.ClassDef | Function]]:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            if any(ast.unparse(d).endswith(("overload", ".setter", ".deleter")) for d in node.decorator_list):
                continue
            yield (tree if isinstance(tree, ast.ClassDef) else None), node
            if isinstance(node, ast.ClassDef):
                yield from _public(node)


def _inherits_doc(owner: ast.ClassDef, name: str, classes: Mapping[str, ast.ClassDef]) -> bool:
    """True when a base class documents the name, or dispatches to it by its name (visit_X)."""
    if name.startswith("visit_"):
        return True
    for base in owner.bases:
        text = ast.unparse(base.value if isinstance(base, ast.Subscript) else base).rpartition(".")[2]
        parent = classes.get(text)
        if parent is None or parent is owner:
            continue
        if any(n.name == name and ast.get_docstring(n) for _, n in _public(parent)):
            return True
        if _inherits_doc(parent, name, classes):
            return True
    return False


def unexplained(src: Source) -> Iterator[str]:
    """Comments that silence a checker without naming the rule and the reason."""
    for token in tokenize.generate_tokens(io.StringIO(src.text).readline):
        if token.type == tokenize.COMMENT and IGNORE.search(token.string) and not EXPLAINED.search(token.string):
            yield f"{src.path}:{token.start[0]}: {token.string}"


def unknown_codes(src: Source) -> Iterator[str]:
    """Errors raised with a code that their class does not list."""
    classes = {error.__name__: error for error in errors.ERRORS}
    for node in ast.walk(src.tree):
        if isinstance(node, ast.Call) and (error := classes.get(ast.unparse(node.func).rpartition(".")[2])):
            known = {code for base in error.__mro__ for code in getattr(base, "CODES", ())}
            for keyword in node.keywords:
                value = keyword.value
                if keyword.arg == "code" and isinstance(value, ast.Constant) and value.value not in known:
                    yield f"{src.path}:{node.lineno}: {error.__name__} has no code {value.value!r}"


def test_public_names_are_documented() -> None:
    assert not list(undocumented(package()))


def test_ignores_are_explained() -> None:
    assert not [finding for src in everything() for finding in unexplained(src)]


def test_error_codes_exist() -> None:
    assert not [finding for src in package() for finding in unknown_codes(src)]


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs"])
def test_commands_exist(document: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    path = ROOT / document
    for page in sorted(path.rglob("*.md")) if path.is_dir() else [path]:
        used = set(re.findall(r"(?:`|^ *\$? *)make ([a-z]+)", page.read_text(), re.MULTILINE))
        assert used <= targets, f"{page.name} names targets that the Makefile lacks: {used - targets}"


def test_overview_is_current() -> None:
    text = (ROOT / "docs/design/overview.md").read_text()
    missing = [path for path in re.findall(r"`(relaxir/[\w/.]+)`", text) if not (ROOT / path).exists()]
    assert not missing, "the overview names files that are not there"
    folders = {src.path.rpartition("/")[0] + "/" for src in package()} - {"relaxir/"}
    assert not [folder for folder in sorted(folders) if f"`{folder}`" not in text], "the overview leaves out folders"


@pytest.mark.parametrize(
    "text",
    ["x = 1\n", '"""Doc."""\ndef f(): pass\n', '"""Doc."""\nclass C:\n    """Doc."""\n    def m(self): pass\n'],
)
def test_the_check_finds_missing_docs(text: str) -> None:
    assert list(undocumented([source(text)]))


def test_the_check_accepts_overrides_and_private_names() -> None:
    text = '''"""Doc."""
class Base(Generic[T]):
    """Doc."""
    def m(self):
        """Doc."""
class Mid(Base[int]):
    """Doc."""
class C(Mid):
    """Doc."""
    def m(self): pass
    def _private(self): pass
    def __len__(self): return 0
def _f(): pass
'''
    assert not list(undocumented([source(text)]))


def test_the_check_finds_bare_ignores() -> None:
    marks = ("type: ignore", "type: ignore[arg-type]", "noqa", "noqa: A002", "type: ignore[misc]  # short")
    for mark in marks:
        assert list(unexplained(source(f"x = 1  # {mark}\n"))), mark
    assert not list(unexplained(source("x = 1  # type: ignore[misc]  # the stubs are wrong here\n")))
    assert not list(unexplained(source("x = 1  # noqa: A002, B008  # the name users know\n")))


def test_the_check_finds_unknown_codes() -> None:
    assert list(unknown_codes(source("raise errors.InferError('m', code='runtime-shape')")))
    assert not list(unknown_codes(source("raise ShapeMismatchError('m', code='arity')")))
