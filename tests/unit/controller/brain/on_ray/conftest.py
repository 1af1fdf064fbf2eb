"""Actors in the process of the test, which they must not slow down for all tests after them."""

import pytest


@pytest.fixture(autouse=True)
def keeps_its_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.nice", lambda _: 0)
