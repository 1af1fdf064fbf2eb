"""Record of the agent: on disk before it counts, whole or not at all, and never taken for empty when unreadable."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from nodeagent.state_file import AcceptedEpoch, Record, lease_path, read_record, write_record
from power.devices.backend import OriginalLimit
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


def test_a_lease_is_not_synchronised_and_what_was_already_on_record_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases change twice a second: a disk must not pay for each. A record that is replaced without synchronisation may
    be an empty file after a loss of power, with which no agent starts."""
    path, synced = tmp_path / "record", list[int]()
    bursts = replace(RECORD, previous={"g": OriginalLimit(700.0, 650.0, (350.0,))})
    write_record(path, bursts)
    first = path.stat()
    monkeypatch.setattr(os, "fsync", synced.append)
    leased = replace(bursts, holder=Holder("n1", "life", {}, sequence=2))
    lowered = replace(leased, previous={"g": OriginalLimit(700.0, 350.0, (650.0,))})
    write_record(path, leased, bursts)
    write_record(path, lowered, leased)
    assert synced == []
    assert os.path.samestat(path.stat(), first)
    assert read_record(path) == leased  # restores the same, and has the same limits for ours

    write_record(path, replace(lowered, previous={"g": OriginalLimit(700.0, 300.0, (350.0, 650.0))}), lowered)
    assert len(synced) == 2  # the file and its folder


def test_a_record_after_which_nothing_is_restored_is_written(tmp_path: Path) -> None:
    path, unset = tmp_path / "record", replace(RECORD, previous={"g": OriginalLimit(700.0)})
    write_record(path, replace(RECORD, previous={"g": OriginalLimit(700.0, 650.0)}))

    write_record(path, unset, replace(RECORD, previous={"g": OriginalLimit(700.0, 650.0)}))

    assert read_record(path) == unset


def test_a_lease_of_an_earlier_start_of_the_machine_or_one_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    path = tmp_path / "record"
    write_record(path, RECORD)
    write_record(path, replace(RECORD, boot="boot-2", holder=None), RECORD)
    assert read_record(path).holder is None

    for unreadable in (b"\xc1", b"", b"\x81\xa4boot\xa1\xff", b"\x81\xa1\xff\xc0"):  # no message, nothing, no text
        lease_path(path).write_bytes(unreadable)
        assert read_record(path) == Record(RECORD.previous, "boot-2")


def test_an_epoch_is_on_disk_before_its_lease_and_outlives_it(tmp_path: Path) -> None:
    path = tmp_path / "record"
    write_record(path, RECORD)
    old = lease_path(path).read_bytes()
    write_record(path, replace(RECORD, holder=Holder("n1", "life", {}, epoch=2)), RECORD)

    lease_path(path).write_bytes(old)  # as after a loss of power
    assert (read_record(path).holder, read_record(path).heard) == (None, AcceptedEpoch("n1", 2))

    lease_path(path).unlink()
    assert read_record(path).heard == AcceptedEpoch("n1", 2)


def test_a_lease_that_cannot_be_written_leaves_no_older_one(tmp_path: Path) -> None:
    """The older one may allow more."""
    path = tmp_path / "record"
    write_record(path, RECORD)
    lease_path(path).with_name(f".{lease_path(path).name}.new").mkdir()  # where the new one would be written

    with pytest.raises(OSError, match="directory"):
        write_record(path, replace(RECORD, holder=Holder("n1", "life", {}, epoch=2)), RECORD)

    assert read_record(path) == replace(RECORD, holder=None, heard=AcceptedEpoch("n1", 2))


def test_a_record_that_cannot_be_written_leaves_no_older_lease_but_the_one_in_force(tmp_path: Path) -> None:
    path = tmp_path / "record"
    write_record(path, RECORD)
    (tmp_path / ".record.new").mkdir()  # where the record would be written
    set_w = {"g": OriginalLimit(700.0, 300.0)}

    with pytest.raises(OSError, match="directory"):
        write_record(path, replace(RECORD, previous=set_w), RECORD)
    assert read_record(path).holder == RECORD.holder

    with pytest.raises(OSError, match="directory"):
        write_record(path, replace(RECORD, previous=set_w, holder=Holder("n1", "life", {}, sequence=2)), RECORD)
    assert read_record(path).holder is None


@pytest.mark.parametrize(
    "unreadable", [b"\xc1", b"", b"\x81\xa4boot\xa1\xff"], ids=["no message", "nothing", "no text"]
)
def test_an_unreadable_record_is_an_error_and_not_an_empty_one(tmp_path: Path, unreadable: bytes) -> None:
    (tmp_path / "record").write_bytes(unreadable)

    with pytest.raises(ConfigError, match="cannot be read"):
        read_record(tmp_path / "record")
