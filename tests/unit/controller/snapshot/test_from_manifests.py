"""Snapshot from manifests, and contradictions that are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.nodes import eligible_nodes
from cluster.snapshot import PENDING, device_numbers
from cluster.workloads import InstanceType, PodShape, Requirement, Toleration, is_pinned, without_pin
from controller.snapshot.from_manifests import Observed
from placement.engine.packer import Packer
from placement.policies.published import BestFit
from tests.builders.fleet import GIB
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import Object, gang, gpu_type, having, node, observed, pod, profile, service
from tests.builders.mix import of_types

MILLI = "tonnage.dev/gpu-milli"
TYPES = "tonnage.dev/gpu-types"
DEVICES = "tonnage.dev/devices"


def mistakes(folder: Path, *objects: Object) -> list[str]:
    """What is wrong between these objects, without the file."""
    with pytest.raises(ConfigError) as caught:
        observed(folder, *objects)
    return [str(mistake).partition("), ")[2] for mistake in caught.value.mistakes]


def codes(seen: Observed) -> list[str]:
    return [f"{note.reason.code} {note.about}" for note in seen.notes]


def shape_of(folder: Path, *objects: Object) -> PodShape:
    """The shape of the one pod among these objects."""
    (shape,) = observed(folder, *objects).snapshot.pods.shapes
    return shape


def test_a_node_offers_what_is_allocatable_and_has_the_type_of_its_label(tmp_path: Path) -> None:
    nodes = observed(tmp_path, gpu_type(), node("a", gpus=8), node("b", gpus=0, cpu="1500m")).snapshot.nodes

    assert nodes.gpus.tolist() == [8, 0]
    assert nodes.gpu_type.tolist() == [0, -1]
    assert nodes.cpu_milli.tolist() == [96_000, 1_500]
    assert nodes.memory_bytes.tolist() == [512 * GIB, 512 * GIB]


@pytest.mark.parametrize("part", ["limits", "requests"])
def test_a_fraction_of_a_device_is_refused_as_the_api_server_does(tmp_path: Path, part: str) -> None:
    halves = having(pod("p"), "spec.containers", [{"name": "c", "resources": {part: {"nvidia.com/gpu": "1.5"}}}])

    (mistake,) = mistakes(tmp_path, gpu_type(), node(), halves)

    assert "is 1.5; whole devices only" in mistake
    assert MILLI in mistake


def test_a_service_without_a_template_has_the_mix_that_was_planned_last(tmp_path: Path) -> None:
    planned = having(service(), "status", {"mix": {"a100": 2}})
    seen = observed(tmp_path, gpu_type(), profile(), planned, node(gpus=4)).snapshot

    assert seen.services[0].replicas == of_types({"a100": 2})
    assert seen.services[0].is_planned_only


def test_a_cordoned_and_a_not_ready_node_take_nothing_new(tmp_path: Path) -> None:
    sick = having(node("c", gpus=0), "status.conditions", [{"type": "Ready", "status": "Unknown"}])
    well = having(node("d", gpus=0), "status.conditions", [{"type": "Ready", "status": "True"}])

    seen = observed(tmp_path, node("a", gpus=0), node("b", gpus=0, unschedulable=True), sick, well)

    assert seen.snapshot.nodes.schedulable.tolist() == [True, False, False, True]


def test_gpus_of_unknown_type_are_noted(tmp_path: Path) -> None:
    seen = observed(tmp_path, gpu_type(), node("a", product="K80"))

    assert codes(seen) == ["GpuTypeUnknown Node/a"]
    assert seen.snapshot.nodes.gpu_type.tolist() == [-1]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def templated(**spec: object) -> Object:
    container = {"name": "server", "image": "example.com/none"}
    return service(template={"spec": {"containers": [container], **spec}})


def required(*expressions: Object) -> Object:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}}


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([pod()], "Pod/default/p1: there is no Node for 1 pod(s); add the nodes of the fleet"),
        (
            [gpu_type(), profile(gpu_type="a10")],
            "ModelProfile/m-a100, spec.gpuType: there is no GPUType 'a10'; did you mean a100?",
        ),
        (
            [gpu_type(), service(gpuTypes=["h100"])],
            "ModelService/default/chat, spec.gpuTypes[0]: there is no GPUType 'h100'; did you mean a100?",
        ),
        (
            [gpu_type(), node(), pod(annotations={TYPES: "a100, b200"})],
            f"Pod/default/p1, metadata.annotations['{TYPES}']: there is no GPUType 'b200'; known: a100",
        ),
        (
            [gpu_type(), profile(), profile("again")],
            "ModelProfile/m-a100, spec.throughput[0].slo: m on a100 at this SLO is already in ModelProfile/again",
        ),
        (
            [gpu_type(), gpu_type("b", product="A100")],
            "GPUType/b, spec.nodeLabel.values[0]: nvidia.com/gpu.product=A100 already means a100",
        ),
        (
            [node(), pod(labels={"tonnage.dev/gang": "trian"}), gang()],
            "metadata.labels['tonnage.dev/gang']: there is no Gang 'trian' in default; did you mean train?",
        ),
        (
            [node(), pod(labels={"tonnage.dev/service": "chat"})],
            "there is no ModelService 'chat' in default; none exist",
        ),
        ([node("n1"), pod(on="n2")], "Pod/default/p1, spec.nodeName: there is no Node 'n2'; known: n1"),
        ([node(), pod(annotations={MILLI: "0"})], "is '0'; write thousandths of one GPU, 1 to 1000"),
        ([node(), pod(annotations={MILLI: "1" * 5000})], f"is {'1' * 40!r}; write thousandths of one GPU"),
        ([node(), pod(annotations={MILLI: "30%"})], "is '30%'; write thousandths of one GPU"),
        ([node(), pod(gpus=1, annotations={MILLI: "300"})], "requests a fraction while the containers request nvidia"),
        ([node(gpus=2), pod(gpus=1, on="n1", annotations={DEVICES: "2"})], "names device 2; its node has the devices"),
        ([node(gpus=2), pod(gpus=1, on="n1", annotations={DEVICES: "0,1"})], "names 2 devices, the pod asks for 1"),
        ([node(gpus=2), pod(gpus=2, on="n1", annotations={DEVICES: "0,0"})], "is '0,0'; write different device"),
        ([node(gpus=2), pod(gpus=1, on="n1", annotations={DEVICES: "1" * 5000})], "1'; write different device"),
        ([node(), pod(annotations={"tonnage.dev/movable": "yes"})], 'is \'yes\'; write "true" or "false"'),
        (
            [gpu_type(), profile(), having(service(), "spec.demand.inputTokens", [100, 1001])],
            "histogram[1][0]: has requests of input ≤ 1001, output ≤ 10 tokens and 1 more buckets, beyond every",
        ),
        (
            [gpu_type(), templated(nodeSelector=["pool"])],
            "spec.template.spec: Expected `object`, got `array` - at `$.nodeSelector`; write it as in a Pod",
        ),
        (
            [gpu_type(), templated(affinity=required({"key": "zone", "operator": "Is", "values": ["a"]}))],
            "ModelService/default/chat, spec.template.spec.affinity: uses the operator 'Is'; known: In, NotIn,",
        ),
    ],
)
def test_what_contradicts_something_else_stops_the_plan(tmp_path: Path, objects: list[Object], said: str) -> None:
    found = mistakes(tmp_path, *objects)

    assert any(said in each for each in found), found


def test_all_contradictions_are_named_at_once(tmp_path: Path) -> None:
    found = mistakes(tmp_path, profile(gpu_type="x"), service(gpuTypes=["y"]), pod(annotations={TYPES: "z"}))

    assert len(found) == 4  # three unknown types, and a pod without a fleet


def test_a_share_of_zero_may_lie_beyond_the_profile(tmp_path: Path) -> None:
    demand = service()["spec"]["demand"] | {"inputTokens": [100, 9999], "histogram": [[0.5, 0.5], [0, 0]]}

    assert observed(tmp_path, gpu_type(), profile(), service(demand=demand)).snapshot.services


def test_a_template_keeps_the_instances_of_its_service_to_the_nodes_that_it_names(tmp_path: Path) -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    toleration = {"key": "gpu", "operator": "Exists"}
    spec = {"nodeSelector": {"pool": "fast"}, "affinity": required(zone), "tolerations": [toleration]}

    (seen,) = observed(tmp_path, gpu_type(), templated(**spec)).snapshot.services

    shape = seen.instance_shape(InstanceType("a100"))
    assert shape.node_terms == ((Requirement("pool", "In", ("fast",)), Requirement("zone", "In", ("a", "b"))),)
    assert shape.tolerations == (Toleration("gpu", "Exists"),)


def test_a_template_may_name_its_nodes_as_a_daemon_set_does(tmp_path: Path) -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [by_name]}}}

    snapshot = observed(tmp_path, gpu_type(), node("n1"), node("n2"), templated(affinity=affinity)).snapshot

    shape = snapshot.services[0].instance_shape(InstanceType("a100"))
    assert eligible_nodes(shape, snapshot.nodes, snapshot.gpu_type_names).tolist() == [True, False]


def by_name(name: str) -> Object:
    """The affinity by which a DaemonSet pins a pod to its node."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": fields}]}}}


FLEET = tuple(node(name, gpus=0) for name in ("n1", "n2", "n3"))


@pytest.mark.parametrize(
    "pin", [lambda name: {"affinity": by_name(name)}, lambda name: {"nodeSelector": {"kubernetes.io/hostname": name}}]
)
def test_running_pods_that_are_pinned_each_to_its_node_share_one_shape(
    tmp_path: Path, pin: Callable[[str], Object]
) -> None:
    daemons = [pod(f"daemon-{name}", gpus=0, on=name, **pin(name)) for name in ("n1", "n2", "n3")]

    seen = observed(tmp_path, gpu_type(), *FLEET, *daemons).snapshot

    (shape,) = seen.pods.shapes
    assert not eligible_nodes(shape, seen.nodes, seen.gpu_type_names).any()  # nowhere but where each of them runs
    assert all("metadata.name" not in labels for labels in seen.nodes.labels)


def test_a_pending_pod_of_a_daemon_set_goes_to_its_own_node(tmp_path: Path) -> None:
    seen = observed(tmp_path, gpu_type(), *FLEET, pod("late", gpus=0, affinity=by_name("n2"))).snapshot

    (shape,) = seen.pods.shapes
    assert eligible_nodes(shape, seen.nodes, seen.gpu_type_names).tolist() == [False, True, False]


def test_a_pinned_pod_keeps_what_else_its_node_must_have(tmp_path: Path) -> None:
    daemon = pod("daemon", gpus=0, on="n1", affinity=by_name("n1"), nodeSelector={"pool": "fast"})

    terms = shape_of(tmp_path, gpu_type(), *FLEET, daemon).node_terms

    assert is_pinned(terms)
    assert without_pin(terms) == ((Requirement("pool", "In", ("fast",)),),)


def test_a_running_pod_that_several_nodes_suit_is_not_pinned(tmp_path: Path) -> None:
    either = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}

    terms = shape_of(tmp_path, gpu_type(), *FLEET, pod("free", gpus=0, on="n1", affinity=required(either))).node_terms

    assert terms == ((Requirement("kubernetes.io/hostname", "In", ("n1", "n2")),),)


def test_a_service_without_a_profile_or_demand_is_left_to_the_plan(tmp_path: Path) -> None:
    unknown = service("unknown", demand=None)

    services = observed(tmp_path, gpu_type(), service(model="other"), unknown).snapshot.services

    assert [each.name for each in services] == ["default/chat", "default/unknown"]
    assert services[1].demand is None


def test_a_type_that_a_service_may_use_without_a_profile_is_noted(tmp_path: Path) -> None:
    seen = observed(tmp_path, gpu_type(), gpu_type("l4"), profile(), service(gpuTypes=["a100", "l4"]))

    assert codes(seen) == ["GpuTypeWithoutProfile ModelService/default/chat"]


def test_a_gpu_type_may_have_profiles_of_several_widths_at_one_slo(tmp_path: Path) -> None:
    seen = observed(tmp_path, gpu_type(), profile(), profile("m-a100-x4", gpusPerInstance=4))

    assert sorted(each.gpus_per_instance for each in seen.snapshot.profiles) == [1, 4]


def test_a_histogram_is_scaled_to_add_up_to_one(tmp_path: Path) -> None:
    rounded = having(service(), "spec.demand.histogram", [[0.3333, 0.3333], [0.3333, 0]])

    demand = observed(tmp_path, rounded).snapshot.services[0].demand

    assert demand is not None
    assert demand.share.sum() == pytest.approx(1.0, abs=1e-12)


def test_instances_that_run_count_as_replicas(tmp_path: Path) -> None:
    mine = {"labels": {"tonnage.dev/service": "chat"}, "annotations": {TYPES: "a100"}}
    seen = observed(tmp_path, gpu_type(), node(), service(), pod("chat-a100-0", 1, on="n1", **mine)).snapshot  # type: ignore[arg-type]

    assert seen.services[0].replicas == of_types({"a100": 1})
    assert seen.pods.owner == ("default/chat",)
    assert seen.pods.movable.tolist() == [True]


def test_a_pod_asks_the_most_that_it_ever_needs_at_once(tmp_path: Path) -> None:
    def asking(cpu: str, **more: object) -> Object:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    shape = shape_of(
        tmp_path,
        node(),
        pod(
            containers=[asking("1"), asking("500m")],
            initContainers=[asking("2"), asking("250m", restartPolicy="Always"), asking("1500m")],
            overhead={"cpu": "100m"},
        ),
    )

    # First init alone: 2000. Second init beside the sidecar: 1750. Running: 1500 + 250 = 1750. Overhead: 100.
    assert shape.cpu_milli == 2100


def test_a_limit_without_a_request_is_a_request(tmp_path: Path) -> None:
    limited = [{"resources": {"limits": {"cpu": "3", "memory": "2Gi"}, "requests": {"memory": "1Gi"}}}]

    shape = shape_of(tmp_path, node(), pod(containers=limited))

    assert (shape.cpu_milli, shape.memory_bytes) == (3000, GIB)


def test_requests_for_the_whole_pod_stand_instead_of_the_sum(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, node(), pod(gpus=1, resources={"requests": {"cpu": "4"}}))

    assert (shape.cpu_milli, shape.memory_bytes, shape.gpus) == (4000, GIB, 1)


def test_a_limit_for_the_whole_pod_is_a_request_only_where_no_container_has_one(tmp_path: Path) -> None:
    """Containers ask for 1 core, and for no memory."""
    alone = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    limits = {"limits": {"cpu": "4", "memory": "2Gi"}}

    shape = shape_of(tmp_path, node(), pod(containers=alone, resources=limits))

    assert (shape.cpu_milli, shape.memory_bytes) == (1000, 2 * GIB)


def test_a_fraction_is_asked_by_annotation(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, gpu_type(), node(), pod(annotations={MILLI: "300", TYPES: "a100"}))

    assert (shape.gpus, shape.gpu_milli, shape.gpu_types) == (1, 300, ("a100",))


def test_a_selector_on_the_product_label_names_gpu_types(tmp_path: Path) -> None:
    selector = {"nvidia.com/gpu.product": "A100", "zone": "z1"}

    shape = shape_of(tmp_path, gpu_type(), gpu_type("l4"), node(), pod(gpus=1, nodeSelector=selector))

    assert shape.gpu_types == ("a100",)
    assert shape.node_terms == ((Requirement("zone", "In", ("z1",)),),)


def test_a_selector_on_one_of_two_products_of_a_type_stays_a_selector(tmp_path: Path) -> None:
    both = gpu_type(nodeLabel={"values": ["A100", "A100-PCIE"]})

    shape = shape_of(tmp_path, both, node(), pod(gpus=1, nodeSelector={"nvidia.com/gpu.product": "A100"}))

    assert shape.gpu_types == ()
    assert len(shape.node_terms) == 1


def test_alternatives_of_affinity_each_hold_together_with_the_selector(tmp_path: Path) -> None:
    terms = [
        {"matchExpressions": [{"key": "rack", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}

    seen = observed(tmp_path, node(), pod(affinity=affinity, nodeSelector={"zone": "z1"})).snapshot

    zone = Requirement("zone", "In", ("z1",))
    assert seen.pods.shapes[0].node_terms == (
        (zone, Requirement("rack", "Exists")),
        (zone, Requirement("metadata.name", "In", ("n1",))),
    )
    assert seen.nodes.labels[0]["metadata.name"] == "n1"


def test_names_are_no_labels_where_nothing_matches_them(tmp_path: Path) -> None:
    assert observed(tmp_path, node()).snapshot.nodes.labels == ({"nvidia.com/gpu.product": "A100"},)


def test_devices_of_another_maker_are_out(tmp_path: Path) -> None:
    amd = gpu_type("mi300x", resourceName="amd.com/gpu")

    assert shape_of(tmp_path, gpu_type(), amd, node(), pod(gpus=1)).gpu_types == ("a100",)


@pytest.mark.parametrize("other", ["habana.ai/gaudi", "amd.com/gpu", "nvidia.com/mig-1g.10gb"])
@pytest.mark.parametrize("types", [(), (gpu_type(),)])
def test_a_pod_fits_only_nodes_that_offer_the_resource_it_requests(
    tmp_path: Path, types: tuple[Object, ...], other: str
) -> None:
    """Also where no GPUType says of which kind the devices are, and where a node offers both."""
    its_own = having(node("b", gpus=0), "status.allocatable", {"cpu": "8", "memory": "64Gi", other: "8"})
    both = having(node("c"), "status.allocatable", {"cpu": "8", "memory": "64Gi", other: "8", "nvidia.com/gpu": "8"})
    asks = having(pod("o"), "spec.containers", [{"name": "c", "resources": {"limits": {other: "2"}}}])
    seen = observed(tmp_path, *types, node("a"), its_own, both, pod("n", 2), asks).snapshot

    packer = Packer(seen, BestFit())
    allowed = {
        name: packer.feasible(seen.pods.shapes[shape])
        for name, shape in zip(seen.pods.names, seen.pods.shape, strict=True)
    }
    assert {name: fits.tolist() for name, fits in allowed.items()} == {
        "default/n": [True, False, True],
        "default/o": [False, True, True],
    }


def test_pods_that_have_ended_hold_nothing(tmp_path: Path) -> None:
    ended = [pod(f"p-{phase}", 8, on="n1", phase=phase) for phase in ("Succeeded", "Failed")]

    assert len(observed(tmp_path, node(), *ended).snapshot.pods) == 0


def test_running_pods_hold_the_devices_they_name_and_silent_ones_the_fullest_that_fit(tmp_path: Path) -> None:
    seen = observed(
        tmp_path,
        node(gpus=4),
        pod("a-half", on="n1", annotations={MILLI: "500"}),
        pod("b-two", 2, on="n1"),
        pod("c-third", on="n1", annotations={MILLI: "300", DEVICES: "1"}),
    )

    pods = seen.snapshot.pods
    held = {name: device_numbers(int(mask)) for name, mask in zip(pods.names, pods.devices, strict=True)}
    # c says 1. b, the largest of the silent, finds whole devices at 0, 2, 3 and takes the first two. a joins c, where
    # 700 are left, rather than break the last whole device.
    assert held == {"default/a-half": (1,), "default/b-two": (0, 2), "default/c-third": (1,)}
    assert codes(seen)[1:] == ["DevicesAssumed Pod/default/a-half and 1 more"]


def test_an_instance_that_names_no_type_is_noted(tmp_path: Path) -> None:
    seen = observed(tmp_path, gpu_type(), node(), service(), pod("chat-1", 1, labels={"tonnage.dev/service": "chat"}))

    assert codes(seen) == ["InstanceTypeUnknown Pod/default/chat-1"]


def test_an_overcommitted_node_is_noted_and_gets_nothing_more(tmp_path: Path) -> None:
    seen = observed(tmp_path, node(gpus=0, cpu="1"), pod("a", on="n1"), pod("b", on="n1"))

    (note,) = seen.notes
    assert (note.about, note.reason.figures) == ("Node/n1", {"cpu_milli": 1000})
    assert seen.snapshot.free().cpu_milli.tolist() == [-1000]


def test_a_gang_has_the_priority_of_its_foremost_member_unless_it_says(tmp_path: Path) -> None:
    members = [
        pod("a", labels={"tonnage.dev/gang": "train"}, priority=5),
        pod("b", labels={"tonnage.dev/gang": "train"}, priority=9),
        pod("c", labels={"tonnage.dev/gang": "loud"}, priority=9),
    ]

    snapshot = observed(tmp_path, node(), gang(), gang("loud", 1, priority=2), *members).snapshot

    assert {each.name: each.priority for each in snapshot.gangs} == {"default/train": 9, "default/loud": 2}
    assert snapshot.pods.gang.tolist() == [1, 1, 0]


def test_a_gang_that_misses_members_is_noted(tmp_path: Path) -> None:
    seen = observed(tmp_path, node(gpus=0), gang(min_members=2), pod(labels={"tonnage.dev/gang": "train"}))

    assert codes(seen) == ["GangIncomplete Gang/default/train"]


def test_wishes_that_are_not_weighed_are_noted_for_pending_pods(tmp_path: Path) -> None:
    wish = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]

    seen = observed(
        tmp_path,
        node(gpus=0),
        pod("a", 0, affinity=wish),
        pod("b", 0, topologySpreadConstraints=spread),
        pod("d", 0, priorityClassName="gold"),
        pod("e", 0, affinity=wish, on="n1"),
    )

    assert sorted(codes(seen)) == ["PreferencesNotHeeded Pod/default/a and 1 more", "PriorityUnresolved Pod/default/d"]


@pytest.mark.parametrize(
    ("code", "more", "said"),
    [
        ("SchedulingGated", {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, "kueue.x-k8s.io/admission"),
        (
            "NotUnderstood",
            {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]},
            "spec.resourceClaims",
        ),
        (
            "NotUnderstood",
            {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "Sometimes"}]},
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        ),
    ],
)
def test_a_hard_demand_that_no_rule_knows_is_said_and_the_pod_not_placed(
    tmp_path: Path, code: str, more: dict[str, Any], said: str
) -> None:
    seen = observed(tmp_path, node(gpus=0), pod("a", 0, **more), pod("b", 0)).snapshot

    assert list(seen.pods.names) == ["default/b"]
    assert [(each.pod, each.code) for each in seen.left_out] == [("default/a", code)]
    assert said in seen.left_out[0].words


@pytest.mark.parametrize(("annotation", "value"), [("gpu-fraction", "half"), ("gpu-memory", "2000")])
def test_a_share_for_another_scheduler_that_cannot_be_read_is_no_share_here(
    tmp_path: Path, annotation: str, value: str
) -> None:
    waits, runs = (pod(name, 0, on=on, annotations={annotation: value}) for name, on in (("a", ""), ("r", "n1")))

    seen = observed(tmp_path, node(gpus=0), waits, runs)

    assert [(each.pod, each.code) for each in seen.snapshot.left_out] == [("default/a", "NotUnderstood")]
    assert codes(seen) == ["ShareNotHeeded Pod/default/r"]


def test_files_say_the_same_in_any_order(tmp_path: Path) -> None:
    objects = [gpu_type(), node("a"), node("b"), pod("p"), pod("q", 1, on="b"), gang(), service(), profile()]

    forth, back = observed(tmp_path, *objects).snapshot, observed(tmp_path, *reversed(objects)).snapshot

    assert list(forth.pods.names) == list(back.pods.names) == ["default/p", "default/q"]
    assert forth.pods.node.tolist() == back.pods.node.tolist() == [PENDING, 1]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (",".join(f"t{n}" for n in range(50_000)), ["names more than 64 types; name fewer, or leave it out for any"]),
        (
            ",".join("x" * 100 + str(n) for n in range(60)),
            [f"there is no GPUType {'x' * 40!r}; known: a100"] * 3,
        ),
    ],
)
def test_an_annotation_of_many_types_costs_a_few_errors(tmp_path: Path, written: str, said: list[str]) -> None:
    found = mistakes(tmp_path, gpu_type(), node(), pod(annotations={TYPES: written}))

    assert [each.partition(": ")[2] for each in found] == said


def test_a_running_pod_holds_what_its_containers_request_whatever_its_annotation_says() -> None:
    whole = pod("p1", gpus=8, on="n1", annotations={MILLI: "1"})
    cluster = LiveCluster([gpu_type(), node(), whole])

    (shape,) = cluster.observer.observe().pods.shapes

    assert (shape.gpus, shape.gpu_milli) == (8, 1000)


def test_a_running_pod_with_unreadable_requests_holds_every_device_of_its_node() -> None:
    huge = having(pod("p1", gpus=0, on="n1"), "spec.containers.0.resources.requests", {"cpu": "some"})
    cluster = LiveCluster([gpu_type(), node(gpus=4), huge])

    assert device_numbers(int(cluster.observer.observe().pods.devices[0])) == (0, 1, 2, 3)


def test_a_gang_raises_no_pod_above_its_own_priority(tmp_path: Path) -> None:
    member = pod("p1", labels={"tonnage.dev/gang": "train"}, priority=5)

    for own, counted in ((None, 5), (3, 3), (2**31 - 1, 5)):
        spec = {} if own is None else {"priority": own}
        (seen,) = observed(tmp_path, node(gpus=8), gang(min_members=1, **spec), member).snapshot.gangs
        assert seen.priority == counted


def of_cluster(obj: Object) -> Object:
    """The object as an API server prints it."""
    return having(obj, "metadata.uid", "1")


def test_an_odd_object_of_a_cluster_costs_itself_alone(tmp_path: Path) -> None:
    """In a file that somebody writes, the same is a mistake that stops the plan, so that it is corrected."""
    odd = having(pod("odd", 0), "metadata.annotations", {"tonnage.dev/gpu-milli": "half"})
    terms = [{"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    later = having(pod("later", 1), "spec.affinity", {"nodeAffinity": required})
    lost = having(pod("lost", 1), "metadata.labels", {"tonnage.dev/gang": "deleted"})

    seen = observed(tmp_path, gpu_type(), node(), pod("well", 1), *map(of_cluster, (odd, later, lost)))

    assert list(seen.snapshot.pods.names) == ["default/well"]
    assert sorted((each.pod, each.code) for each in seen.snapshot.left_out) == [
        ("default/later", "NotUnderstood"),
        ("default/lost", "GangMissing"),
        ("default/odd", "NotUnderstood"),
    ]
    assert {note.reason.code for note in seen.notes} == {"LeftOut"}
    assert "is 'half'" in mistakes(tmp_path, gpu_type(), node(), odd)[0]


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (
            having(node("odd", gpus=80), "metadata.labels", {"nvidia.com/gpu.product": "A100-SHARED"}),
            "status.allocatable['nvidia.com/gpu'] is 80; write a GPUType for them",
        ),
        (having(node("odd"), "status", {}), "status.allocatable is missing; write the allocatable cpu"),
    ],
)
def test_a_node_that_cannot_be_used_takes_no_pods_and_the_others_are_planned(
    tmp_path: Path, odd: Object, said: str
) -> None:
    seen = observed(tmp_path, gpu_type(), node("well"), pod("p", 1), odd)

    assert seen.snapshot.nodes.schedulable.tolist() == [False, True]
    (left_out,) = (note for note in seen.notes if note.reason.code == "LeftOut")
    assert left_out.about == "Node/odd"
    assert said in left_out.reason.words


def test_a_device_that_died_under_its_pod_stops_no_plan(tmp_path: Path) -> None:
    runs = having(pod("runs", 2, on="ill", annotations={DEVICES: "6,7"}), "status.phase", "Running")

    seen = observed(tmp_path, gpu_type(), node("ill", gpus=7), runs, pod("p", 7))

    assert list(seen.snapshot.pods.names) == ["default/p", "default/runs"]
    assert "names device 7" in seen.notes[-1].reason.words + seen.notes[0].reason.words


def test_a_pod_that_ran_on_a_node_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    gone = having(pod("r", 8, on="gone"), "status", {"phase": "Running"})

    seen = observed(tmp_path, gpu_type(), node(), gone)

    assert (len(seen.snapshot.pods), [note.reason.code for note in seen.notes]) == (0, ["LeftOut"])


def test_a_request_beyond_all_numbers_fits_nowhere_and_stops_no_plan(tmp_path: Path) -> None:
    """The API server admits it."""
    absurd = having(pod("absurd"), "spec.containers.0.resources.requests", {"memory": "50E", "cpu": "9" * 30 + "Ei"})

    (shape,) = observed(tmp_path, node(), absurd).snapshot.pods.shapes

    assert (shape.memory_bytes, shape.cpu_milli) == (2**50, 2**50)


def test_a_running_pod_is_as_old_as_its_status_says(tmp_path: Path) -> None:
    began = having(pod("began", on="a"), "status.startTime", "2026-03-01T12:00:00Z")
    waits = having(pod("waits"), "status.startTime", "2026-03-01T12:00:00Z")

    pods = observed(tmp_path, gpu_type(), node("a"), began, pod("unknown", on="a"), waits).snapshot.pods

    assert pods.started_s is not None
    assert pods.started_s.tolist() == [1_772_366_400, 0, 0]
