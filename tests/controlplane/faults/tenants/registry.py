"""Registry of the scenarios of tenants."""

from collections.abc import Mapping

from tests.controlplane.faults.scenarios import Scenario
from tests.controlplane.faults.tenants.dear_objects import dear_objects
from tests.controlplane.faults.tenants.flood import flood
from tests.controlplane.faults.tenants.kubelet_refusals import kubelet_refusals
from tests.controlplane.faults.tenants.long_annotations import long_annotations
from tests.controlplane.faults.tenants.nodes_changed import nodes_changed
from tests.controlplane.faults.tenants.nulls import nulls
from tests.controlplane.faults.tenants.one_settings_file import one_settings_file
from tests.controlplane.faults.tenants.phantoms import phantoms
from tests.controlplane.faults.tenants.quiet import quiet
from tests.controlplane.faults.tenants.scaled_to_zero import scaled_to_zero
from tests.controlplane.faults.tenants.tampering import tampering

TENANTS: Mapping[str, tuple[Scenario, int]] = {
    "quiet": (quiet, 3),
    "tampering": (tampering, 3),
    "phantoms": (phantoms, 4),
    "flood": (flood, 3),
    "long-annotations": (long_annotations, 3),
    "dear-objects": (dear_objects, 3),
    "nulls": (nulls, 1),
    "scaled-to-zero": (scaled_to_zero, 3),
    "nodes-changed": (nodes_changed, 5),
    "kubelet-refusals": (kubelet_refusals, 1),
    "one-settings-file": (one_settings_file, 5),
}
"""With the rounds of the long form. `quiet` is what the waits of the canaries in the others stand beside."""
