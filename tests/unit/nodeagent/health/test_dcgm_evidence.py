"""Evidence of a DCGM exporter: news alone, under the codes of other sources, and for a limited time."""

import pytest

from health.verdicts.findings import is_hardware
from nodeagent.health.dcgm_exporter import MOST_KEPT, NAMES, RISES, WINDOW_S, PageError
from nodeagent.health.host_evidence import KEPT_S
from tests.unit.nodeagent.health.dcgm_pages import BUS, DBE, IN_ALL, LATELY, REASONS, UUID, XIDS, Exporter, line

DOWN = PageError("Unreachable", "connection refused")


@pytest.mark.parametrize(
    ("told", "new"),
    [
        ([79, 79, 79], []),  # of unknown age
        ([0, 79, 79], [79]),
        ([None, 79], [79]),  # a GPU without an error has no line in some releases
        ([79, 48, 31], [31, 48]),
        ([79, 0, 0], []),  # the exporter was restarted
        ([79, 0, 79], [79]),  # and the same error came again
        ([79, None, 79], []),  # restarted, but not the engine that remembers
        ([79, None, 48], [48]),
        ([79, "down", 79], []),
        ([0, "down", 79], [79]),  # it came while nobody read
    ],
)
def test_a_gpu_error_is_evidence_when_the_last_one_changes(told: list[object], new: list[int]) -> None:
    exporter = Exporter()
    for each in told:
        if each == "down":
            exporter.down = DOWN
            exporter.looked()
        else:
            words = {"err_code": str(each), "err_msg": 'the "GPU", {lost}'.replace('"', '\\"')}
            error = [] if each is None else [line(XIDS, each, **words)]
            exporter.tell(line("DCGM_FI_DEV_GPU_TEMP", 61), *error)

    assert sorted(exporter.known()) == [f"Xid{xid} on {BUS}" for xid in new]


def test_an_error_keeps_its_instant_and_ends_as_one_of_the_kernels_log() -> None:
    exporter = Exporter()
    exporter.tell(line(XIDS, 0))
    exporter.tell(line(XIDS, 79))
    exporter.tell(line(XIDS, 79), after_s=600.0)

    (found,) = exporter.reader.read(exporter.clock())

    assert (found.age_s, is_hardware(found)) == (600.0, True)
    exporter.clock.now_s += KEPT_S
    assert not exporter.known()


def test_errors_that_the_last_one_hides_are_found_where_the_exporter_counts_them() -> None:
    """The GPU falls off the bus (79), and the driver ends its processes (45): the gauge shows the 45."""
    exporter = Exporter()
    exporter.tell(line(XIDS, 0), line(LATELY, 0), line(IN_ALL, 3, xid="13"))

    exporter.tell(line(XIDS, 45), line(LATELY, 1, xid="79"), line(IN_ALL, 3, xid="13"))
    exporter.tell(line(XIDS, 45), line(LATELY, 1, xid="79"), line(IN_ALL, 4, xid="13"))

    assert exporter.known() == [f"Xid{xid} on {BUS}" for xid in (45, 79, 13)]


@pytest.mark.parametrize("metric", RISES)
def test_a_counter_is_evidence_for_a_minute_after_it_rose_by_enough(metric: str) -> None:
    least, code = RISES[metric].least, RISES[metric].code
    exporter = Exporter()

    assert not exporter.tell(line(metric, 1000))  # whatever it has counted before
    assert not exporter.tell(line(metric, 1000 + least - 1))
    assert exporter.tell(line(metric, 1000 + least)) == [f"{code} on {UUID}"]
    assert exporter.tell(line(metric, 1000 + least)) == [f"{code} on {UUID}"]
    assert not exporter.tell(line(metric, 1000 + least), after_s=WINDOW_S)


def test_a_counter_that_fell_was_reset_and_counts_from_there() -> None:
    """Volatile errors, when the driver is loaded again."""
    exporter = Exporter()
    exporter.tell(line(DBE, 5))

    assert not exporter.tell(line(DBE, 2))
    assert exporter.tell(line(DBE, 3)) == [f"UncorrectedErrors on {UUID}"]


def test_a_rate_is_not_known_across_a_gap_and_a_single_error_is() -> None:
    exporter, retries = Exporter(), "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
    exporter.tell(line(retries, 0), line(DBE, 0))

    found = exporter.tell(line(retries, 50), line(DBE, 1), after_s=3600.0)

    assert found == [f"UncorrectedErrors on {UUID}"]


def test_brakes_and_heat_are_evidence_while_they_last_and_our_own_cap_is_none() -> None:
    exporter = Exporter()

    assert not exporter.tell(line(REASONS, 0x1 | 0x4))  # idle; the power limit
    assert exporter.tell(line(REASONS, 0x4 | 0x40 | 0x80)) == [f"ThermalThrottle on {UUID}", f"PowerBrake on {UUID}"]
    assert not exporter.tell(line(REASONS, 0x4), after_s=WINDOW_S + 1)


def test_memory_that_can_no_longer_be_remapped_is_a_fault_of_today_however_old() -> None:
    exporter = Exporter()

    assert exporter.tell(line("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1)) == [f"RowRemapFailure on {UUID}"]
    assert all(is_hardware(each) for each in exporter.reader.read(exporter.clock()))


@pytest.mark.parametrize("blank", [2**31 - 16, 2**47, "9223372036854775794", "NaN", "+Inf", -1])
def test_what_dcgm_writes_for_no_value_is_no_value(blank: object) -> None:
    exporter = Exporter()
    exporter.tell(line(DBE, 0), line(XIDS, 0))

    assert not exporter.tell(line(DBE, blank), line(REASONS, blank), line(XIDS, blank))
    assert exporter.reader.failed == {}


def test_names_of_newer_and_older_releases_say_the_same() -> None:
    """Metrics of DCGM 4.7 and before 3.3; labels of exporters before 2.0, since 4.8.3, and of links."""
    assert NAMES["DCGM_FI_DEV_XID_ERROR"] == XIDS
    exporter, hostless = Exporter(), {"Hostname": "", "hostname": "n1"}
    exporter.tell(line("DCGM_FI_DEV_XID_ERROR", 0, **hostless))

    exporter.tell(line("DCGM_FI_DEV_XID_ERROR", 79, **hostless))
    exporter.tell(line("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 0x80, UUID="", uuid=UUID))
    exporter.tell(line("DCGM_FI_DEV_ROW_REMAP_FAILED", 1, UUID="", gpu_uuid=UUID))

    assert exporter.known() == [f"Xid79 on {BUS}", f"PowerBrake on {UUID}", f"RowRemapFailure on {UUID}"]


def test_instances_and_pods_that_share_a_gpu_do_not_count_its_errors_twice() -> None:
    exporter = Exporter()
    shared = [{"GPU_I_ID": "3", "GPU_I_PROFILE": "2g.20gb"}, {"GPU_I_ID": "5", "GPU_I_PROFILE": "2g.20gb"}]
    exporter.tell(*(line(DBE, 4, **each) for each in shared))
    exporter.tell(*(line(DBE, 6, **each) for each in shared))

    (found,) = exporter.reader.read(exporter.clock())

    assert found.words == "DCGM: uncorrected memory errors rose by 2"


def test_errors_of_every_number_on_every_gpu_take_no_room_of_other_evidence() -> None:
    exporter = Exporter()
    exporter.tell(*(line(XIDS, 0, UUID=f"GPU-{gpu}", pci_bus_id="") for gpu in range(100)))

    found = exporter.tell(
        *(line(XIDS, xid, UUID=f"GPU-{gpu}", pci_bus_id="") for xid in range(1, 40) for gpu in range(100))
    )

    assert len(found) == MOST_KEPT
