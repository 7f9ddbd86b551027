"""The hand-written reference pages name everything there is."""

import re
import shlex
from pathlib import Path

from relaxir.cli import main
from relaxir.support.errors import ERRORS

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def test_the_error_page_has_every_class() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert not [error.__name__ for error in ERRORS if f"| `{error.__name__}` |" not in page]


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    assert main.commands
    assert not [name for name in main.commands if f"| `relaxir {name} " not in page]


def test_commands_that_pages_show_are_read() -> None:
    """Every command line of the README and the documentation is one that the program takes."""
    pages = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    shown = [line for page in pages for line in re.findall(r"^ {4}relaxir (.+)$", page.read_text(), re.MULTILINE)]
    inline = [line for page in pages for line in re.findall(r"`relaxir (\w+ [\w.]+ -[^`]+)`", page.read_text())]
    assert len(shown) > 15
    assert inline
    for line in (*shown, *inline):
        name, *arguments = shlex.split(line, comments=True)
        assert "..." not in line
        main.commands[name].make_context(name, arguments)
