"""Rules of the record format."""

import numpy as np
from hypothesis import given, strategies as st

from tonnage import records
from tonnage.records import FIELDS, RECORD_BYTES, Kind


def unpacked(record: bytes) -> dict[str, int]:
    """Fields of one record by name."""
    return dict(zip((name for name, _ in FIELDS), records.RECORD.unpack(record), strict=True))


WIDTHS = {"kind": 8, "op": 8, "group": 16, "seq": 32, "step": 32, "peer": 16, "size": 8, "phase": 8}
fields = st.fixed_dictionaries(
    {name: st.integers(0, 2**bits - 1) for name, bits in WIDTHS.items()}
    | {"at_ns": st.integers(-(2**63), 2**63 - 1), "for_ns": st.integers(0, 2**63 - 1)}
)


@given(fields)
def test_a_record_is_read_as_it_was_written_by_struct_and_by_numpy(written: dict[str, int]) -> None:
    packed = records.packed(**written)

    viewed = np.frombuffer(packed, dtype=np.dtype(list(FIELDS)))[0]

    assert len(packed) == RECORD_BYTES
    assert unpacked(packed) == written
    assert {name: int(viewed[name]) for name in written} == written


def test_numbers_too_large_for_their_field_are_cut_and_never_raise() -> None:
    read = unpacked(records.packed(Kind.OPERATION, group=2**20, seq=2**40, for_ns=-5, peer=2**16, size=300))

    assert (read["group"], read["seq"], read["for_ns"], read["peer"]) == (0, 0, 0, 0)


def frame_of(count: int) -> bytes:
    beats = [records.packed(Kind.BEAT)] * count
    return records.frame(beats, rank=7, at_ns=1, wall_minus_ns=2, incarnation=3, dropped=4)


def test_a_frame_is_accepted_whole() -> None:
    assert records.checked(frame_of(0)) == ""
    assert records.checked(frame_of(records.FRAME_RECORDS)) == ""


@given(st.binary(max_size=200))
def test_bytes_of_a_stranger_are_refused_without_an_error(datagram: bytes) -> None:
    assert records.checked(datagram) != ""


def test_a_frame_that_was_cut_or_tampered_with_is_refused() -> None:
    frame = frame_of(3)
    forged_count = frame[:2] + (9).to_bytes(2, "little") + frame[4:]

    assert "not whole records" in records.checked(frame[:-1])
    assert "announced" in records.checked(frame[:-RECORD_BYTES])
    assert "announced" in records.checked(forged_count)
    assert "version" in records.checked(frame[:1] + b"\x63" + frame[2:])
    assert "unknown kind" in records.checked(frame[:RECORD_BYTES] + b"\x00" + frame[RECORD_BYTES + 1 :])


@given(st.integers(0, 2**40))
def test_a_size_class_is_within_a_tenth_of_the_size(size_bytes: int) -> None:
    found = records.size_class(size_bytes)

    if 0 < size_bytes < 2**31:
        assert 0.91 < 2 ** ((found - 1) / 8) / size_bytes < 1.1
    assert 0 <= found <= 255


def test_members_of_a_group_compute_the_same_key_and_other_groups_another() -> None:
    assert records.group_key("dp", (0, 4)) == records.group_key("dp", [0, 4])
    assert records.group_key("dp", (0, 4)) != records.group_key("dp", (4, 0)) != records.group_key("tp", (0, 4))
