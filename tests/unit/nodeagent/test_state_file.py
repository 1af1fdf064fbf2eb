"""Record of the agent: on disk before it counts, whole or not at all, and never taken for empty when unreadable."""

import os
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from nodeagent.state_file import Record, read_record, write_record
from power.devices.original_limits import OriginalLimit
from power.leases.holder import DeviceLimits, Holder

RECORD = Record(
    {"g": OriginalLimit(700.0)}, "boot-1", Holder("n1", "life", {"g": DeviceLimits(100.0, 700.0, 350.0, 700.0)})
)


def test_what_was_written_is_read_with_the_end_of_a_lease_that_never_was(tmp_path: Path) -> None:
    write_record(tmp_path / "state" / "record", RECORD)

    assert read_record(tmp_path / "state" / "record") == RECORD
    assert read_record(tmp_path / "none") == Record()


def test_a_record_is_on_disk_before_it_replaces_the_former_one_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a machine that loses power finds an empty file, and the original limits are lost."""
    path, steps = tmp_path / "record", list[tuple[str, bool]]()
    real = os.fsync

    def recorded(descriptor: int) -> None:
        at = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append((at.name, path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    write_record(path, RECORD)

    assert steps == [(".record.new", False), (tmp_path.name, True)]


def test_an_unreadable_record_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "record").write_bytes(b"\xc1")

    with pytest.raises(ConfigError, match="cannot be read"):
        read_record(tmp_path / "record")
