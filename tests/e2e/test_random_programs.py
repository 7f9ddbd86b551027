"""Random programs compiled at all levels: the same as interpreted, and no access outside arrays."""

from __future__ import annotations

import pytest

from tests.e2e.properties import PROPERTIES
from tests.strategies import scaled


@pytest.mark.parametrize("name", PROPERTIES)
def test_random_programs(name: str) -> None:
    """Each example is compiled three times."""
    PROPERTIES[name].search(scaled(6))
