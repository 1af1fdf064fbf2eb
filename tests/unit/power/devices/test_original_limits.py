"""What was there before us comes back: after a stop, an uninstall, a crash, and a reboot in between."""

from pathlib import Path

import msgspec
import pytest

from cluster.errors import ConfigError
from nodeagent.state_file import Record, read_record, write_record
from power.devices.backend import (
    DeviceFacts,
    OriginalLimit,
    after_setting,
    before_setting,
    limit_to_restore,
    original_limit_of,
)
from power.leases.holder import Holder

H100 = DeviceFacts("GPU-1", "H100", "pretend", min_w=200, max_w=700, default_w=700, can_limit=True)


def test_the_limit_that_was_found_is_restored_not_the_default() -> None:
    found = original_limit_of({}, H100, 500.0)

    assert limit_to_restore(before_setting(found, 300.0), H100) == 500.0


def test_nothing_is_restored_that_was_never_changed() -> None:
    assert limit_to_restore(original_limit_of({}, H100, 500.0), H100) is None


def test_after_a_crash_our_own_limit_is_not_taken_for_theirs() -> None:
    crashed = before_setting(original_limit_of({}, H100, 500.0), 300.0)

    again = original_limit_of({"GPU-1": crashed}, H100, 300.4)

    assert limit_to_restore(again, H100) == 500.0


def test_after_a_crash_before_an_order_was_set_the_one_before_it_is_ours() -> None:
    crashed = before_setting(before_setting(original_limit_of({}, H100, 500.0), 400.0), 300.0, 400.0)

    assert limit_to_restore(original_limit_of({"GPU-1": crashed}, H100, 400.0), H100) == 500.0


def test_a_limit_that_is_ours_stays_ours_however_many_orders_the_device_refuses() -> None:
    refusing = before_setting(original_limit_of({}, H100, 500.0), 400.0)
    for refused_w in range(300, 320):
        refusing = before_setting(refusing, float(refused_w), 400.0)

    assert limit_to_restore(original_limit_of({"GPU-1": refusing}, H100, 400.0), H100) == 500.0


def test_what_a_device_made_of_our_limit_is_ours() -> None:
    clamped = after_setting(before_setting(original_limit_of({}, H100, 500.0), 200.0), 300.0)

    assert limit_to_restore(original_limit_of({"GPU-1": clamped}, H100, 300.0), H100) == 500.0


def test_a_record_of_before_goes_on() -> None:
    """Written by an agent that remembered the last limit alone."""
    old = msgspec.msgpack.encode({"previous": {"GPU-1": {"limit_w": 500.0, "last_set_w": 300.0}}, "boot": "b"})

    known = msgspec.msgpack.decode(old, type=Record).previous

    assert limit_to_restore(original_limit_of(known, H100, 300.0), H100) == 500.0


def test_a_limit_that_somebody_set_meanwhile_is_theirs() -> None:
    crashed = before_setting(original_limit_of({}, H100, 500.0), 300.0)

    again = before_setting(original_limit_of({"GPU-1": crashed}, H100, 450.0), 300.0)

    assert limit_to_restore(again, H100) == 450.0


def test_a_device_that_does_not_tell_its_limit_gets_its_default_back() -> None:
    assert limit_to_restore(before_setting(original_limit_of({}, H100, None), 300.0), H100) == 700.0


def test_a_restored_limit_is_one_that_the_device_takes() -> None:
    assert limit_to_restore(OriginalLimit(900.0, last_set_w=300.0), H100) == 700.0


def test_the_record_outlives_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "state" / "limits.json"
    kept = Record({"GPU-1": OriginalLimit(500.0, 300.0)}, "boot-1", Holder("n1", "life", {}))

    assert read_record(path) == Record()
    write_record(path, kept)

    assert read_record(path) == kept
    assert sorted(file.name for file in path.parent.iterdir()) == ["limits.json", "limits.json.lease"]


def test_a_record_that_cannot_be_read_stops_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text("{torn")

    with pytest.raises(ConfigError, match="by hand"):
        read_record(path)
