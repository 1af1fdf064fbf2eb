"""Cases for every rule and bound of our kinds: an object that is right, one that is wrong, and what is said of it.

Two judges are put to them: the API server with our CRDs (tests/controlplane/test_crds.py) and the reader of manifests
(tests/unit/controller/api/test_rule.py), so that neither takes what the other refuses.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from controller.api.crds import crd
from controller.api.kinds import OWN_KINDS
from tests.builders.manifests import OURS

Object = dict[str, Any]
Schema = dict[str, Any]

CONDITION = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-03-01T12:00:00Z",
    "reason": "AllRunning",
    "message": "all instances run",
}
OBSERVED = {"observedGeneration": 1, "conditions": [CONDITION]}


def _object(kind: str, spec: Object, status: Object) -> Object:
    metadata = {"name": "full"}
    return {"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec, "status": {**OBSERVED, **status}}


def _policy(
    *, source: Object | None = None, objective: Object | None = None, concurrency: Object | None = None
) -> Object:
    """A full ScalingPolicy. Numbers with an order between them are as far apart as they may be, so that each bound can
    be tried by itself."""
    return _object(
        "ScalingPolicy",
        {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 100_000,
            "demand": {
                "sources": [
                    source
                    or {
                        "role": "load",
                        "prometheus": {"query": "sum(rate(arrivals[1m]))", "server": "http://prometheus:9090"},
                        "maxAge": "2m",
                    }
                ]
            },
            "capacity": {"perReplica": 12.5, "elastic": True},
            "leadTime": {"fixed": "3m", "assumed": "2m"},
            "objective": {"missCost": 99, "missed": 0.005, "switchSeconds": 60}
            | (objective or {"replicaHourPrice": 2.5}),
            "forecast": {"model": "auto", "history": "336h"},
            "behavior": {
                "scaleUp": {
                    "stabilizationWindowSeconds": 0,
                    "selectPolicy": "Max",
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                    "tolerance": 0,
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": 300,
                    "selectPolicy": "Min",
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}],
                    "tolerance": 0.1,
                },
            },
            "fallback": {"replicas": 6, "after": "10m"},
            "concurrency": {
                "tune": True,
                "min": 1,
                "max": 100_000,
                "p95": "2s",
                "latency": "token",
                "configMap": "chat-limit",
                "interval": "5m",
                **(concurrency or {}),
            },
            "mode": "Auto",
            "schedules": [
                {
                    "name": "office",
                    "days": ["Mon"],
                    "start": "08:00",
                    "end": "18:30",
                    "timezone": "Europe/Berlin",
                    "minReplicas": 0,
                    "maxReplicas": 100_000,
                }
            ],
        },
        {
            "currentReplicas": 3,
            "desiredReplicas": 4,
            "about": "ab12",
            "recommendedReplicas": 5,
            "missed": {
                "missCost": 20.5,
                "multiplier": 24.5,
                "load": 40.5,
                "share": 0.004,
                "seconds": 3600,
                "time": "2026-03-01T12:00:00Z",
            },
            "load": 40.5,
            "loadTime": "2026-03-01T12:00:00Z",
            "replicaLoad": 12.5,
            "forecast": {"p50": 41, "p90": 50, "p99": 60.5, "atSeconds": 180, "model": "core"},
            "leadTime": {"p50": 170, "p95": 200, "samples": 12, "learned": [170.5]},
            "coverage90": 0.91,
            "coverage99": 0.99,
            "skill": 0.12,
            "chosenQuantile": 0.99,
            "expectedCost": {"chosen": 12.5, "oneFewer": 14, "oneMore": 15},
            "limitedBy": "stabilization",
            "recommendations": [{"time": "2026-03-01T12:00:00Z", "replicas": 5}],
            "changes": [{"time": "2026-03-01T12:00:00Z", "change": -1}],
            "lastScaleTime": "2026-03-01T12:00:00Z",
            "concurrency": {
                "limit": 12,
                "inForce": 10,
                "time": "2026-03-01T12:00:00Z",
                "reason": "Raised",
                "message": "more requests at once promise more throughput",
                "decisions": 3,
                "learned": [
                    {
                        "gpuType": "a100",
                        "inputBucket": 4,
                        "outputBucket": 3,
                        "usedAt": 3,
                        "limit": 12,
                        "ceiling": 40.5,
                        "arms": [{"limit": 10, "weight": 2.5, "throughput": 1.5, "p95": 0.5}],
                        "throughputScatter": 0.01,
                        "p95Scatter": 0.02,
                        "scatterWeight": 2,
                        "surprised": True,
                    }
                ],
                "pool": {"limit": 12, "intervals": 1, "requests": 5, "throughput": 3.5, "logP95": 0.5},
            },
        },
    )


FULL: Mapping[str, Object] = {
    "GPUType": _object(
        "GPUType",
        {
            "nodeLabel": {"key": "nvidia.com/gpu.product", "values": ["A100"]},
            "otherLabels": [{"key": "node.kubernetes.io/instance-type", "values": ["p4de.24xlarge"]}],
            "nodeSelector": {"nvidia.com/gpu.replicas": "4"},
            "resourceName": "nvidia.com/gpu",
            "share": 0.25,
            "devicesPerPod": [1],
            "memory": "80Gi",
            "network": "25G",
            "powerPrices": [{"fromTime": "2026-03-01T12:00:00Z", "dollarsPerKwh": 0.1, "gramsPerKwh": 320.5}],
            "pricePerHour": {"onDemand": 4, "spot": 1.5, "committed": 2},
            "inventory": 8,
        },
        {},
    ),
    "ModelProfile": _object(
        "ModelProfile",
        {
            "model": "m",
            "gpuType": "a100",
            "gpusPerInstance": 2,
            "grid": {"inputTokens": [100], "outputTokens": [10]},
            "throughput": [
                {"slo": {"tpot": "40ms"}, "requestsPerSecond": [[8]], "decodedPerSecond": [[9]], "watts": 300}
            ],
            "prefill": ["20ms"],
            "cacheBytesPerToken": 131072,
            "cacheTokens": 400000,
            "origin": "estimated",
            "error": 0.16,
        },
        {},
    ),
    "ModelService": _object(
        "ModelService",
        {
            "model": "m",
            "modelFacts": {"billionParameters": 8, "config": {"hidden_size": 4096}, "precision": "fp8"},
            "models": ["large"],
            "quality": {"of": {"m": 0.5, "large": 0.9}, "mean": 0.6},
            "adapters": ["poems=/adapters/poems"],
            "adapterMemory": "200Mi",
            "slo": {"tpot": "40ms", "ttft": "1s", "share": 0.99},
            "demand": {
                "requestsPerSecond": 6,
                "inputTokens": [100],
                "outputTokens": [10],
                "histogram": [[1]],
                "batch": {
                    "requests": 1000,
                    "begin": "2026-03-01T12:00:00Z",
                    "deadline": "2026-03-02T12:00:00Z",
                    "mostPerSecond": 2.5,
                },
            },
            "objective": {"dollars": 1, "kWh": 0.12, "kgCO2": 0.1},
            "gpuTypes": ["a100"],
            "phases": {"prefill": {"gpuTypes": ["h100"]}, "decode": {"gpuTypes": ["a100"]}},
            "cache": {
                "gpuTypes": ["a100"],
                "memory": "1Ti",
                "instanceMemory": "64Gi",
                "pricePerGiBHour": 0.004,
                "hits": [{"within": "1m", "share": 0.4}],
            },
            "spot": False,
            "headroom": 0.2,
            "split": "sliced",
            "sliceFactor": 8,
            "instance": {"cpu": "500m", "memory": "64Gi"},
            "template": {
                "metadata": {"labels": {"team": "search"}, "annotations": {"note": "a"}},
                "spec": {"containers": [{"name": "server", "image": "vllm:1"}], "hostNetwork": False},
                "variants": [
                    {
                        "phase": "decode",
                        "gpuType": "a100",
                        "model": "m",
                        "image": "vllm:2",
                        "args": ["-q"],
                        "env": {"A": "1"},
                    },
                ],
            },
            "routes": {
                "gateway": "infra/inference",
                "hostnames": ["chat.example.com"],
                "port": 8000,
                "picker": "chat-epp",
            },
            "priority": 0,
        },
        {
            "mix": {"a100": 2},
            "replicas": {"a100": 2},
            "running": {"a100": 1},
            "wantedInstances": 2,
            "runningInstances": 1,
            "lastScaleTime": "2026-03-01T12:00:00Z",
            "costPerHour": 8,
            "joulesPerToken": 0.25,
            "batch": {"done": 12.5, "time": "2026-03-01T12:00:00Z", "deadline": "2026-03-02T12:00:00Z"},
            "boundPerHour": 7.5,
            "gap": 0.0625,
            "routing": {
                "inputTokens": [100],
                "outputTokens": [10],
                "weights": [
                    {
                        "phase": "all",
                        "gpuType": "a100",
                        "gpusPerInstance": 1,
                        "capacityType": "on-demand",
                        "share": [[1]],
                    },
                ],
            },
        },
    ),
    "Gang": _object(
        "Gang",
        {
            "minMembers": 2,
            "maxMembers": 4,
            "groups": [
                {
                    "name": "a",
                    "minMembers": 1,
                    "maxMembers": 2,
                    "minGroups": 0,
                    "topology": {"within": "zone", "preferWithin": "example.com/rack"},
                },
            ],
            "minGroups": 1,
            "topology": {"within": "zone", "preferWithin": "example.com/rack"},
            "priority": 1,
            "onMemberLoss": "Restart",
        },
        {
            "members": 2,
            "running": 1,
            "selector": "tonnage.dev/gang=full",
            "wholeSince": "2026-03-01T11:00:00Z",
            "halfStartedSince": "2026-03-01T12:00:00Z",
        },
    ),
    "PowerDomain": _object(
        "PowerDomain",
        {
            "type": "rack",
            "feeds": [{"name": "row-1", "share": 1}],
            "budgetWatts": 40000,
            "otherWatts": 500,
            "breaker": {"curve": [{"over": 1.1, "seconds": 600}], "coolingSeconds": 300},
            "nodes": {"key": "example.com/rack", "values": ["r1"], "otherWatts": 1500, "overheadShare": 0.25},
            "classes": [{"name": "high", "rank": 0, "minPriority": 1000, "bursts": False, "floor": 0.6}],
            "mode": "enforce",
        },
        {
            "drawWatts": 31000.5,
            "worstWatts": 38000,
            "headroomWatts": 2000,
            "budgetWatts": 40000,
            "devices": 32,
            "staleDevices": 1,
            "cappedShare": 0.25,
            "culprits": [{"device": "GPU-1", "node": "n1", "reason": "Stale"}],
            "heldBackDevices": 1,
            "heldBack": [
                {
                    "device": "GPU-2",
                    "node": "n1",
                    "serviceClass": "low",
                    "capWatts": 420.5,
                    "needWatts": 600,
                    "limitedBy": "row-1",
                    "sinceTime": "2026-03-01T12:00:00Z",
                    "slowerShare": 0.05,
                }
            ],
        },
    ),
    "Team": _object(
        "Team",
        {
            "namespaces": {"team": "a"},
            "share": {"gpus": {"a100": "16"}},
            "borrowing": {"gpus": {"a100": 8}},
            "weight": 2,
            "minRun": "10m",
            "maxWait": "24h",
        },
        {
            "used": 20,
            "borrowed": 4,
            "lent": 0.5,
            "waiting": 2,
            "dollarsPerHour": 80,
            "devices": [{"gpuType": "a100", "used": 20, "borrowed": 4, "lent": 0.5}],
            "usage": 3.5,
            "usageAt": "2026-03-01T12:00:00Z",
        },
    ),
    "SandboxPolicy": _object(
        "SandboxPolicy",
        {
            "namespaces": ["team-a"],
            "selector": {"matchLabels": {"app": "coder"}},
            "container": "agent",
            "classes": [
                {"name": "interactive", "priority": 100, "budget": "8Gi", "guaranteed": "1Gi", "agentMemory": "512Mi"}
            ],
        },
        {
            "selected": 2,
            "controlled": 1,
            "running": 3,
            "queued": 1,
            "frozen": 1,
            "troubles": [{"pod": "team-a/coder-1", "node": "n1", "message": "its container does not run yet"}],
        },
    ),
    "ScalingPolicy": _policy(),
    "HealthPolicy": _object(
        "HealthPolicy",
        {
            "mode": "Act",
            "nodes": {"key": "pool", "values": ["training"]},
            "failureDomains": ["example.com/switch"],
            "budget": {
                "perJob": 2,
                "perJobWindow": "30m",
                "recentShare": 0.02,
                "recentWindow": "10m",
                "totalShare": 0.1,
                "domainShare": 0.25,
            },
            "breakers": {
                "domainSuspects": 2,
                "domainWindow": "2m",
                "restarts": 3,
                "restartWindow": "1h",
                "heardShare": 0.9,
            },
            "probation": {"test": "1m", "lasts": "4h"},
            "jobs": {"restart": "150s", "restartInPlace": "150s", "checkpointInterval": "30m"},
            "preflight": "1m",
            "owners": [{"name": "repairs", "label": "example.com/owner", "taint": "example.com/repair"}],
            "detectors": [{"name": "npd", "condition": "GPUProblem", "taint": "example.com/gpu"}],
            "findings": [{"code": "Xid63", "severity": "AfterJob"}],
        },
        {
            "nodes": 10,
            "quarantined": 1,
            "incidents": 1,
            "checkpoints": [
                {
                    "job": "ns/g",
                    "save": "10s",
                    "interval": "30m",
                    "advised": "10m",
                    "lostShare": 0.1,
                    "advisedLostShare": 0.05,
                    "spares": 9,
                }
            ],
        },
    ),
    "FaultIncident": _object(
        "FaultIncident",
        {"nodes": ["n1"], "domain": "example.com/switch=s1"},
        {
            "conditions": [{**CONDITION, "type": "Waiting"}],
            "phase": "Suspected",
            "generation": 1,
            "syndrome": "communication hang",
            "part": "node",
            "jobs": ["ns/train"],
            "confidence": 0.9,
            "evidence": ["rank 3 did not enter"],
            "sources": ["job"],
            "remedy": "quarantine",
            "waitsFor": "breaker: job",
            "probe": "pair probe",
            "since": "2026-03-01T12:00:00Z",
            "seen": "2026-03-01T12:00:05Z",
            "alternatives": [{"do": "evict now", "gpuHours": 1.5, "note": "the checkpoint is 60 s old"}],
            "record": "{}",
        },
    ),
}
"""One object of each kind with every field in it, every list with one entry."""

OWNED = {"owned": {"capital": 30_000, "years": 4, "watts": 1200, "dollarsPerKwh": 0.1}}
_IN_USD = {"share": {"dollarsPerHour": 40}, "borrowing": {"dollarsPerHour": 8}}
_OUTER = ("actors", "a", "actors".rjust(63, "a"))
"""Groups that a bound of `parent` is tried with."""
OTHERS: Mapping[str, tuple[Object, ...]] = {
    "Gang": (
        _object(
            "Gang",
            {"minMembers": 1, "groups": [{"name": "b", "parent": "actors"}, *({"name": each} for each in _OUTER)]},
            {},
        ),
    ),
    "GPUType": (_object("GPUType", {"nodeLabel": {"values": ["A100"]}, "memory": "80Gi", "pricePerHour": OWNED}, {}),),
    "Team": (_object("Team", {"namespaces": {"team": "a"}, **_IN_USD}, {}),),
    "ScalingPolicy": (
        _policy(source={"role": "queue", "customMetric": {"name": "queue_length", "selector": {"model": "m"}}}),
        _policy(source={"role": "inputTokens", "push": {}, "maxAge": "30s"}),
        _policy(source={"role": "requests", "prometheus": {"preset": "vllm", "labels": {"model_name": "m"}}}),
        _policy(objective={"gpuType": "a100", "gpus": 2}),
        # With it, neither of the bounds can be tried by itself.
        _policy(concurrency={"start": 100}),
    ),
}
"""More objects of the kinds of which some fields exclude each other; together with FULL they have every field."""


def full_with(kind: str, path: str) -> Object:
    """The first object of a kind that has a field at this path."""
    return next(each for each in (FULL[kind], *OTHERS.get(kind, ())) if has(each, path))


def has(obj: Any, path: str) -> bool:
    for part in path.replace("[]", ".[]").split("."):
        try:
            obj = next(iter(obj if isinstance(obj, list) else obj.values())) if part == "[]" else obj[part]
        except (KeyError, StopIteration):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Case:
    kind: str
    about: str
    """What is tried: `spec.slo.tpot pattern`, or where a rule stands and what it says."""
    good: Object
    bad: Object
    said: str
    """What the API server says of the bad one, besides the name of the field."""
    before: Object | None = None
    """The object as it is when good and bad are written; None: they are new."""

    @property
    def id(self) -> str:
        return f"{self.kind} {self.about}"


def having(obj: Object, path: str, value: object) -> Object:
    """A copy with another value at a path; `[]` is the first entry of a list or a map. `...`: without the field."""
    made = deepcopy(obj)
    at: Any = made
    *way, last = path.replace("[]", ".[]").split(".")
    for part in way:
        at = at[_key(at, part)]
    if value is ...:
        del at[_key(at, last)]
    else:
        at[_key(at, last)] = value
    return made


def _key(at: Any, part: str) -> Any:
    if part != "[]":
        return part
    return 0 if isinstance(at, list) else next(iter(at))


def _value(obj: Object, path: str) -> Any:
    at: Any = obj
    for part in path.replace("[]", ".[]").split("."):
        at = at[_key(at, part)]
    return at


def schema_of(kind: str) -> Schema:
    (found,) = (each for each in OWN_KINDS if each.name == kind)
    made: Schema = crd(found)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return made


def parts(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every part of a structural schema, with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from parts(field, f"{path}.{name}" if path else name)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from parts(schema[key], f"{path}[]")


def bound_cases(kind: str) -> Iterator[Case]:
    """A case for every bound in the schema of a kind, worked out from the bound."""
    for path, part in parts(schema_of(kind)):
        if path.split(".")[0] in ("spec", "status"):
            for about, good, bad, said in _tried(full_with(kind, path), path, part):
                yield Case(kind, f"{path} {about}", good, bad, said)
    yield Case(kind, "spec required", FULL[kind], having(FULL[kind], "spec", ...), "Required value")


Tried = tuple[str, Object, Object, str]


def _tried(full: Object, path: str, part: Schema) -> Iterator[Tried]:
    value = _value(full, path)
    yield from ((f"{name} required", full, having(full, f"{path}.{name}", ...), "Required value")
                for name in part.get("required", ()))  # fmt: skip
    match part.get("type"):
        case "integer" | "number":
            yield from _number_tried(full, path, part)
        case "array":
            yield from _list_tried(full, path, part, value)
        case "object" if "maxProperties" in part:
            most = part["maxProperties"]
            entries = {f"k{n}": next(iter(value.values())) for n in range(most + 1)}
            fewer = dict(list(entries.items())[:most])
            yield "maxProperties", having(full, path, fewer), having(full, path, entries), "must have at most"
        case "string" | None:
            yield from _text_tried(full, path, part, value)


def _number_tried(full: Object, path: str, part: Schema) -> Iterator[Tried]:
    for bound, sign, said in (("minimum", 1, "greater than"), ("maximum", -1, "less than")):
        if bound in part:
            limit = part[bound]
            is_open = part.get(f"exclusive{bound.title()}", False)
            inside = limit + sign * (0.001 if is_open else 0)
            outside = limit - sign * (0 if is_open else 1)
            # A table whose only number is at its bound says nothing: rules refuse it. Others have zeros beside it.
            good = full if path.endswith("[][]") else having(full, path, inside)
            yield bound, good, having(full, path, outside), f"should be {said}"
    wrong = having(full, path, "8")
    yield "type", full, wrong, "must be of type"


def _list_tried(full: Object, path: str, part: Schema, value: list[Any]) -> Iterator[Tried]:
    if part.get("minItems"):
        yield "minItems", full, having(full, path, []), "should have at least"
    # At the very bound, see LARGEST: there many lists are as long as they may be at once.
    yield "maxItems", full, having(full, path, value * (part["maxItems"] + 1)), "must have at most"
    if part["x-kubernetes-list-type"] != "atomic":
        yield "x-kubernetes-list-type", full, having(full, path, value * 2), "Duplicate value"


def _text_tried(full: Object, path: str, part: Schema, value: object) -> Iterator[Tried]:
    if "enum" in part:
        yield "enum", having(full, path, part["enum"][-1]), having(full, path, "other"), "Unsupported value"
    if "pattern" in part:
        yield "pattern", full, having(full, path, "-"), "should match"
    if "minLength" in part:
        yield "minLength", having(full, path, "a" * part["minLength"]), having(full, path, ""), "should be at least"
    if "maxLength" in part:
        most = part["maxLength"]
        longest = _padded(value, most)
        yield "maxLength", having(full, path, longest), having(full, path, _padded(value, most + 1)), "may not be"
    if part.get("format") == "date-time":
        yield "format", full, having(full, path, "yesterday"), "must be of type date-time"


def _padded(value: object, length: int) -> str:
    """Text of this length that still means something: quantities and times may begin with zeros, names with letters."""
    text = str(value)
    return text.rjust(length, "0" if text[:1].isdigit() else "a")


def bounds_in(schema: Schema) -> Iterator[str]:
    """What each bound of a schema is called in `about`."""
    bounds = {
        "minimum", "maximum", "minLength", "maxLength", "pattern", "enum", "minItems", "maxItems", "maxProperties",
    }  # fmt: skip
    for path, part in parts(schema):
        yield from (f"{path} {bound}" for bound in sorted(bounds & set(part)))
        yield from (f"{path} {name} required".lstrip() for name in part.get("required", ()))
        if part.get("x-kubernetes-list-type") in ("set", "map"):
            yield f"{path} x-kubernetes-list-type"
        if part.get("format") == "date-time":
            yield f"{path} format"


def rules_in(schema: Schema) -> Iterator[tuple[str, str]]:
    """Where each rule stands and what it says."""
    for path, part in parts(schema):
        for rule in part.get("x-kubernetes-validations", ()):
            yield path, rule["message"]


LONG_NAME = "n" * 64

EDGES = [10 * n for n in range(1, 65)]
HUNDREDTHS = [[1 / 4096] * 64] * 64


def _profile(**grid: object) -> Object:
    """Two edges each way, and a table that fits them."""
    full = having(FULL["ModelProfile"], "spec.grid", {"inputTokens": [10, 100], "outputTokens": [1, 5], **grid})
    full = having(having(full, "spec.throughput[].decodedPerSecond", ...), "spec.prefill", ...)
    return having(full, "spec.throughput[].requestsPerSecond", [[8, 4], [2, 0]])


def _demand(**demand: object) -> Object:
    return having(
        FULL["ModelService"],
        "spec.demand",
        {
            "requestsPerSecond": 6,
            "inputTokens": [10, 100],
            "outputTokens": [1, 5],
            "histogram": [[0.5, 0.25], [0.125, 0.125]],
            **demand,
        },
    )


def _table(tpot: str) -> Object:
    return {"slo": {"tpot": tpot}, "requestsPerSecond": [[8]]}


def _rule_cases() -> Iterator[Case]:
    """What must hold between fields. `about` is where the rule stands, and how its message begins."""
    gang, service, gpu_type = (FULL[kind] for kind in ("Gang", "ModelService", "GPUType"))
    profile = FULL["ModelProfile"]
    for full in (gang, service):
        good = having(full, "metadata.name", LONG_NAME[1:])
        yield Case(full["kind"], " metadata.name is longer", good, having(full, "metadata.name", LONG_NAME), "choose a")
    yield Case(
        "Gang", "spec.topology preferWithin is the same",
        having(gang, "spec.topology.preferWithin", ...), having(gang, "spec.topology.preferWithin", "zone"), "leave it",
    )  # fmt: skip
    for words, bad in (("without any", {"spot": 1}), ("of two kinds", {"onDemand": 1, **OWNED})):
        good, wrong = (having(gpu_type, "spec.pricePerHour", each) for each in (OWNED, bad))
        yield Case("GPUType", f"spec.pricePerHour should have either, {words}", good, wrong, "should have either")
    yield Case(
        "Gang", "spec.groups names a parent which is no group without",
        gang, having(gang, "spec.groups", [{"name": "a", "parent": "b"}]), "name one",
    )  # fmt: skip
    for kind, path, other, left in (
        ("GPUType", "spec.resourceName", "amd.com/gpu", "spec.inventory"),
        ("ModelProfile", "spec.model", "other", "spec.gpusPerInstance"),
        ("ModelProfile", "spec.gpuType", "other", "spec.gpusPerInstance"),
        ("ModelService", "spec.model", "other", "spec.sliceFactor"),
    ):
        before = FULL[kind]
        good = having(before, left, 3)
        yield Case(kind, f"{path} is immutable", good, having(before, path, other), "is immutable", before)
    for kind, path, make in (
        ("ModelProfile", "spec.grid.inputTokens", _profile),
        ("ModelProfile", "spec.grid.outputTokens", _profile),
        ("ModelService", "spec.demand.inputTokens", _demand),
        ("ModelService", "spec.demand.outputTokens", _demand),
    ):
        side = path.rpartition(".")[2]
        for n, edges in enumerate(([100, 10], [100, 100])):
            about = f"{path} edges rise" + (", twice the same" if n else "")
            yield Case(kind, about, make(), make(**{side: edges}), "edges rise strictly")
    yield Case("ModelProfile", "spec every table", _profile(), _profile(inputTokens=[10, 50, 100]), "one row per edge")
    yield Case("ModelProfile", "spec every row", _profile(), _profile(outputTokens=[10]), "one number per edge")
    path = "spec.throughput[].decodedPerSecond"
    decoded, short = (having(_profile(), path, [[9, 9]] * n) for n in (2, 1))
    yield Case("ModelProfile", "spec every table, decoded", decoded, short, "one row per edge")
    yield Case(
        "ModelProfile", "spec prefill has one",
        _profile(), having(_profile(), "spec.prefill", ["5ms"]), "leave it out",
    )  # fmt: skip
    tables = [_table("40ms"), _table("0.5s")]
    yield Case(
        "ModelProfile", "spec.throughput two tables",
        having(profile, "spec.throughput", tables),
        having(profile, "spec.throughput", [*tables, _table("500ms")]), "keep one table per SLO",
    )  # fmt: skip
    yield Case(
        "ModelProfile", "spec.throughput[].requestsPerSecond is zero",
        _profile(), having(profile, "spec.throughput[].requestsPerSecond", [[0]]), "leave the table out",
    )  # fmt: skip
    yield Case(
        "ModelService", "spec.demand histogram has one row", _demand(), _demand(histogram=[[0.5, 0.5]]), "one row per"
    )
    yield Case(
        "ModelService", "spec.demand every row",
        _demand(), _demand(histogram=[[0.5, 0.25], [0.25]]), "one number per edge",
    )  # fmt: skip
    for n, (nearly, wrong) in enumerate((([[0.5, 0.25], [0.125, 0.1259]], 0.127), ([[0.5, 0.25], [0.125, 0.1241]], 0))):
        about = "spec.demand.histogram fractions should sum" + (", too little" if n else "")
        wrong_rows = [nearly[0], [0.125, wrong]]
        yield Case("ModelService", about, _demand(histogram=nearly), _demand(histogram=wrong_rows), "divide each by")
    yield from _quantity_cases(gpu_type, "spec.memory", "0")
    yield from _quantity_cases(gpu_type, "spec.network", "0")
    yield from _quantity_cases(service, "spec.instance.cpu", "-1")
    yield from _quantity_cases(service, "spec.instance.memory", "-1")
    yield from _quantity_cases(service, "spec.adapterMemory", "-1")
    yield from _quantity_cases(service, "spec.cache.memory", "0")
    yield from _quantity_cases(service, "spec.cache.instanceMemory", "0")
    for full, path in (
        (service, "spec.slo.tpot"),
        (service, "spec.slo.ttft"),
        (service, "spec.cache.hits[].within"),
        (profile, "spec.throughput[].slo.tpot"),
        (profile, "spec.prefill[]"),
    ):
        for bad in ("0s", "40", "2562048h"):
            yield Case(
                full["kind"], f"{path} should be a duration, {bad}",
                having(full, path, "1m30.5s"), having(full, path, bad), "with its unit",
            )  # fmt: skip
    yield from _power_cases(FULL["PowerDomain"])
    yield from _scaling_cases(FULL["ScalingPolicy"])
    for path in (
        "spec.budget.perJobWindow",
        "spec.budget.recentWindow",
        "spec.breakers.domainWindow",
        "spec.breakers.restartWindow",
        "spec.probation.test",
        "spec.probation.lasts",
        "spec.jobs.restart",
        "spec.jobs.restartInPlace",
        "spec.jobs.checkpointInterval",
        "spec.preflight",
        "status.checkpoints[].save",
        "status.checkpoints[].interval",
        "status.checkpoints[].advised",
    ):
        health = FULL["HealthPolicy"]
        yield Case(
            "HealthPolicy", f"{path} should be a duration",
            having(health, path, "1m30.5s"), having(health, path, "0s"), "with its unit",
        )  # fmt: skip
    team = FULL["Team"]
    for path in ("share", "borrowing"):
        good, bad = (having(team, f"spec.{path}.gpus.a100", each) for each in ("1.5", "-1"))
        yield Case("Team", f"spec.{path}.gpus[] should be a quantity", good, bad, "should be a quantity")
        both = having(team, f"spec.{path}.dollarsPerHour", 5)
        yield Case("Team", f"spec.{path} should have either", team, both, "should have either")
    for path in ("spec.minRun", "spec.maxWait"):
        good, bad = having(team, path, "1m30.5s"), having(team, path, "0s")
        yield Case("Team", f"{path} should be a duration", good, bad, "with its unit")
    in_usd = having(team, "spec.share", {"dollarsPerHour": 40})
    yield Case("Team", "spec borrowing should be", team, in_usd, "in the unit of share")
    sandboxes = FULL["SandboxPolicy"]
    for path, too_low in (("budget", "0"), ("guaranteed", "-1"), ("agentMemory", "-1")):
        yield from _quantity_cases(sandboxes, f"spec.classes[].{path}", too_low)


def _scaling_cases(policy: Object) -> Iterator[Case]:
    def case(about: str, good: Object, bad: Object, said: str) -> Case:
        return Case("ScalingPolicy", about, good, bad, said)

    few, source = having(policy, "spec.maxReplicas", 5), "spec.demand.sources[]"
    yield case(
        "spec minReplicas is above", having(few, "spec.minReplicas", 5), having(few, "spec.minReplicas", 6), "or raise"
    )
    service = having(policy, "spec.target.kind", "ModelService")
    without = having(policy, "spec.capacity", ...)
    yield case("spec capacity is required", having(service, "spec.capacity", ...), without, "set capacity.perReplica")
    both, none = having(policy, f"{source}.push", {}), having(policy, f"{source}.prometheus", ...)
    about = f"{source} has not exactly one of prometheus"
    yield case(about, policy, both, "name one source")
    yield case(f"{about}, none", policy, none, "name one source")
    preset, query = (
        having(policy, f"{source}.prometheus.preset", "vllm"),
        having(policy, f"{source}.prometheus.query", ...),
    )
    about = f"{source}.prometheus has not exactly one of preset"
    yield case(about, policy, preset, "choose a preset or")
    yield case(f"{about}, none", policy, query, "choose a preset or")
    priced = having(policy, "spec.objective.gpuType", "a100")
    yield case("spec.objective has both replicaHourPrice", policy, priced, "keep one of them")
    narrow = having(policy, "spec.concurrency.max", 5)
    wrong = having(narrow, "spec.concurrency.min", 6)
    yield case("spec.concurrency min is above", narrow, wrong, "lower min or raise max")
    bounded = having(policy, "spec.concurrency.min", 100)
    inside, outside = (having(bounded, "spec.concurrency.start", each) for each in (100, 99))
    yield case("spec.concurrency start is outside", inside, outside, "choose bounds")
    minute, short = (having(policy, "spec.concurrency.interval", each) for each in ("60s", "59s"))
    yield case("spec.concurrency interval is below", minute, short, "two scrapes")
    month, longer = (having(policy, "spec.forecast.history", each) for each in ("744h", "744h1s"))
    yield case("spec.forecast history is above", month, longer, "a month is the most")
    free = having(having(policy, "spec.schedules[].minReplicas", ...), "spec.schedules[].maxReplicas", ...)
    yield case("spec.schedules[] has neither minReplicas", policy, free, "set the bound")
    low = having(policy, "spec.schedules[].maxReplicas", 5)
    good, bad = (having(low, "spec.schedules[].minReplicas", count) for count in (5, 6))
    yield case("spec.schedules[] minReplicas is above", good, bad, "or raise maxReplicas")
    for path in (
        f"{source}.maxAge",
        "spec.leadTime.fixed",
        "spec.leadTime.assumed",
        "spec.forecast.history",
        "spec.fallback.after",
        "spec.concurrency.p95",
        "spec.concurrency.interval",
    ):
        about = f"{path} should be a duration"
        yield case(about, having(policy, path, "1m30.5s"), having(policy, path, "0s"), "with its unit")


def _power_cases(domain: Object) -> Iterator[Case]:
    points = [{"over": 1.1, "seconds": 600}, {"over": 1.5, "seconds": 10}]
    good = having(domain, "spec.breaker.curve", points)
    about = "spec.breaker.curve over must rise"
    for n, wrong in enumerate(
        ({"over": 1.05, "seconds": 10}, {"over": 1.1, "seconds": 10}, {"over": 1.5, "seconds": 600})
    ):
        bad = having(domain, "spec.breaker.curve", [points[0], wrong])
        yield Case("PowerDomain", f"{about}{', again' * n}", good, bad, "from point to point")
    alone = having(domain, "metadata.name", "alone")
    itself = having(alone, "spec.feeds[].name", "alone")
    yield Case("PowerDomain", " a domain cannot feed itself", alone, itself, "name the domain that supplies it")
    without = having(domain, "spec.budgetWatts", ...)
    yield Case("PowerDomain", "spec a breaker without", domain, without, "set the budget")
    low = {"name": "low", "rank": 1}
    classes = [*domain["spec"]["classes"], low]
    same = [*domain["spec"]["classes"], {**low, "rank": 0}]
    yield Case(
        "PowerDomain", "spec.classes two classes",
        having(domain, "spec.classes", classes), having(domain, "spec.classes", same), "higher rank is reduced first",
    )  # fmt: skip


def _quantity_cases(full: Object, path: str, too_low: str) -> Iterator[Case]:
    for good, bad in (("1.5", too_low), (2**50, str(2**50 + 1)), ("2e3", "80 Gi"), ("1k", "1e400")):
        about = f"{path} should be a quantity, {bad}"
        yield Case(full["kind"], about, having(full, path, good), having(full, path, bad), "should be a quantity")
    yield Case(full["kind"], f"{path} type, 1.5", having(full, path, "1.5"), having(full, path, 1.5), "must be")


RULE_CASES = tuple(_rule_cases())

LARGEST: Mapping[str, Object] = {
    "ModelProfile": having(
        having(
            having(FULL["ModelProfile"], "spec.grid", {"inputTokens": EDGES, "outputTokens": EDGES}),
            "spec.prefill",
            ["1ms"] * 64,
        ),
        "spec.throughput",
        # The last rate alone is above zero, so that the rules look at all of them.
        [{"slo": {"tpot": f"{n}ms"}, "requestsPerSecond": [[0] * 64] * 63 + [[0] * 63 + [1]]} for n in range(1, 33)],
    ),
    "ModelService": having(
        having(
            FULL["ModelService"],
            "spec.demand",
            {"requestsPerSecond": 6, "inputTokens": EDGES, "outputTokens": EDGES, "histogram": HUNDREDTHS},
        ),
        "spec.gpuTypes",
        [f"type-{n:02}" for n in range(64)],
    ),
    "GPUType": having(FULL["GPUType"], "spec.nodeLabel.values", [f"A{n}" for n in range(32)]),
    "ScalingPolicy": having(
        having(
            FULL["ScalingPolicy"],
            "spec.demand.sources",
            [
                {"role": role, "prometheus": {"query": "q" * 4096}}
                for role in ("load", "requests", "inputTokens", "outputTokens", "queue")
            ],
        ),
        "spec.schedules",
        [{"name": f"s{n}", "start": "00:00", "end": "00:00", "minReplicas": 1} for n in range(16)],
    ),
}
"""Objects whose lists are as long as they may be, all at once: rules must not become too dear for the API server."""


def all_bound_cases() -> Iterable[Case]:
    return (case for kind in OWN_KINDS for case in bound_cases(kind.name))
