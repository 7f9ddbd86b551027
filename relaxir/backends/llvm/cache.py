"""The object cache on disk: content hash to object code, shared by processes.

Invariants:

1. A file's name is the hash of everything that determines its content, so an entry is never out of date. What a
   kernel's text is determined by is the program it is written from and the code that writes it: with a hit, no text is
   written at all.
2. Files appear whole (written beside, then renamed) and carry a checksum: a damaged entry is dropped, never returned.
3. The cache may vanish or be unwritable at any moment: it then only stops saving time.
"""

import hashlib
import os
import secrets
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from relaxir.support.optional import load

EMITTER_VERSION: Final = "1"
"""Raised when the same request would give other code for a reason the text does not show."""

EMITTER: Final = ("support", "sym", "tir", "backends/llvm")
"""Packages whose code decides what text a tensor program becomes."""

_MAGIC: Final = b"RXOBJ1\0\0"
_HEAD: Final = len(_MAGIC) + 32
_DEFAULT_BYTES: Final = 512 << 20


def default_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/relaxir`` (``~/.cache/relaxir`` where it is unset)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "relaxir"


@lru_cache(maxsize=1)
def emitter_digest() -> str:
    """Return a hash of the code that turns tensor programs into text; empty where its sources are not at hand."""
    root = Path(__file__).resolve().parents[2]
    sources = [path for part in EMITTER for path in sorted((root / part).glob("*.py"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest() if sources else ""


class ObjectCache:
    """Object code by content hash, at most about ``max_bytes`` on disk; the least recently used goes first."""

    def __init__(self, directory: Path | None = None, max_bytes: int = _DEFAULT_BYTES) -> None:
        """Use ``directory`` (default :func:`default_cache_dir`); it is made when first written to."""
        self.directory = (default_cache_dir() if directory is None else directory) / "objects"
        self.max_bytes = max_bytes
        self.hits = 0
        """Objects found so far."""
        self.lookups = 0
        """Objects asked for so far."""
        self._unscanned: int | None = None
        version = load("relaxir.backends.llvm.machine").version()
        self._salt = f"{EMITTER_VERSION}\0{version}\0".encode()

    def key(self, request: bytes, identity: str) -> str:
        """Return the name of the object that ``request`` (target and options) makes of a text or what stands for it."""
        digest = hashlib.sha256(self._salt)
        digest.update(len(request).to_bytes(8, "little") + request)
        digest.update(identity.encode())
        return digest.hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the object, or None if it is absent or damaged (damaged files are removed)."""
        path = self._path(key)
        self.lookups += 1
        try:
            data = path.read_bytes()
        except OSError:
            return None
        payload = data[_HEAD:]
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(payload).digest() != data[len(_MAGIC) : _HEAD]:
            self._remove(path)
            return None
        self.hits += 1
        with suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Keep an object; a full or read-only disk is not an error."""
        path = self._path(key)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                file.write(_MAGIC + hashlib.sha256(payload).digest())
                file.write(payload)
            temporary.replace(path)
        except OSError:
            self._remove(temporary)
            return
        self._bound(len(payload) + _HEAD)

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / key[2:]

    def _bound(self, added: int) -> None:
        """Scan and evict at the first write, then after every eighth of the limit."""
        if self._unscanned is not None and self._unscanned + added < self.max_bytes // 8:
            self._unscanned += added
            return
        self._unscanned = 0
        entries: list[tuple[float, int, Path]] = []
        for path in self.directory.glob("??/*"):
            try:
                status = path.stat()
            except OSError:
                continue
            entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            if total <= self.max_bytes:
                break
            self._remove(path)
            total -= size

    @staticmethod
    def _remove(path: Path) -> None:
        with suppress(OSError):
            path.unlink(missing_ok=True)
