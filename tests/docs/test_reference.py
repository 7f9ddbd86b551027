"""The hand-written reference pages name everything there is."""

from pathlib import Path

from relaxir.cli import main
from relaxir.support.errors import ERRORS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_error_page_has_every_class() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert not [error.__name__ for error in ERRORS if f"| `{error.__name__}` |" not in page]


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    assert main.commands
    assert not [name for name in main.commands if f"| `relaxir {name} " not in page]
