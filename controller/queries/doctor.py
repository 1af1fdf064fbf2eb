"""Checks of an installation for `tonnage doctor`: findings with remedies, from facts of the cluster. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cluster.snapshot import Snapshot
from controller.api import kinds, rbac, structs
from controller.api.crds import crd
from controller.api.labels import VERSION
from controller.kube.request import NOT_INSTALLED
from controller.kube_world.cached_view import seen_pod
from controller.placers import pool_mode, requested_mode
from controller.queries.doctor_scaling import CheckResult, ScalingFacts, Verdict, few, scaling_findings
from controller.queries.installation import Installation

Object = dict[str, Any]

SKEW_WARNING_S, SKEW_FAILURE_S = 2.0, 10.0
"""Clock differences from which a finding is a warning or a failure. Chosen: certificates and tokens fail at minutes,
and leadership is safe by monotonic clocks, but times in status and Events already mislead."""
SWITCHED = {"evict": "evictions", "serve": "deployments"}
"""Features that the chart can omit, with the value that enables them."""
OF_A_RELEASE = "meta.helm.sh/release-name"
"""Annotation by which Helm knows its objects."""
TAKE_OVER = "upgrade with helm upgrade --force-conflicts (docs/operations.md#upgrade-and-uninstall)"
INSTALL = (
    "install or upgrade the chart (docs/operations.md); kinds alone: tonnage crds | kubectl apply --server-side -f -"
)


@dataclass(frozen=True, slots=True, eq=False)
class InstallationFacts:
    """Facts read from a cluster. A part that could not be read is empty, with the reason in `unread`."""

    server_version: str = ""
    skew_s: float | None = None
    """This machine's clock less the server's, seconds."""
    crds: Mapping[str, Object] = field(default_factory=dict)
    """CustomResourceDefinitions by name."""
    installation: Installation = field(default_factory=Installation)
    allowed: Mapping[tuple[str, rbac.Permission], bool] = field(default_factory=dict)
    """Whether the account `allowed_to` has a permission, by (feature, permission)."""
    allowed_to: str = ""
    """Account whose permissions were checked; empty: none were."""
    lease: Object | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Error of reading the metrics, or "", by operator pod."""
    snapshot: Snapshot | None = None
    pods: Mapping[str, structs.Pod] = field(default_factory=dict)
    """Pods that have not ended, by `namespace/name`."""
    scaling: ScalingFacts = field(default_factory=ScalingFacts)
    dra_slices: int | None = None
    """Number of ResourceSlices; None: the server does not serve resource.k8s.io."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Error by check that could not be made."""


def examine(facts: InstallationFacts, now_s: float) -> tuple[CheckResult, ...]:
    """Findings of all checks, in the order in which they are best corrected.

    now_s: seconds since the epoch.
    """
    checks = {
        "server": (_server(facts.server_version),),
        "clock": _clock(facts),
        "crds": _crds(facts),
        "rbac": _rbac(facts),
        "operator": _operator(facts),
        "lease": _lease(facts, now_s),
        "metrics": _metrics(facts),
        "nodes": _nodes(facts),
        "waiting": _waiting(facts, now_s),
        "scaling": scaling_findings(facts.scaling),
        "dra": _dra(facts),
    }
    found: list[CheckResult] = []
    for check, findings in checks.items():
        if check in facts.unread:
            why = facts.unread[check]
            if NOT_INSTALLED in why:  # the cause is a finding of its own, with the remedy
                found.append(CheckResult(check, "unknown", "could not be checked before the kinds are installed"))
            else:
                remedy = "use an account with this permission (--as, --context), or grant it"
                found.append(CheckResult(check, "unknown", f"could not be checked: {why}", remedy))
        else:
            found += findings
    return tuple(found)


def _server(version: str) -> CheckResult:
    numbers = tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.removeprefix("v").split(".")[:2])
    if numbers < (1, 30):
        return CheckResult("server", "failure", f"Kubernetes {version}", "Tonnage needs 1.30 or newer")
    return CheckResult("server", "ok", f"Kubernetes {version}")


def _clock(facts: InstallationFacts) -> Iterator[CheckResult]:
    if facts.skew_s is None:
        yield CheckResult("clock", "unknown", "the server sent no Date header", "compare the clocks by hand")
        return
    if abs(facts.skew_s) < SKEW_WARNING_S:
        yield CheckResult("clock", "ok", "this machine's clock is within 2 s of the server's")
        return
    where = "ahead of" if facts.skew_s > 0 else "behind"
    words = f"this machine's clock is {abs(facts.skew_s):.0f} s {where} the server's"
    verdict: Verdict = "failure" if abs(facts.skew_s) >= SKEW_FAILURE_S else "warning"
    yield CheckResult("clock", verdict, words, "run chrony or systemd-timesyncd on both")


def _crds(facts: InstallationFacts) -> Iterator[CheckResult]:
    if missing := [kind.definition for kind in kinds.OWN_KINDS if kind.definition not in facts.crds]:
        words = f"{few(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        yield CheckResult("crds", "failure", words, INSTALL)
    for kind in kinds.OWN_KINDS:
        name = kind.definition
        stored = facts.crds.get(name)
        if stored is None:
            continue
        conditions = (stored.get("status") or {}).get("conditions") or ()
        if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            yield CheckResult("crds", "failure", f"{name} is not served", f"see kubectl describe crd {name}")
        elif writers := _writers(stored):
            words = f"{name} was written by {few(writers)}: an upgrade that changes it ends half way, at a conflict"
            yield CheckResult("crds", "warning", words, TAKE_OVER)
        elif different := _difference(crd(kind), stored):
            yield CheckResult("crds", "warning", f"{name} is from another release: {different}", INSTALL)
        else:
            yield CheckResult("crds", "ok", f"{name} {VERSION} is from this release")


def _writers(stored: Object) -> list[str]:
    """Field managers of a definition that Helm installed, where there are others, which it does not overrule."""
    metadata = stored["metadata"]
    managers = {
        str(each.get("manager"))
        for each in metadata.get("managedFields") or ()
        if "f:spec" in (each.get("fieldsV1") or {}) and not each.get("subresource")
    }
    is_of_release = OF_A_RELEASE in (metadata.get("annotations") or {})
    return sorted(managers) if is_of_release and len(managers) > 1 else []


def _difference(ours: Object, stored: Object) -> str:
    """Parts in which the stored definition differs from that of this release; empty: none."""
    own = ours["spec"]["versions"][0]
    theirs = next((v for v in stored["spec"]["versions"] if v["name"] == own["name"]), None)
    if theirs is None:
        return f"it has no {own['name']}"
    parts = ("schema", "subresources", "additionalPrinterColumns")
    return ", ".join(part for part in parts if not _covers(theirs.get(part), own.get(part)))


def _covers(stored: Any, ours: Any) -> bool:
    """Whether the stored value contains all of ours; the server omits empty values and 0, and adds defaults."""
    if isinstance(ours, dict):
        here = stored if isinstance(stored, dict) else {}
        return all(_covers(here.get(key), value) for key, value in ours.items())
    if isinstance(ours, list):
        there = stored if isinstance(stored, list) else []
        return len(there) == len(ours) and all(_covers(a, b) for a, b in zip(there, ours, strict=True))
    return bool(stored == ours or (not stored and not ours))


def _rbac(facts: InstallationFacts) -> Iterator[CheckResult]:
    denied: dict[str, list[str]] = {}
    for (feature, permission), may in facts.allowed.items():
        if not may:
            denied.setdefault(feature, []).append(str(permission))
    for feature, permissions in denied.items():
        words = f"{facts.allowed_to} may not {', '.join(permissions)} ({feature})"
        if feature in SWITCHED:
            remedy = f"on purpose, unless {SWITCHED[feature]} is set in the chart's values"
            yield CheckResult("rbac", "warning", words, remedy)
        else:
            yield CheckResult("rbac", "failure", words, f"bind the chart's role for {feature!r}; rbac.create does it")
    if not denied and facts.allowed:
        words = f"{facts.allowed_to}: all {len(facts.allowed)} permissions of the operator are granted"
        yield CheckResult("rbac", "ok", words)


def _operator(facts: InstallationFacts) -> Iterator[CheckResult]:
    installation = facts.installation
    if installation.unread:
        yield CheckResult("operator", "unknown", installation.unread, "use an account that may list deployments")
        return
    if installation.deployment is None:
        words = "no Deployment with the chart's labels: it is not installed, or runs elsewhere"
        yield CheckResult("operator", "warning", words, INSTALL)
        return
    metadata, spec = installation.deployment["metadata"], installation.deployment["spec"]
    status, wanted = installation.deployment.get("status") or {}, spec.get("replicas", 1)
    name, ready = f"{metadata['namespace']}/{metadata['name']}", status.get("readyReplicas", 0)
    if not ready:
        kubectl = f"kubectl -n {metadata['namespace']}"
        remedy = f"{kubectl} describe pods; {kubectl} logs deploy/{metadata['name']}"
        yield CheckResult("operator", "failure", f"{name}: none of {wanted} replicas is ready", remedy)
    elif ready < wanted:
        yield CheckResult("operator", "warning", f"{name}: {ready} of {wanted} replicas are ready", "see their events")
    else:
        yield CheckResult("operator", "ok", f"{name}: {ready} of {wanted} replicas are ready")


def lease_is_held(lease: Object | None, now_s: float) -> bool:
    """Whether a process holds the Lease, by this machine's clock."""
    spec = (lease or {}).get("spec") or {}
    age_s = _lease_age_s(spec, now_s)
    return bool(spec.get("holderIdentity")) and age_s is not None and age_s <= float(spec["leaseDurationSeconds"])


def _lease_age_s(spec: Mapping[str, Any], now_s: float) -> float | None:
    renewed = spec.get("renewTime")
    return None if not renewed else now_s - datetime.fromisoformat(renewed).timestamp()


def _lease(facts: InstallationFacts, now_s: float) -> Iterator[CheckResult]:
    where = "/".join(facts.installation.lease)
    spec = (facts.lease or {}).get("spec") or {}
    skew_s = facts.skew_s or 0.0
    age_s = _lease_age_s(spec, now_s)
    remedy = "start the operator: nothing is decided without a leader"
    if facts.lease is None:
        yield CheckResult("lease", "failure", f"Lease {where} does not exist: no operator has led yet", remedy)
    elif not spec.get("holderIdentity") or age_s is None:
        yield CheckResult("lease", "failure", f"Lease {where} has no holder: the last leader released it", remedy)
    elif not lease_is_held(facts.lease, now_s - skew_s):
        words = f"Lease {where} of {spec['holderIdentity']} was renewed {age_s:.0f} s ago and has expired"
        yield CheckResult("lease", "failure", words, remedy)
    else:
        renewed = f"renewed {max(0.0, age_s):.0f} s ago"
        words = f"{spec['holderIdentity']} leads, epoch {spec.get('leaseTransitions', 0)}, {renewed}"
        yield CheckResult("lease", "ok", words)


def _metrics(facts: InstallationFacts) -> Iterator[CheckResult]:
    for pod, trouble in facts.metrics.items():
        if trouble:
            remedy = (
                "the API server must reach the pod; look at the NetworkPolicy (networkPolicy.metricsFrom of the chart) "
                "and the settings' metrics_port"
            )
            yield CheckResult("metrics", "warning", f"{pod}: {trouble}", remedy)
        else:
            yield CheckResult("metrics", "ok", f"{pod} serves its metrics")


def _nodes(facts: InstallationFacts) -> Iterator[CheckResult]:
    now = facts.snapshot
    if now is None:
        return
    has_gpus = now.nodes.gpus > 0
    if not len(now.nodes):
        yield CheckResult("nodes", "failure", "there are no nodes", "join nodes to the cluster")
        return
    if not has_gpus.any():
        nodes = len(now.nodes)
        dra_slices = facts.dra_slices or 0
        if dra_slices:
            words = (
                f"none of {nodes} nodes offers GPUs to a pool: drivers publish devices in {dra_slices} ResourceSlices"
            )
            remedy = "give these nodes a pool with `placer: dra` in the settings, whose dra_drivers name the driver"
        else:
            words = f"none of {nodes} nodes offers GPUs"
            remedy = (
                "install the device plugin of the vendor (the NVIDIA GPU operator): it reports how many GPUs a node has"
            )
        yield CheckResult("nodes", "failure", words, remedy)
        return
    unknown = [now.nodes.names[int(row)] for row in (has_gpus & (now.nodes.gpu_type < 0)).nonzero()[0]]
    if unknown:
        words = f"{few(unknown)}: GPUs that match no GPUType"
        remedy = "write a GPUType whose nodeLabel they have; nvidia.com/gpu.product is set by GPU feature discovery"
        yield CheckResult("nodes", "failure" if len(unknown) == has_gpus.sum() else "warning", words, remedy)
    counted = Counter(now.nodes.gpu_type[has_gpus].tolist())
    idle = [name for number, name in enumerate(now.gpu_type_names) if not counted[number]]
    if idle:
        remedy = "check the values of their nodeLabel, or delete the GPUTypes if such nodes cannot be rented either"
        yield CheckResult("nodes", "warning", f"no node has GPUs of {few(idle)}", remedy)
    if not unknown and not idle:
        words = f"all {int(has_gpus.sum())} nodes with GPUs match one of {len(now.gpu_types)} GPUTypes"
        yield CheckResult("nodes", "ok", words)


def _waiting(facts: InstallationFacts, now_s: float) -> Iterator[CheckResult]:
    """Pods that wait for Tonnage, and whether there are a leader and a pool that could place them."""
    waits: dict[str, list[str]] = {}
    for name, pod in sorted(facts.pods.items()):
        mode = requested_mode(seen_pod(name, pod))
        if mode:
            waits.setdefault(mode, []).append(name)
    count = sum(map(len, waits.values()))
    if waits and not lease_is_held(facts.lease, now_s - (facts.skew_s or 0.0)):
        pending = [name for names in waits.values() for name in names]
        words = f"{count} pods wait for Tonnage and there is no leader: {few(pending)}"
        yield CheckResult("waiting", "failure", words, "start the operator, or remove their gate or schedulerName")
        return
    offered = {
        pool_mode(facts.installation.pools, labels)
        for labels in (facts.snapshot.nodes.labels if facts.snapshot else ())
    }
    for mode, names in waits.items():
        if mode not in offered:
            words = f"{few(names)} wait to be placed by {mode!r}, and no node is in a pool with this placer"
            yield CheckResult("waiting", "failure", words, "add such a pool to the operator's settings (pools)")
    if not waits:
        yield CheckResult("waiting", "ok", "no pod waits for Tonnage")
    elif all(mode in offered for mode in waits):
        yield CheckResult("waiting", "ok", f"{count} pods wait and will be placed")


def _dra(facts: InstallationFacts) -> Iterator[CheckResult]:
    if facts.dra_slices:
        yield CheckResult("dra", "ok", f"resource.k8s.io/v1 is served, with {facts.dra_slices} ResourceSlices")
        return
    words = "resource.k8s.io/v1 is served, and no driver publishes devices"
    remedy = "install a DRA driver on the nodes (NVIDIA's DRA driver for GPUs)"
    if facts.dra_slices is None:
        words = "the server has no resource.k8s.io/v1: exact devices are chosen by annotation"
        remedy = "use Kubernetes 1.34 or newer, or another placer than dra in the settings"
    is_used = any(pool.placer == "dra" for pool in facts.installation.pools)
    yield CheckResult("dra", "failure" if is_used else "ok", words, remedy if is_used else "")
