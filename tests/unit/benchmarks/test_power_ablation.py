"""The ablation of power takes out what it names, by settings that exist."""

import pytest

from benchmarks.power import MECHANISMS, SHIPPED
from power.rules import PowerRules


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "nothing"])
def test_each_mechanism_is_taken_out_by_settings_that_differ(name: str) -> None:
    changed = PowerRules(**MECHANISMS[name])  # type: ignore[arg-type]  # numbers for fields by name

    assert all(getattr(changed, field) != getattr(SHIPPED, field) for field in MECHANISMS[name])
