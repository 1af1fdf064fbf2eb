"""One emulated machine for all tests of this folder: its boot costs as much as they do together."""

from collections.abc import Iterator

import pytest

from tests.conftest import guest_of
from tests.contracts.cgroups.stage import KernelStage, Stage
from tests.rigs.kernel.guest import Guest


@pytest.fixture(scope="session")
def machine() -> Iterator[Guest]:
    with guest_of("emulated") as guest:
        yield guest


@pytest.fixture
def cgroups(machine: Guest) -> Iterator[Stage]:
    kernel = KernelStage(machine)
    yield kernel
    kernel.clear()
