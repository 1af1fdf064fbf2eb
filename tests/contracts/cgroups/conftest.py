"""Cgroups under the contract, each set up empty."""

from collections.abc import Iterator

import pytest

from tests.contracts.cgroups.stage import FakeStage, KernelStage, Stage


@pytest.fixture(params=["fake", pytest.param("kernel", marks=pytest.mark.kernel)])
def cgroups(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "fake":
        stage = FakeStage()
        stage.write("", "cgroup.subtree_control", "+cpu +io +memory +pids")
        yield stage
        return
    kernel = KernelStage(request.getfixturevalue("guest"))
    yield kernel
    kernel.clear()
