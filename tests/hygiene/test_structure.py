"""Files stay short, imports stay at the top, and modules hold no mutable state."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.hygiene.source import Source, package, source

MAX_LINES = 500
MUTABLE_NODES = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = frozenset(
    "list dict set bytearray defaultdict OrderedDict Counter deque ChainMap WeakValueDictionary WeakKeyDictionary "
    "WeakSet array".split()
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
IMPORTLIB_HOME = "relaxir.support.optional"


def too_long(src: Source) -> Iterator[str]:
    """Files above the limit."""
    lines = len(src.text.splitlines())
    if lines > MAX_LINES:
        yield f"{src.path}: {lines} lines, the limit is {MAX_LINES}: split it"


def inner_imports(src: Source) -> Iterator[str]:
    """Imports inside functions: the sign of wrong layering."""
    for function in ast.walk(src.tree):
        if isinstance(function, FUNCTIONS):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    yield f"{src.path}:{node.lineno}: import inside a function"


def dynamic_imports(src: Source) -> Iterator[str]:
    """Uses of importlib outside its one home; metadata and resources are not imports."""
    if src.name == IMPORTLIB_HOME:
        return
    for node in ast.walk(src.tree):
        if isinstance(node, ast.Import):
            found = any(a.name == "importlib" or a.name.startswith("importlib.util") for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules = {a.name for a in node.names} - {"metadata", "resources"}
            found = node.module == "importlib" and bool(modules)
        else:
            found = isinstance(node, ast.Name) and node.id == "__import__"
        if found:
            yield f"{src.path}:{node.lineno}: importlib belongs in support/optional.py"


def root_imports(src: Source) -> Iterator[str]:
    """Imports of the public face from inside the package, which would go round the layers."""
    if src.name.startswith("relaxir.cli"):
        return
    known = {s.name for s in package()}
    for node in ast.walk(src.tree):
        if isinstance(node, ast.Import):
            found = any(a.name == "relaxir" for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "relaxir":
            found = any(f"relaxir.{a.name}" not in known for a in node.names)
        else:
            found = isinstance(node, ast.ImportFrom) and node.level > 0
        if found:
            yield f"{src.path}:{node.lineno}: import the module that defines the name, by its full path"


def mutable_globals(src: Source) -> Iterator[str]:
    """Module-level names bound to a container that code could fill, and functions that rebind globals."""
    for node in _module_level(src.tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _mutable(node.value):
            yield f"{src.path}:{node.lineno}: mutable container at module level: use tuple, frozenset, MappingProxyType"
    for node in ast.walk(src.tree):
        if isinstance(node, ast.Global):
            yield f"{src.path}:{node.lineno}: a function rebinds a global"


def _module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run at import, also under if, try and with, but not in classes."""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            todo += [child for child in ast.walk(node) if isinstance(child, ast.stmt) and child is not node]


def _mutable(value: ast.expr) -> bool:
    if isinstance(value, MUTABLE_NODES):
        return True
    if isinstance(value, ast.Call):
        function = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return name in MUTABLE_CALLS
    return False


CHECKS = (too_long, inner_imports, dynamic_imports, root_imports, mutable_globals)
Check = Callable[[Source], Iterator[str]]


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_package(check: Check) -> None:
    assert not [finding for src in package() for finding in check(src)]


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (too_long, "x = 1\n" * 501),
        (inner_imports, "def f():\n    import os\n"),
        (dynamic_imports, "import importlib\n"),
        (dynamic_imports, "from importlib import import_module\n"),
        (dynamic_imports, "m = __import__('x')\n"),
        (root_imports, "import relaxir as rx\n"),
        (root_imports, "from relaxir import compile\n"),
        (root_imports, "from . import errors\n"),
        (mutable_globals, "CACHE = {}\n"),
        (mutable_globals, "CACHE: Final = [1]\n"),
        (mutable_globals, "CACHE = defaultdict[int, int](int)\n"),
        (mutable_globals, "try:\n    x = set()\nexcept E:\n    pass\n"),
        (mutable_globals, "def f():\n    global x\n    x = 1\n"),
    ],
)
def test_the_check_finds(check: Check, text: str) -> None:
    assert list(check(source(text)))


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (inner_imports, "import os\n"),
        (dynamic_imports, "from importlib import metadata\nimport importlib.metadata\n"),
        (root_imports, "from relaxir import support\nfrom relaxir.support.spans import Span\n"),
        (mutable_globals, "X = ()\nY = MappingProxyType({1: 2})\nclass C:\n    z = []\ndef f():\n    z = []\n"),
    ],
)
def test_the_check_passes(check: Check, text: str) -> None:
    assert not list(check(source(text)))
