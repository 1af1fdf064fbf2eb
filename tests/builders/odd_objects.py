"""Objects that an API server may hold and no author of a manifest would write, one at a time in a good dump.

`python -m tests.builders.odd_objects 2000` prints how many of so many dumps are refused, raise, or change the answer
about the other objects.
"""

import json
import random
import sys
from collections import Counter
from copy import deepcopy
from typing import Any

from click.testing import CliRunner

from cli.main import tonnage

Object = dict[str, Any]
ODD = "odd"
"""Part of every name that a mutation adds, and of none of the others'."""
PRODUCT = "NVIDIA-A100-SXM4-80GB"


def meta(name: str, namespace: str = "", **more: Any) -> Object:
    return {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {}), **more}


def node(name: str, gpus: int = 4, product: str = PRODUCT, **labels: str) -> Object:
    have = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    named = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": product, **labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta(name, labels=named),
        "spec": {},
        "status": {
            "capacity": dict(have),
            "allocatable": dict(have),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, gpus: int, on: str = "", namespace: str = "team", **meta_fields: Any) -> Object:
    amounts = {"cpu": "2", "memory": "4Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    spec = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": dict(amounts)}}], "priority": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, namespace, labels={"app": name}, **meta_fields),
        "spec": {**spec, "nodeSelector": {}, "tolerations": [], **({"nodeName": on} if on else {})},
        "status": {"phase": "Running" if on else "Pending", "conditions": []},
    }


def good() -> list[Object]:
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "1", "controller": True}]
    return [
        *(node(f"n{number}") for number in range(4)),
        pod("whole", 4, "n0"),
        *(pod(f"part-{number}", 1, f"n{number}", ownerReferences=owner) for number in (1, 2)),
        pod("waits", 2),
    ]


QUANTITIES = ["0", "1", "7", "80", "500", "9E", "8191P", "1e3", "0.5", "100m", "1n", "12345678901234567", "4.5Gi", "-0"]
WORDS = ["", "yes", "true", "half", "0", "7", "0,1", "17", "-1", "x" * 63, "9" * 30, "ünï", "a,b,c", "1.5", "None"]
TIMES = ["2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00.123456Z", None]
RESOURCES = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "nvidia.com/mig-1g.10gb",
    "gpu.intel.com/i915",
    "google.com/tpu",
    "cpu",
    "memory",
    "aws.amazon.com/neuroncore",
    "nvidia.com/gpu.shared",
    "hugepages-2Mi",
    "ephemeral-storage",
    "vendor.example/odd",
    "habana.ai/gaudi",
    "pods",
    "tencent.com/vcuda-core",
    "nvidia.com/gpumem",
]
PODS_ANNOTATIONS = [
    "tonnage.dev/gpu-milli",
    "tonnage.dev/gpu-types",
    "tonnage.dev/devices",
    "tonnage.dev/movable",
    "pod-group-name",
    "gpu-fraction",
    "gpu-memory",
    "leaderworkerset.sigs.k8s.io/size",
    "volcano.sh/task-spec",
    "scheduling.k8s.io/group-name",
    "kueue.x-k8s.io/pod-group-total-count",
    "tonnage.dev/node",
    "tonnage.dev/placed-at",
]
LABELS = [
    "tonnage.dev/gang",
    "tonnage.dev/service",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.memory",
    "nvidia.com/mig.config",
    "leaderworkerset.sigs.k8s.io/name",
    "kueue.x-k8s.io/pod-group-name",
    "jobset.sigs.k8s.io/jobset-name",
    "team",
]
OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Matches", "Within"]


def mutated_node(chance: random.Random) -> list[Object]:
    made = node(
        f"{ODD}-node", chance.choice([0, 4, 8]), chance.choice([PRODUCT, "NVIDIA-NEXT", f"{PRODUCT}-MIG-1g.5gb"])
    )
    made["spec"]["taints"] = [{"key": ODD, "effect": "NoSchedule"}]
    for _ in range(chance.randint(1, 4)):
        chance.choice(
            [
                lambda: made["status"][chance.choice(["allocatable", "capacity"])].update(
                    {chance.choice(RESOURCES): chance.choice(QUANTITIES)}
                ),
                lambda: made["status"].pop(chance.choice(["allocatable", "capacity", "conditions"]), None),
                lambda: made["status"].update({chance.choice(["allocatable", "capacity"]): {}}),
                lambda: made["metadata"]["labels"].update({chance.choice(LABELS): chance.choice(WORDS)}),
                lambda: made["metadata"].update({"annotations": {"tonnage.dev/released": chance.choice(WORDS)}}),
                lambda: made["status"].update(
                    {"conditions": [{"type": "Ready", "status": chance.choice(["False", "Unknown"])}]}
                ),
                lambda: made["spec"].update({"unschedulable": True}),
                lambda: made["spec"]["taints"].append(
                    {"key": "k", "effect": chance.choice(["NoExecute", "Later"]), "timeAdded": chance.choice(TIMES)}
                ),
                lambda: made["metadata"].update({"deletionTimestamp": chance.choice(TIMES)}),
                lambda: made["metadata"].update(
                    {"labels": None} if chance.random() < 0.3 else {"laterField": {"a": [1, None]}}
                ),
                lambda: made.pop("status", None) and made.update(status={}),
            ]
        )()
        made["status"].setdefault("allocatable", {})
        made["status"].setdefault("capacity", {})
        if made["metadata"]["labels"] is None:
            break
    runs = [pod(f"{ODD}-held", chance.randint(0, 9), f"{ODD}-node", ODD)] if chance.random() < 0.5 else []
    return [made, *runs]


def mutated_pod(chance: random.Random) -> list[Object]:
    home = chance.choice(["", f"{ODD}-home", f"{ODD}-vanished"])
    made = pod(f"{ODD}-pod", chance.choice([0, 1, 4, 9, 200]), home, ODD, annotations={})
    if not home:
        made["spec"]["nodeSelector"] = {ODD: "nowhere"}
    container = made["spec"]["containers"][0]

    def affinity() -> None:
        wanted = {
            "key": chance.choice(["a", "zone"]),
            "operator": chance.choice(OPERATORS),
            "values": [chance.choice(WORDS)] * chance.randint(0, 3),
        }
        kind, part = chance.choice(
            [
                (
                    "nodeAffinity",
                    {
                        "nodeSelectorTerms": chance.choice(
                            [[], [{}], [{"matchExpressions": [wanted]}], [{"matchFields": [wanted]}] * 300]
                        )
                    },
                ),
                (
                    "podAffinity",
                    [{"topologyKey": chance.choice(["", "zone"]), "labelSelector": {"matchExpressions": [wanted]}}],
                ),
                ("podAntiAffinity", [{"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}]),
            ]
        )
        made["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": part}}

    for _ in range(chance.randint(1, 4)):
        chance.choice(
            [
                lambda: made["metadata"]["annotations"].update({chance.choice(PODS_ANNOTATIONS): chance.choice(WORDS)}),
                lambda: made["metadata"]["labels"].update({chance.choice(LABELS): chance.choice(WORDS)}),
                lambda: container["resources"][chance.choice(["requests", "limits"])].update(
                    {chance.choice(RESOURCES): chance.choice(QUANTITIES)}
                ),
                affinity,
                lambda: made["spec"].update(
                    tolerations=[
                        {"key": f"k{n}", "operator": chance.choice(["Exists", "Newer"])}
                        for n in range(chance.choice([1, 200]))
                    ]
                ),
                lambda: made["spec"].update(
                    topologySpreadConstraints=[
                        {
                            "topologyKey": "zone",
                            "maxSkew": chance.randint(0, 5),
                            "whenUnsatisfiable": chance.choice(["DoNotSchedule", "ScheduleAnyway", "Later"]),
                        }
                    ]
                ),
                lambda: made["spec"].update(
                    volumes=[
                        {
                            "name": "v",
                            chance.choice(["persistentVolumeClaim", "ephemeral", "later", "rbd"]): {
                                "claimName": "gone"
                            },
                        }
                    ]
                ),
                lambda: made["spec"].update(resourceClaims=[{"name": "g", "resourceClaimName": "gone"}]),
                lambda: made["spec"].update(schedulerName=chance.choice(["tonnage", "volcano", ""])),
                lambda: made["spec"].update(
                    schedulingGates=[{"name": chance.choice(["tonnage.dev/placement", "other/gate"])}]
                ),
                lambda: made["spec"].update(priority=chance.choice([-2147483648, 2000001000, None])),
                lambda: made["spec"].update(overhead={"cpu": chance.choice(QUANTITIES)}),
                lambda: made["spec"].update(os={"name": chance.choice(["windows", "linux", "plan9"])}),
                lambda: made["spec"].update(initContainers=[deepcopy(container) | {"restartPolicy": "Always"}]),
                lambda: made["status"].update(phase=chance.choice(["Unknown", "Failed", "Succeeded", "Later"])),
                lambda: made["status"].update(startTime=chance.choice(TIMES), nominatedNodeName=f"{ODD}-home"),
                lambda: made["status"].update(
                    containerStatuses=[
                        {
                            "name": "c",
                            "state": {"waiting": {"reason": None}},
                            "allocatedResources": {"cpu": chance.choice(QUANTITIES)},
                        }
                    ]
                ),
                lambda: made["status"].update(
                    conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": chance.choice(TIMES)}]
                ),
                lambda: made["metadata"].update(
                    deletionTimestamp=chance.choice(TIMES), creationTimestamp=chance.choice(TIMES)
                ),
                lambda: made["metadata"].update(
                    ownerReferences=[
                        {"apiVersion": "later/v9", "kind": "Thing", "name": ODD, "uid": "1", "controller": None}
                    ]
                ),
                lambda: made["spec"].update(
                    laterField=[{"x": None}], containers=None if chance.random() < 0.1 else [container]
                ),
            ]
        )()
    homes = [node(f"{ODD}-home", 4, **{ODD: "yes"})] if home == f"{ODD}-home" else []
    for each in homes:
        each["spec"]["taints"] = [{"key": ODD, "effect": "NoSchedule"}]
    return [*homes, made]


def mutated_other(chance: random.Random) -> list[Object]:
    """An object of another kind, in a namespace of its own, with a field that is not as it is usual."""
    version, kind, namespaced = chance.choice(
        [
            ("v1", "Namespace", False),
            ("v1", "PersistentVolume", False),
            ("v1", "PersistentVolumeClaim", True),
            ("v1", "ResourceQuota", True),
            ("policy/v1", "PodDisruptionBudget", True),
            ("apps/v1", "Deployment", True),
            ("scheduling.k8s.io/v1", "PriorityClass", False),
            ("storage.k8s.io/v1", "CSINode", False),
            ("storage.k8s.io/v1", "StorageClass", False),
            ("batch/v1", "Job", True),
            ("ray.io/v1", "RayCluster", True),
            ("tonnage.dev/v1alpha1", "Gang", True),
            ("tonnage.dev/v1alpha1", "ModelService", True),
            ("tonnage.dev/v1alpha1", "ModelProfile", False),
            ("tonnage.dev/v1beta9", "Gang", True),
            ("tonnage.dev/v1alpha1", "Later", True),
            ("tonnage.dev/v1alpha1", "PowerDomain", False),
            ("scheduling.x-k8s.io/v1alpha1", "PodGroup", True),
            ("kueue.x-k8s.io/v1beta1", "Workload", True),
            ("resource.k8s.io/v1", "ResourceSlice", False),
            ("example.org/v1", "Anything", True),
            ("v1", "ConfigMap", True),
            ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", True),
            ("scheduling.k8s.io/v1alpha1", "Workload", True),
        ]
    )
    value: Any = chance.choice(
        [
            {},
            {"later": 1},
            {"hard": {"requests.nvidia.com/gpu": "half"}},
            {"minMembers": 0},
            {"minAvailable": "150%"},
            {"replicas": None},
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Later"}]}},
            {"scopes": ["Later"]},
            {"accessModes": ["ReadWriteLater"]},
            {"model": "", "slo": {}},
            {"drivers": None},
            {"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "x"}}}]}}},
            {"minMember": -1, "minResources": {"nvidia.com/gpu": "9E"}},
            {"capacity": {"storage": "1n"}},
        ]
    )
    return [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": meta(f"{ODD}-x", ODD if namespaced else ""),
            "spec": value,
            "status": chance.choice([{}, None, {"later": [1]}]),
            "value": 5,
            "provisioner": ODD,
        }
    ]


def mutation(chance: random.Random) -> list[Object]:
    return chance.choice([mutated_node, mutated_pod, mutated_pod, mutated_other])(chance)


def answer(objects: list[Object], verb: str) -> tuple[int, Any]:
    """Exit status, and what the verb says of all objects but the odd ones; or what it raised."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    done = CliRunner().invoke(tonnage, [verb, "-f", "-", "-o", "json"], input=text)
    if done.exit_code or (done.exception is not None and not isinstance(done.exception, SystemExit)):
        return done.exit_code or 1, done.exception if not done.stderr else done.stderr[-400:]
    record = json.loads(done.stdout)
    if verb == "plan":
        return 0, [each for each in record["placements"] if ODD not in str(each)]
    concerned = [(each["topic"], one) for each in record["advice"] for one in each["about"]]
    return 0, sorted(each for each in concerned if ODD not in each[1])


def judged(seed: int, verb: str = "") -> tuple[str, Any]:
    """`same`, `refused`, `raised` or `changed`, with the odd objects and what was said; by default, of either verb."""
    chance = random.Random(seed)  # noqa: S311 - no secrets
    either, odd = chance.choice(["plan", "advise"]), mutation(chance)
    verb = verb or either
    status, said = answer([*good(), *odd], verb)
    if status == 2:
        return "refused", (odd, said)
    if status:
        return "raised", (odd, said)
    return (
        ("same", None) if said == answer(good(), verb)[1] else ("changed", (verb, odd, said, answer(good(), verb)[1]))
    )


if __name__ == "__main__":
    found: Counter[str] = Counter()
    for number in range(int(sys.argv[1])):
        outcome, why = judged(number)
        found[outcome] += 1
        if outcome != "same":
            sys.stdout.write(f"{number} {outcome} {json.dumps(why, default=str)[:2000]}\n")
    sys.stdout.write(f"{dict(found)}\n")
