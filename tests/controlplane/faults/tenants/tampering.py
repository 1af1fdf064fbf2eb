"""Tampering: a tenant changes what its own placed pods say of node, devices and shares."""

from collections.abc import Mapping
from threading import Event

from tests.controlplane.faults.stage import NotConvergedError, Play
from tests.controlplane.faults.tenants.tenant import beside_canaries
from tests.controlplane.faults.workload import share
from tests.until import comes_true


def tampering(play: Play, rounds: int) -> None:
    """A tenant changes what its own placed pods say of node, devices and shares, by every way there is."""
    with beside_canaries(play) as tenant:
        mine = [share(f"mine-{n}", tenant.namespace) for n in range(8)]
        for each in mine:
            assert (answer := tenant.create(each)).is_ok, answer.message
        names = [each["metadata"]["name"] for each in mine]
        seen = play.stage.witness
        if not comes_true(lambda: all(f"{tenant.namespace}/{name}" in seen.placed_at_s for name in names), 60.0):
            raise NotConvergedError("the tenant's pods are not placed")
        lies: tuple[Mapping[str, str | None], ...] = (
            {"tonnage.dev/gpu-milli": "1"}, {"tonnage.dev/gpu-milli": None}, {"tonnage.dev/gpu-types": "a100"},
            {"tonnage.dev/devices": "63"}, {"tonnage.dev/devices": None}, {"tonnage.dev/node": "n001"},
            {"tonnage.dev/epoch": "999999"},
        )  # fmt: skip
        for _ in range(rounds):
            for name in names:
                for lie in lies:
                    for sub in ("", "/status"):
                        body = {"metadata": {"annotations": dict(lie)}}
                        tenant.tries("lies of placed pods", tenant.patch(f"{tenant.pods}/{name}{sub}", body))
        Event().wait(4.0)
