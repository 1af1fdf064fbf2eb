"""Severity of what the kernel and DCGM tell: no healthy node is taken out, and no fatal error is left.

`kernel_lines.txt` has a line of the kernel's log each, with what it asks for and why.
"""

from collections import deque
from itertools import count
from pathlib import Path

import pytest

from health.records.frames import Evidence
from health.verdicts.findings import ROWS, Severity, severity_of
from nodeagent.health.dcgm_exporter import DcgmEvidence, samples_in
from nodeagent.health.host_evidence import MOST_KEPT, KernelLog, RisingCounter
from tests.unit.nodeagent.health.dcgm_pages import line

CORPUS = Path(__file__).with_name("kernel_lines.txt").read_text(encoding="utf-8").splitlines()
LINES = [tuple(each.split(" | ", 2)) for each in CORPUS if each and not each.startswith("#")]
OF_WORDS = {"none": Severity.NONE, "watch": Severity.WATCH, "after-job": Severity.AFTER_JOB, "now": Severity.NOW}


def told(*lines: str) -> list[Evidence]:
    waiting = deque(f"4,{number},{number}000000,-;{line}".encode() for number, line in enumerate(lines, 1))
    return list(KernelLog(lambda: waiting.popleft() if waiting else None).read(1000.0))


def asked_by(found: list[Evidence]) -> Severity:
    order = list(Severity)
    return max((severity_of(each.code) for each in found), key=order.index, default=Severity.NONE)


@pytest.mark.parametrize(("asks", "why", "written"), LINES)
def test_a_line_of_the_kernel_asks_for_what_its_number_word_and_action_say(asks: str, why: str, written: str) -> None:
    assert asked_by(told(written)) is OF_WORDS[asks], why


def test_the_corpus_holds_two_hundred_lines_of_all_severities() -> None:
    assert len(LINES) >= 200
    assert {asks for asks, _, _ in LINES} == set(OF_WORDS)


def test_each_row_of_the_table_has_a_source_and_each_code_one_row() -> None:
    codes = [code for _, written, _ in ROWS for code in written.split()]
    assert all(source for _, _, source in ROWS)
    assert len(codes) == len(set(codes))


XID = "NVRM: Xid (PCI:0000:9b:00): "
NONE_AGAIN = XID + "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


@pytest.mark.parametrize(
    ("lines", "asks"),
    [
        ((XID + "95, Uncontained: SM", NONE_AGAIN), Severity.NONE),  # reset, and well by the driver's word
        ((XID + "64, Failed to remap row", NONE_AGAIN), Severity.NOW),  # no reset gives it rows
        ((NONE_AGAIN, XID + "95, Uncontained: SM"), Severity.NOW),  # anew
        (("NVRM: Xid (PCI:0000:5d:00): 95, Uncontained: SM", NONE_AGAIN), Severity.NOW),  # another GPU's word
        ((XID + "145, RLW_CTRL Fatal Link 1", XID + "145, RLW_CTRL Nonfatal Link 1"), Severity.NOW),
        (("mlx5_core 0000:5e:00.0 eth0: Link down", "mlx5_core 0000:5e:00.0 eth0: Link up"), Severity.NONE),
        (("mlx5_core 0000:5e:00.0 eth0: Link down", "mlx5_core 0000:5e:00.1 eth1: Link up"), Severity.WATCH),
        (("pcieport 0000:17:01.0: DPC: containment event", "pcieport 0000:17:01.0: DPC: device recovery successful"),
         Severity.NONE),
        (("{1}[Hardware Error]: event severity: fatal", "[Hardware Error]: event severity: corrected"), Severity.NOW),
    ],
)  # fmt: skip
def test_a_newer_line_of_the_same_matter_replaces_an_older_one_and_no_other(
    lines: tuple[str, ...], asks: Severity
) -> None:
    assert asked_by(told(*lines)) is asks


def test_a_flood_of_harmless_lines_pushes_no_fatal_one_out() -> None:
    flood = [f"NVRM: Xid (PCI:0000:{bus:02x}:00): {xid}, pid=1" for bus in range(16) for xid in (13, 31, 43, 45, 63)]

    found = told(XID + "79, GPU has fallen off the bus.", *flood)

    assert len(found) == MOST_KEPT
    assert asked_by(found) is Severity.NOW


def test_an_operators_severity_comes_before_the_table_and_a_number_stands_for_all_its_words() -> None:
    chosen = {"Xid63": Severity.AFTER_JOB, "Xid145": Severity.WATCH, "Xid149Nonfatal": Severity.NOW}

    assert severity_of("Xid63", chosen) is Severity.AFTER_JOB
    assert severity_of("Xid145Fatal", chosen) is Severity.WATCH
    assert severity_of("Xid149Nonfatal", chosen) is Severity.NOW
    assert severity_of("Xid149Fatal", chosen) is Severity.NOW
    assert severity_of("Xid144Fatal", chosen) is Severity.NOW


def test_a_finding_that_no_rule_knows_is_watched() -> None:
    assert severity_of("SomethingOfANewerAgent") is Severity.WATCH


LAST, DBE = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
ACTION, PENDING = "DCGM_FI_DEV_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_ROW_REMAP_PENDING"
REMAPPED = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
PAGES = [
    # (values at each reading, severity, why)
    ((LAST, 0, 13), Severity.NONE, "the program's"),
    ((LAST, 0, 31), Severity.NONE, "the program's"),
    ((LAST, 0, 43), Severity.NONE, "the program's"),
    ((LAST, 0, 45), Severity.NONE, "follows another"),
    ((LAST, 0, 63), Severity.WATCH, "recorded"),
    ((LAST, 0, 94), Severity.WATCH, "contained"),
    ((LAST, 0, 92), Severity.WATCH, "corrected errors"),
    ((LAST, 0, 154), Severity.WATCH, "an action that changed; to what, the other metric tells"),
    ((LAST, 0, 48), Severity.AFTER_JOB, "reset"),
    ((LAST, 0, 145), Severity.AFTER_JOB, "the word is not on the page"),
    ((LAST, 0, 149), Severity.AFTER_JOB, "the word is not on the page"),
    ((LAST, 0, 64), Severity.NOW, "replace"),
    ((LAST, 0, 74), Severity.NOW, "link"),
    ((LAST, 0, 79), Severity.NOW, "lost"),
    ((LAST, 0, 95), Severity.NOW, "reset"),
    ((LAST, 0, 119), Severity.NOW, "firmware"),
    ((LAST, 79, 79), Severity.NONE, "from before the agent"),
    ((ACTION, 0, 0), Severity.NONE, "the driver asks for nothing"),
    ((ACTION, 0, 1), Severity.NOW, "reset"),
    ((ACTION, 0, 2), Severity.NOW, "reboot"),
    ((ACTION, 0, 3), Severity.AFTER_JOB, "drain peers"),
    ((ACTION, 0, 4), Severity.AFTER_JOB, "drain and reset"),
    ((PENDING, 0, 1), Severity.WATCH, "remapped at the next reset"),
    (("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 0), Severity.NONE, "no failure"),
    (("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 1), Severity.NOW, "replace"),
    ((REMAPPED, 0, 1), Severity.WATCH, "recorded"),
    ((REMAPPED, 3, 3), Severity.NONE, "from before the agent"),
    ((DBE, 0, 1), Severity.AFTER_JOB, "uncorrected"),
    ((DBE, 5, 0), Severity.NONE, "reset with its driver"),
    ((DBE, 5, 0, 5), Severity.NONE, "fell and returned: read wrongly once"),
    ((DBE, 5, 0, 5, 5), Severity.NONE, "fell and returned: read wrongly once"),
    ((DBE, 5, 0, 6), Severity.AFTER_JOB, "one more than before it fell"),
    ((DBE, 5, 0, 2), Severity.AFTER_JOB, "reset, and two errors since"),
    ((DBE, 5, 0, 5, 0, 5), Severity.NONE, "fell and returned twice"),
    (("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 0, 50), Severity.WATCH, "retries are corrected"),
    (("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 900, 0, 900), Severity.NONE, "fell and returned"),
    (("DCGM_FI_DEV_THERMAL_VIOLATION", 0, 3), Severity.WATCH, "heat"),
    (("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 0, 9000), Severity.WATCH, "sent again"),
    (("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0, 0x4), Severity.NONE, "our own cap"),
    (("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0, 0x80), Severity.AFTER_JOB, "power brake"),
]


@pytest.mark.parametrize(("readings", "asks", "why"), PAGES)
def test_a_page_of_dcgm_asks_for_what_its_values_say(readings: tuple[str, int, int], asks: Severity, why: str) -> None:
    metric, *values = readings
    evidence, clock = DcgmEvidence(), count(0.0, 15.0)
    at_s = 0.0
    for value in values:
        at_s = next(clock)
        evidence.take(samples_in(line(metric, value))[0], at_s)

    assert asked_by(list(evidence.read(at_s))) is asks, why


def test_a_counter_counts_what_is_new_and_nothing_twice() -> None:
    counter = RisingCounter()
    # 4 at first; 2 more; a fall; 1 since; back at 6: the fall was none; then 3 more.
    assert [counter.risen(value) for value in (4, 6, 0, 1, 6, 9)] == [0, 2, 2, 3, 2, 5]
