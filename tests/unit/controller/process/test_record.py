"""Recording never delays or fails a cycle."""

from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from structlog.testing import capture_logs

from cluster.plans import Plan
from controller.cycle import Cycle
from controller.ports import Outcome
from controller.process.main import Recorder
from controller.recording.bundle import read_bundle, settings_from, shown
from tests.builders.fleet import node, world

QUIET = Cycle(world([node("a", gpus=1)]), Plan(), Outcome())


def recorder(**record: Any) -> Any:
    return Recorder(settings_from({"identity": "one", "record": record})[0])


def test_a_cycle_that_cannot_be_recorded_is_logged_and_the_loop_goes_on() -> None:
    unwritable = replace(QUIET, snapshot=replace(QUIET.snapshot, observed_at_s=object()))

    with capture_logs() as logged:
        recorder().put(unwritable)

    assert [line["event"] for line in logged] == ["a cycle was not recorded"]


def test_what_is_served_is_a_bundle_of_the_cycles_so_far() -> None:
    made, to = recorder(), BytesIO()
    made.put(QUIET)

    made.send(to.write)

    bundle = read_bundle(to.getvalue())
    assert (bundle.about.identity, bundle.about.seen, len(bundle.entries)) == ("one", 1, 1)


def test_an_operator_that_shall_not_record_keeps_and_serves_nothing() -> None:
    silent = recorder(enabled=False)

    silent.put(QUIET)

    assert silent.ring is None


@pytest.mark.parametrize(
    ("client", "query", "is_for"),
    [("127.0.0.1", "", True), ("10.0.0.7", "pod=the-uid", True), ("10.0.0.7", "", False), ("10.0.0.7", "pod=", False),
     ("10.0.0.7", "pod=another", False)],
)  # fmt: skip
def test_a_bundle_is_for_who_knows_the_pod_or_is_on_its_machine(client: str, query: str, is_for: bool) -> None:
    settings = settings_from({"record": {"key": "the-uid"}})[0]

    assert Recorder(settings).is_for(client, query) is is_for
    assert Recorder(settings_from({})[0]).is_for(client, query) is (client == "127.0.0.1")
    assert "the-uid" not in str(shown(settings))
