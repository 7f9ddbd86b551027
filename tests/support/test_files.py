"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from relaxir.support.files import replacing


def test_replaces(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text("old")
    with replacing(path) as stream:
        stream.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["f.txt"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    with pytest.raises(ZeroDivisionError), replacing(path) as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="No such file"), replacing(tmp_path / "no" / "f.txt"):
        pass
