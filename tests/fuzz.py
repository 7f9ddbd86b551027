"""Search random programs for a wrong one: ``python -m tests.fuzz [--examples N] [NAME ...]``; ``make fuzz`` runs it.

Programs are compiled at all levels, run on arrays that end at unreadable pages in child processes, and compared with
the interpreter; ONNX models with onnxruntime too. New programs each time. What fails is made as small as possible and
printed as text; ``--seed`` repeats a search.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

from hypothesis import HealthCheck, seed, settings

from relaxir.cli.progress import progress_bar
from tests.e2e.properties import PROPERTIES


def search(name: str, examples: int, start: int) -> bool:
    """Check one property; whether it held."""
    how = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    began = time.monotonic()
    with progress_bar(name) as bar:
        try:
            PROPERTIES[name].search(
                lambda test: seed(start)(how(test)), lambda done: bar(min(done, examples), examples)
            )
        except Exception:  # any: this is what is looked for
            failure = traceback.format_exc()
        else:
            failure = ""
    verdict = "FAILED" if failure else "passed"
    sys.stdout.write(
        f"{verdict}: {name}, {examples} examples, seed {start}, {time.monotonic() - began:.0f} s\n{failure}"
    )
    sys.stdout.flush()
    return not failure


def main() -> int:
    """Check the named properties, or all; the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(PROPERTIES))
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    unknown = set(options.names) - set(PROPERTIES)
    if unknown:
        parser.error(f"no property `{min(unknown)}`; there are: {', '.join(PROPERTIES)}")
    return sum(not search(name, options.examples, options.seed) for name in options.names or PROPERTIES)


if __name__ == "__main__":
    sys.exit(main())
