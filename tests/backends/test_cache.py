"""The object cache never returns anything but what was put, whatever happens to its files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relaxir.backends.llvm.cache import ObjectCache, default_cache_dir


def files(cache: ObjectCache) -> list[Path]:
    return [path for path in cache.directory.rglob("*") if path.is_file()]


def test_keys_depend_on_everything(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    keys = {cache.key(b"a", "bc"), cache.key(b"ab", "c"), cache.key(b"a", "b"), cache.key(b"", "abc")}
    assert len(keys) == 4
    assert cache.key(b"a", "b") == ObjectCache(tmp_path / "other").key(b"a", "b")


@pytest.mark.parametrize("payload", [b"", b"object" * 1000])
def test_put_and_get(tmp_path: Path, payload: bytes) -> None:
    cache = ObjectCache(tmp_path)
    key = cache.key(b"r", "t")
    assert cache.get(key) is None
    cache.put(key, payload)
    assert ObjectCache(tmp_path).get(key) == payload


def truncate(data: bytes) -> bytes:
    return data[:-1]


def flip(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def empty(_: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [truncate, flip, empty])
def test_damaged_entries_are_dropped(tmp_path: Path, damage: object) -> None:
    cache = ObjectCache(tmp_path)
    key = cache.key(b"r", "t")
    cache.put(key, b"object code")
    (path,) = files(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(key) is None
    assert files(cache) == []


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, max_bytes=10_000)
    keys = [cache.key(b"", str(index)) for index in range(20)]
    for index, key in enumerate(keys[:8]):
        cache.put(key, bytes(1000))
        os.utime(cache._path(key), (index, index))
    assert cache.get(keys[0]) is not None  # now the youngest
    for key in keys[8:]:
        cache.put(key, bytes(1000))
    assert sum(path.stat().st_size for path in files(cache)) <= 10_000 + 10_000 // 8
    assert cache.get(keys[0]) is not None or cache.get(keys[1]) is None
    assert cache.get(keys[-1]) is not None


def test_an_unusable_directory_only_costs_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = ObjectCache(blocked)
    key = cache.key(b"", "t")
    cache.put(key, b"x")
    assert cache.get(key) is None


def test_many_processes_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from relaxir.backends.llvm.cache import ObjectCache\n"
        "cache = ObjectCache(Path(sys.argv[1]), max_bytes=40_000)\n"
        "for round in range(60):\n"
        "    for index in range(8):\n"
        "        key = cache.key(b'', str(index)); data = cache.get(key)\n"
        "        assert data is None or data == bytes([index]) * 8000\n"
        "        cache.put(key, bytes([index]) * 8000)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert not [path for path in files(ObjectCache(tmp_path)) if path.suffix == ".tmp"]


def test_the_default_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache_dir() == Path("/somewhere/relaxir")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative is ignored")
    assert default_cache_dir() == Path.home() / ".cache" / "relaxir"
