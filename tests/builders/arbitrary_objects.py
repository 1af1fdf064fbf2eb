"""Arbitrary small clusters as objects, for properties: all fields by which nodes and pods refer to each other."""

from typing import Any

from hypothesis import strategies as st

from tests.builders.manifests import gang, gpu_type, node, pod, profile, service

Object = dict[str, Any]
RACK = "topology.tonnage.dev/rack"
QUANTITIES = st.sampled_from(("1", "500m", "2.5", 2, 1.5, "1e3", "64"))
MEMORY = st.sampled_from(("1Gi", "512Mi", 1073741824, "1G"))


@st.composite
def nodes(draw: st.DrawFn, number: int) -> Object:
    made = node(f"n{number}", draw(st.sampled_from((0, 1, 4, 8))), draw(st.sampled_from(("A100", "L4", "K80"))))
    made["metadata"]["labels"][RACK] = draw(st.sampled_from("xy"))
    made["status"]["allocatable"]["cpu"] = draw(QUANTITIES)
    if draw(st.booleans()):
        made["status"]["capacity"] = {"memory": "640Gi", "pods": "110"}
        made["status"]["conditions"] = [{"type": "Ready", "status": draw(st.sampled_from(("True", "Unknown")))}]
    if draw(st.booleans()):
        made["spec"] = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "unschedulable": True}
    return made


@st.composite
def pods(draw: st.DrawFn, number: int, names: list[str]) -> Object:
    """names: of the nodes; whatever is drawn is right, so that manifests take it."""
    spec: Object = {"priority": draw(st.sampled_from((0, 10)))} if draw(st.booleans()) else {}
    annotations, labels = {}, {}
    gpus = draw(st.sampled_from((0, 1, 2)))
    if not gpus and draw(st.booleans()):
        annotations["tonnage.dev/gpu-milli"] = draw(st.sampled_from(("1", "300", "1000")))
    if draw(st.booleans()):
        annotations["tonnage.dev/gpu-types"] = draw(st.sampled_from(("a100", "l4", "a100, l4")))
    if draw(st.booleans()):
        annotations["tonnage.dev/movable"] = draw(st.sampled_from(("true", "false")))
    if draw(st.booleans()):
        labels[draw(st.sampled_from(("tonnage.dev/gang", "other")))] = "train"
    if draw(st.booleans()):
        labels["tonnage.dev/service"] = "chat"
    if draw(st.booleans()):
        spec["nodeSelector"] = {
            draw(st.sampled_from((RACK, "nvidia.com/gpu.product"))): draw(st.sampled_from(("x", "L4")))
        }
    if draw(st.booleans()):
        spec["tolerations"] = [draw(st.sampled_from(({"operator": "Exists"}, {"key": "k", "value": "v"})))]
    if draw(st.booleans()):
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": draw(_selectors(names))}}
    phase = draw(st.sampled_from(("Pending", "Running", "Succeeded")))
    made = pod(
        f"p{number}",
        gpus,
        on=draw(st.sampled_from(("", *names))),
        phase=phase,
        labels=labels,
        annotations=annotations,
        **spec,
    )
    _fill_containers(draw, made)
    # In files a pod stands for one that somebody makes anew; in a cluster somebody must own it.
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    if draw(st.booleans()):
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


@st.composite
def _selectors(draw: st.DrawFn, names: list[str]) -> Object:
    expression = {"key": RACK, "operator": draw(st.sampled_from(("In", "NotIn"))), "values": ["x"]}
    by_name = {"key": "metadata.name", "operator": "In", "values": [draw(st.sampled_from(names))]}
    return {
        "nodeSelectorTerms": [draw(st.sampled_from(({"matchExpressions": [expression]}, {"matchFields": [by_name]})))]
    }


def _fill_containers(draw: st.DrawFn, made: Object) -> None:
    requests = made["spec"]["containers"][0]["resources"]["requests"]
    requests |= {"cpu": draw(QUANTITIES), "memory": draw(MEMORY)}
    if draw(st.booleans()):
        made["spec"]["initContainers"] = [
            {"name": "i", "resources": {"requests": {"cpu": draw(QUANTITIES)}}, "restartPolicy": "Always"},
            {"name": "j", "resources": {"limits": {"memory": draw(MEMORY)}}},
        ]
    if draw(st.booleans()):
        made["spec"]["overhead"] = {"cpu": "250m"}


@st.composite
def clusters(draw: st.DrawFn) -> list[Object]:
    """Objects that contradict each other nowhere."""
    names = [f"n{n}" for n in range(draw(st.integers(1, 4)))]
    types = [gpu_type("a100"), gpu_type("l4", price=draw(st.sampled_from((0.5, 1.0))))]
    demand = draw(st.sampled_from((service(), service(priority=7), service(gpuTypes=["a100"]))))
    if draw(st.booleans()):
        demand["status"] = {"replicas": {"a100": 2}}
    return [
        *types,
        profile(),
        demand,
        gang(priority=draw(st.sampled_from((None, 3)))) if draw(st.booleans()) else gang(min_members=1),
        *(draw(nodes(n)) for n in range(len(names))),
        *(draw(pods(n, names)) for n in range(draw(st.integers(0, 8)))),
    ]
