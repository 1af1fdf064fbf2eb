"""Writes of the operator in the benchmark of its size: Events, renewals of the Lease, and all others by name."""

from prometheus_client import generate_latest

from controller.metrics.registry import Meter, count_request
from tests.rigs.controlplane.large_cluster import told_apart, written_in


def test_writes_are_told_apart_as_the_operator_counts_them() -> None:
    """In half a minute: 30 Events, 15 renewals, and 3 others are 60, 30 and 6 a minute."""
    meter = Meter()
    for verb, resource, times in (
        ("create", "events", 20),
        ("patch", "events", 10),
        ("update", "leases", 15),
        ("patch", "modelservices/status", 2),
        ("create", "pods/binding", 1),
        ("list", "pods", 9),
    ):
        for _ in range(times):
            count_request(meter, verb, resource, 200, 0.1)

    found = told_apart(written_in(generate_latest(meter.registry).decode()), 30.0)

    assert found == {
        "writes": 33,
        "writes_per_min": 66.0,
        "events_per_min": 60.0,
        "others_per_min": 6.0,
        "others": "create pods/binding 1, patch modelservices/status 2",
        "lease_updates_per_min": 30.0,
    }
