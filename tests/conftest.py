"""Fixtures that every test may use."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from cluster.errors import GuestError
from simulator.kernel.guest import Guest, booted
from simulator.kernel.packages import kernel_program

# No deadline for single examples: a busy machine is not a failure.
settings.register_profile("tonnage", deadline=None, print_blob=True)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=10_000)
# One failure is enough to notice a mutation, and each run of `make mutation` tries the same examples.
settings.register_profile("mutation", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
settings.load_profile("tonnage")

# A shell starts what it puts into the background deaf to Ctrl-C, and children with it: tests that press it would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder of public data sets, or a skip that says how to get them."""
    folder = Path(os.environ.get("TONNAGE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no public data at {folder}: set TONNAGE_DATA (docs/benchmarks.md tells where to get it)")
    return folder


@pytest.fixture(scope="session")
def guest_kernel() -> None:
    """A skip that says why where no guest kernel can be had; a failure where TONNAGE_REQUIRE names `kernel`."""
    try:
        kernel_program()
    except GuestError as error:
        if "kernel" in os.environ.get("TONNAGE_REQUIRE", "").split(","):
            pytest.fail(f"no guest kernel: {error}", pytrace=False)
        pytest.skip(f"no guest kernel: {error}")


@pytest.fixture(scope="module")
def guest(guest_kernel: None) -> Iterator[Guest]:
    """A booted Linux kernel of the module's own, with cgroup v2 and the controllers cpu, io, memory and pids."""
    with booted() as guest:
        yield guest
