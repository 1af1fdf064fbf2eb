"""Fixtures that every test may use."""

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from cluster.errors import GuestError
from tests.rigs.kernel.guest import Guest, Kernel, booted, prepare
from tests.rigs.kernel.packages import ArchiveUnreachableError

# No deadline for single examples: a busy machine is not a failure.
settings.register_profile("tonnage", deadline=None, print_blob=True)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=10_000)
# One failure is enough to notice a mutation, and each run of `make mutation` tries the same examples.
settings.register_profile("mutation", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
settings.load_profile("tonnage")

# A shell starts what it puts into the background deaf to Ctrl-C, and children with it: tests that press it would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever boots a guest needs a guest kernel."""
    for item in items:
        if "guest" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kernel)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Where public data sets are, if they are anywhere."""
    return Path(os.environ.get("TONNAGE_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def public_data(data_folder: Path) -> Path:
    """The folder of public data sets, or a skip that says how to get them."""
    if not data_folder.is_dir():
        pytest.skip(f"no public data at {data_folder}: set TONNAGE_DATA (docs/benchmarks.md tells where to get it)")
    return data_folder


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    """A booted Linux kernel of the module's own, with cgroup v2 and the controllers cpu, io, memory and pids."""
    with guest_of("uml") as guest:
        yield guest


def guest_of(kernel: Kernel) -> AbstractContextManager[Guest]:
    """A booted guest, or a skip that says why its kernel cannot be had.

    Where TONNAGE_REQUIRE names `kernel`, it is a failure instead, unless no archive of packages answered at all.
    """
    try:
        prepare(kernel)
    except GuestError as error:
        if is_failure(error, os.environ.get("TONNAGE_REQUIRE", "")):
            pytest.fail(f"no guest kernel ({kernel}): {error}", pytrace=False)
        pytest.skip(f"no guest kernel ({kernel}): {error}")
    return booted(kernel=kernel)


def is_failure(error: GuestError, required: str) -> bool:
    """Whether a kernel that cannot be had is no reason to skip: it is required, and an archive answered."""
    return "kernel" in required.split(",") and not isinstance(error, ArchiveUnreachableError)
