"""Writing and checking of generated pages: what the ``gen_*.py`` scripts share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parent


def publish(pages: Mapping[str, str], script: str, whole_folder: str = "") -> int:
    """Write pages (paths below docs/), or with ``--check`` only compare; returns the exit status.

    Pages of ``whole_folder`` that are not among them are removed.
    """
    have = {p.relative_to(DOCS).as_posix(): p for p in (DOCS / whole_folder).glob("*.md")} if whole_folder else {}
    stale = sorted(have.keys() - pages.keys())
    changed = [n for n, text in pages.items() if not (DOCS / n).exists() or (DOCS / n).read_text("utf-8") != text]
    if "--check" in sys.argv:
        if stale or changed:
            sys.stderr.write(f"not current: {', '.join((*stale, *changed))}; run python docs/{script}\n")
        return bool(stale or changed)
    for name in stale:
        have[name].unlink()
    for name in changed:
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(pages[name], encoding="utf-8")
    return 0
