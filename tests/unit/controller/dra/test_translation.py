"""ResourceSlices and ResourceClaims as planning sees them: GPUs of nodes, requests of pods, allocated devices."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cluster.actions import Bind
from cluster.errors import ActionError
from controller.api.structs import GeneratedClaim, Node, Pod, PodStatus
from controller.dra.objects import MAX_RESERVATIONS, ResourceClaim
from controller.dra.requests import FITS_LABEL, LONGEST_SELECTORS, MOST_KNOWN, MOST_SELECTORS
from controller.dra.translation import DEVICE_TAINT, NODE_LABEL, ClaimTranslation
from controller.kube.cluster_view import SeenPod
from controller.kube.sender import Stamp
from tests.builders.dra import DRIVER, book, claim, device, devices, node, pod, request, see, slice_on

STAMP = Stamp(5, 1_772_366_400.0)
STAMPED = {"tonnage.dev/epoch": "5", "tonnage.dev/placed-at": "2026-03-01T12:00:00Z"}


def node_of(known: ClaimTranslation, name: str = "a") -> Node:
    found = known.settle().nodes[name]
    assert found is not None
    return found


def pod_of(known: ClaimTranslation, name: str) -> Pod:
    found = known.settle().pods[f"ns/{name}"]
    assert found is not None
    return found


def gpus(found: Pod) -> int:
    return sum(int(c.resources.requests.get("nvidia.com/gpu", 0)) for c in found.spec.containers)


def test_a_node_offers_the_devices_of_its_slices() -> None:
    found = node_of(book(node("a"), slice_on("a", devices(8))))

    assert found.status.allocatable["nvidia.com/gpu"] == "8"
    assert DEVICE_TAINT in found.spec.taints
    assert not found.spec.unschedulable


def test_only_the_highest_generation_of_a_pool_counts() -> None:
    old, new = slice_on("a", devices(8), name="old"), slice_on("a", devices(4), name="new", generation=2)

    assert node_of(book(node("a"), old, new)).status.allocatable["nvidia.com/gpu"] == "4"


def test_nothing_new_starts_on_a_node_whose_pool_is_incomplete_until_it_is_whole() -> None:
    known = book(node("a"), slice_on("a", devices(4), of=2))
    assert node_of(known).spec.unschedulable
    assert "incomplete" in str(known.mistakes[0])

    see(known, slice_on("a", [device("gpu-9")], name="second", of=2))

    assert not node_of(known).spec.unschedulable
    assert known.mistakes == ()


def test_devices_of_a_plugin_and_of_slices_on_one_node_are_a_mistake() -> None:
    known = book(node("a", **{"nvidia.com/gpu": "8"}), slice_on("a", devices(8)))

    assert node_of(known).spec.unschedulable
    assert "device plugin" in str(known.mistakes[0])


@pytest.mark.parametrize(
    ("odd", "word"),
    [
        ({"taints": [{"key": "driver/broken", "effect": "NoExecute"}]}, "tainted"),
        ({"bindingConditions": ["ready"]}, "binding conditions"),
        ({"attributes": {"type": {"string": "mig"}}}, "mig"),
    ],
)
def test_devices_that_are_not_supported_are_there_and_given_to_nobody(odd: dict[str, object], word: str) -> None:
    known = book(node("a"), slice_on("a", [device("gpu-0"), device("gpu-1", **odd)]))

    settled = known.settle()
    holder = settled.pods["resource.tonnage.dev/withheld:a"]

    assert holder is not None
    assert holder.metadata.annotations.devices == "1"
    assert holder.spec.node_name == "a"
    assert any(word in str(mistake) for mistake in known.mistakes)


def test_a_pod_asks_for_what_its_claims_ask_and_keeps_to_nodes_that_have_it() -> None:
    wants = claim("c", request(2, "gpus", f"device.attributes['{DRIVER}'].productName == 'H100'"))
    known = book(
        node("a"), slice_on("a", devices(8)), node("b"), slice_on("b", devices(8, product="L4")), wants, pod("p", "c")
    )

    settled = known.settle()
    asks, a, b = settled.pods["ns/p"], settled.nodes["a"], settled.nodes["b"]

    assert asks is not None
    assert a is not None
    assert b is not None
    assert gpus(asks) == 2
    ((label, value),) = asks.spec.node_selector.items()
    assert label.startswith(FITS_LABEL)
    assert a.metadata.labels[label] == value
    assert label not in b.metadata.labels


def test_several_requests_and_several_claims_add_up() -> None:
    known = book(
        node("a"),
        slice_on("a", devices(8)),
        claim("c", request(2), request(1, "spare")),
        claim("d", request(1)),
        pod("p", "c", "d"),
    )

    assert gpus(pod_of(known, "p")) == 4


def test_all_devices_are_as_many_as_most_fitting_nodes_have() -> None:
    wants = claim("c", request(1, "gpus", allocationMode="All"))
    nodes = [
        each for name, count in (("a", 8), ("b", 8), ("d", 4)) for each in (node(name), slice_on(name, devices(count)))
    ]
    known = book(*nodes, wants, pod("p", "c"))

    settled = known.settle()
    asks = settled.pods["ns/p"]
    assert asks is not None
    ((label, value),) = asks.spec.node_selector.items()

    assert gpus(asks) == 8
    has = {name: n.metadata.labels[label] for name, n in settled.nodes.items() if n is not None}
    assert (value, has) == ("8", {"a": "8", "b": "8", "d": "4"})


def test_devices_must_agree_in_a_shared_attribute() -> None:
    root = "resource.kubernetes.io/pcieRoot"
    apart = [device(f"gpu-{n}", attributes={root: {"string": f"pci{n}"}}) for n in range(2)]
    near = [device(f"gpu-{n}", attributes={root: {"string": "pci0"}}) for n in range(2)]
    wants = claim("c", request(2), constraints=[{"matchAttribute": root}])
    known = book(node("a"), slice_on("a", apart), node("b"), slice_on("b", near), wants, pod("p", "c"))

    settled = known.settle()

    fitting = [
        n for n, seen in settled.nodes.items() if seen and any(FITS_LABEL in key for key in seen.metadata.labels)
    ]
    assert fitting == ["b"]


@pytest.mark.parametrize(
    ("wants", "code"),
    [
        (claim("c", request(1, "gpus", "nobody.knows == 1")), "ClaimUnsupported"),
        (claim("c", request(1, "gpus", adminAccess=True)), "ClaimUnsupported"),
        (claim("c", request(1, "gpus", capacity={"requests": {"memory": "90Gi"}})), "NoDeviceMatches"),
        (claim("c", request(1, "gpus", capacity={"requests": {"rays": "1"}})), "NoDeviceMatches"),
        (claim("c", request(33)), "ClaimUnsupported"),
        (
            claim("c", {"name": "either", "firstAvailable": [{"name": "x", "deviceClassName": DRIVER}]}),
            "ClaimUnsupported",
        ),
        (claim("c", request(1, "gpus", deviceClassName="nobody")), "ClaimUnsupported"),
        (claim("c", request(1, "x", allocationMode="All"), request(1, "y")), "ClaimUnsupported"),
        (claim("c", request(2), constraints=[{"distinctAttribute": "a/b"}]), "NoDeviceMatches"),
        (claim("c", request(1, "gpus", f"device.attributes['{DRIVER}'].productName == 'B200'")), "NoDeviceMatches"),
        (claim("c", request(1, "gpus", f"device.attributes['{DRIVER}'].nothing == 1")), "NoDeviceMatches"),
    ],
)
def test_a_pod_whose_claim_cannot_be_served_waits_and_its_reason_is_told(wants: object, code: str) -> None:
    known = book(node("a"), slice_on("a", devices(8)), wants, pod("p", "c"))  # type: ignore[arg-type]

    assert [gate.name for gate in pod_of(known, "p").spec.scheduling_gates] == ["tonnage.dev/claims"]
    assert known.reasons["ns/p"].code == code


def test_a_pod_waits_for_the_claim_of_its_template_and_takes_none_of_another_pod() -> None:
    template = [{"name": "gpus", "resourceClaimTemplateName": "t"}]
    known = book(node("a"), slice_on("a", devices(8)), pod("p", resourceClaims=template))
    pod_of(known, "p")
    assert known.reasons["ns/p"].code == "AwaitsClaim"

    made = pod("p", resourceClaims=template)
    see(
        known,
        claim("c", owner="somebody"),
        replace(made, status=PodStatus("Pending", resource_claim_statuses=(GeneratedClaim("gpus", "c"),))),
    )
    assert gpus(pod_of(known, "p")) == 0
    assert known.reasons["ns/p"].code == "AwaitsClaim"

    see(known, claim("c", owner="p"))
    assert gpus(pod_of(known, "p")) == 1
    assert known.reasons == {}


def test_a_running_pod_holds_the_very_devices_of_its_claim() -> None:
    held = claim("c", request(2), on=("a", ("gpu-5", "gpu-3")), reserved_for=["p"])
    # Its annotation is what somebody wished; the claim is what it has.
    running = pod("p", "c", on="a", annotations={"tonnage.dev/devices": "0,1"})

    found = pod_of(book(node("a"), slice_on("a", devices(8)), held, running), "p")

    assert (gpus(found), found.metadata.annotations.devices) == (2, "3,5")


def test_while_the_watch_of_claims_lags_the_binding_says_which_devices_a_pod_has() -> None:
    bound = pod("p", "c", on="a", annotations={"tonnage.dev/devices": "6,7"})

    found = pod_of(book(node("a"), slice_on("a", devices(8)), claim("c", request(2)), bound), "p")

    assert (gpus(found), found.metadata.annotations.devices) == (2, "6,7")


def test_devices_of_a_claim_without_a_running_pod_are_not_free() -> None:
    held = claim("c", on=("a", ("gpu-2",)), reserved_for=["p"])
    known = book(node("a"), slice_on("a", devices(8)), held, pod("p", "c"))

    settled = known.settle()
    holder, waits = settled.pods["ns/claim:c"], settled.pods["ns/p"]
    assert holder is not None
    assert waits is not None
    assert (holder.metadata.annotations.devices, gpus(waits)) == ("2", 0)
    assert waits.spec.node_selector == {NODE_LABEL: "a"}

    see(known, pod("p", "c", on="a"))  # it was bound: now it holds its device itself
    settled = known.settle()
    running = settled.pods["ns/p"]
    assert running is not None
    assert settled.pods["ns/claim:c"] is None
    assert running.metadata.annotations.devices == "2"


def test_a_shared_claim_is_allocated_with_one_pod_and_the_others_follow_it() -> None:
    known = book(node("a"), slice_on("a", devices(8)), claim("c", request(2)), pod("p", "c"), pod("q", "c"))
    settled = known.settle()
    first = settled.pods["ns/p"]
    assert first is not None
    assert gpus(first) == 2
    assert known.reasons["ns/q"].code == "AwaitsClaim"

    held = claim("c", request(2), on=("a", ("gpu-0", "gpu-1")), reserved_for=["p"])
    see(known, held, pod("p", "c", on="a"))
    follows = pod_of(known, "q")

    assert gpus(follows) == 0
    assert follows.spec.node_selector == {NODE_LABEL: "a"}


def test_two_claims_that_hold_one_device_are_told() -> None:
    known = book(node("a"), slice_on("a", devices(8)))
    for name in ("c", "d"):
        see(known, claim(name, on=("a", ("gpu-0",)), reserved_for=["x"]))
    known.settle()

    assert any("2 claims hold" in str(mistake) for mistake in known.mistakes)


def seen(name: str) -> SeenPod:
    return SeenPod(f"ns/{name}", f"uid-{name}", "9", scheduler_name="tonnage", has_claims=True)


def test_a_claim_gets_exactly_the_chosen_devices_under_preconditions() -> None:
    config = [{"opaque": {"driver": DRIVER, "parameters": {"sharing": "none"}}}]
    wants = claim("c", request(1, "first"), request(1, "second"), config=config)
    known = book(node("a"), slice_on("a", devices(12)), wants, pod("p", "c"))
    known.settle()

    mark, allocate = known.allocate(seen("p"), Bind("ns/p", "a", (10, 2)), STAMP)

    assert mark.body is not None
    assert allocate.body is not None
    assert mark.body["metadata"]["resourceVersion"] == "7"
    assert mark.body["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert mark.body["metadata"]["annotations"] == STAMPED
    assert allocate.on_version_of_answer
    status = allocate.body["status"]
    given = [(r["request"], r["device"]) for r in status["allocation"]["devices"]["results"]]
    assert given == [("first", "gpu-2"), ("second", "gpu-10")]
    assert status["allocation"]["devices"]["config"] == [{"source": "FromClaim", **config[0]}]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-p"}]


def test_a_pod_that_joins_a_shared_claim_is_added_to_its_reservations() -> None:
    held = claim("c", on=("a", ("gpu-0",)), reserved_for=["p"])
    known = book(node("a"), slice_on("a", devices(8)), held, pod("p", "c", on="a"), pod("q", "c"))
    known.settle()

    mark, reserve = known.allocate(seen("q"), Bind("ns/q", "a", ()), STAMP)

    assert mark.body is not None
    assert reserve.body is not None
    assert mark.body["metadata"]["resourceVersion"] == "7"
    assert mark.body["metadata"]["annotations"] == STAMPED
    assert reserve.on_version_of_answer
    assert [each["name"] for each in reserve.body["status"]["reservedFor"]] == ["p", "q"]


@pytest.mark.parametrize("numbers", [(0, 1), (7, 8), (3,), (3, 4, 5)])
def test_devices_that_are_held_or_not_there_or_too_few_or_too_many_are_not_allocated(numbers: tuple[int, ...]) -> None:
    other = claim("d", on=("a", ("gpu-1",)), reserved_for=["x"])
    known = book(node("a"), slice_on("a", devices(8)), claim("c", request(2)), other, pod("p", "c"))
    known.settle()

    with pytest.raises(ActionError):
        known.allocate(seen("p"), Bind("ns/p", "a", numbers), STAMP)


def test_a_pod_of_the_same_name_made_since_is_not_allocated_for() -> None:
    known = book(node("a"), slice_on("a", devices(8)), claim("c"), pod("p", "c"))
    known.settle()

    with pytest.raises(ActionError):
        known.allocate(SeenPod("ns/p", "another", "9", has_claims=True), Bind("ns/p", "a", (0,)), STAMP)


def test_nodes_of_other_pools_stay_as_they_are() -> None:
    known = ClaimTranslation({DRIVER: "nvidia.com/gpu"}, lambda labels: labels.get("pool") == "dra")
    see(known, node("a", {"pool": "gate"}, **{"nvidia.com/gpu": "4"}), slice_on("a", devices(8)))

    assert node_of(known) == node("a", {"pool": "gate"}, **{"nvidia.com/gpu": "4"})


def test_only_allocations_of_tonnage_whose_pods_have_no_node_are_half_made() -> None:
    held = [
        claim("ours", on=("a", ("gpu-0",)), reserved_for=["p"], epoch="4"),
        claim("running", on=("a", ("gpu-1",)), reserved_for=["q"], epoch="4"),
        claim("foreign", on=("a", ("gpu-2",)), reserved_for=["r"]),
    ]
    pods = [pod("p", "ours"), pod("q", "running", on="a"), pod("r", "foreign")]

    known = book(node("a"), slice_on("a", devices(8)), *held, *pods)

    assert list(known.known.claims_of_unbound_pods()) == ["ns/ours"]


def test_nothing_is_kept_of_claims_and_pods_that_are_gone() -> None:
    """Claims of templates have new names for ever: what is kept of each would fill the memory in months."""
    known = book(node("a"), slice_on("a", devices(8)))
    known.settle()
    before = sizes(known)
    for turn in range(3):
        see(known, claim(f"c{turn}", on=("a", ("gpu-0",)), reserved_for=["p"]), pod(f"p{turn}", f"c{turn}", on="a"))
        known.settle()
        known.known.put_pod(f"ns/p{turn}", None)
        known.known.put_claim(f"ns/c{turn}", None)
        known.settle()

    assert sizes(known) == before


def sizes(known: ClaimTranslation) -> dict[str, int]:
    """Of all that a book keeps."""
    parts = (known, known.known, known._feasibility)
    held = {f"{type(part).__name__}.{name}": value for part in parts for name, value in vars(part).items()}
    return {name: len(value) for name, value in held.items() if isinstance(value, dict | set)}


def test_a_claim_that_is_allocated_on_another_node_is_not_allocated_again() -> None:
    held = claim("c", on=("b", ("gpu-0",)), reserved_for=["q"])
    known = book(node("a"), slice_on("a", devices(8)), node("b"), slice_on("b", devices(8)), held, pod("p", "c"))
    known.settle()

    with pytest.raises(ActionError, match="is allocated on b"):
        known.allocate(seen("p"), Bind("ns/p", "a", ()), STAMP)


def given_by(known: ClaimTranslation, chosen: tuple[int, ...]) -> list[str]:
    """Devices that pod p gets when a plan chose these numbers."""
    writes = known.allocate(seen("p"), Bind("ns/p", "a", chosen), STAMP)
    status = [write.body["status"] for write in writes if write.body and "status" in write.body]
    return [each["device"] for of_claim in status for each in of_claim["allocation"]["devices"]["results"]]


def test_devices_of_a_pods_first_claim_are_not_given_to_its_second() -> None:
    known = book(node("a"), slice_on("a", devices(8)), claim("c"), claim("d"), pod("p", "c", "d"))
    known.settle()

    assert given_by(known, (2, 5)) == ["gpu-2", "gpu-5"]
    with pytest.raises(ActionError, match="too few for its claims"):
        known.allocate(seen("p"), Bind("ns/p", "a", (3, 3)), STAMP)


def test_a_pod_waits_while_its_claim_is_being_deleted() -> None:
    ending = claim("c")
    ending = replace(ending, metadata=replace(ending.metadata, deletion_timestamp="2026-03-01T12:00:00Z"))
    known = book(node("a"), slice_on("a", devices(8)), ending, pod("p", "c"))

    assert gpus(pod_of(known, "p")) == 0
    assert "being deleted" in known.reasons["ns/p"].words


def test_a_withheld_device_is_not_allocated_even_when_a_plan_chose_it() -> None:
    odd = device("gpu-1", taints=[{"key": "driver/broken", "effect": "NoExecute"}])
    known = book(node("a"), slice_on("a", [device("gpu-0"), odd]), claim("c"), pod("p", "c"))
    known.settle()

    assert given_by(known, (1,)) == ["gpu-0"]

    see(known, slice_on("a", [device("gpu-0"), device("gpu-1", bindingConditions=["ready"])]))
    known.settle()
    assert given_by(known, (1,)) == ["gpu-0"]

    see(known, slice_on("a", [device("gpu-0"), odd]), claim("d", on=("a", ("gpu-0",))))
    known.settle()
    with pytest.raises(ActionError, match="tainted"):
        known.allocate(seen("p"), Bind("ns/p", "a", (1,)), STAMP)


@pytest.mark.parametrize("more", [0, 1])
def test_a_claim_serves_as_many_pods_as_kubernetes_allows_and_no_more(more: int) -> None:
    names = [f"p{n}" for n in range(MAX_RESERVATIONS - 1 + more)]
    held = claim("c", on=("a", ("gpu-0",)), reserved_for=names)
    known = book(node("a"), slice_on("a", devices(8)), held, pod("late", "c"))
    known.settle()

    if more:
        with pytest.raises(ActionError, match="the maximum"):
            known.allocate(seen("late"), Bind("ns/late", "a", ()), STAMP)
    else:
        _, reserve = known.allocate(seen("late"), Bind("ns/late", "a", ()), STAMP)
        assert reserve.body is not None
        assert len(reserve.body["status"]["reservedFor"]) == MAX_RESERVATIONS == 256


def test_a_device_that_does_not_satisfy_its_request_is_not_allocated() -> None:
    wants = claim("c", request(1, "gpus", f"device.attributes['{DRIVER}'].productName == 'H100'"))
    both = [device("gpu-0"), device("gpu-1", product="L4")]
    known = book(node("a"), slice_on("a", both), wants, pod("p", "c"))
    known.settle()

    with pytest.raises(ActionError, match="does not satisfy"):
        known.allocate(seen("p"), Bind("ns/p", "a", (1,)), STAMP)
    assert known.allocate(seen("p"), Bind("ns/p", "a", (0,)), STAMP)


@pytest.mark.parametrize("memory", ["8Ei", "-1"])
def test_a_device_with_an_absurd_capacity_is_on_no_node_that_serves_a_claim_and_stops_nothing(memory: str) -> None:
    """A kubelet publishes slices of its node: each cycle of the operator failed."""
    odd = slice_on("a", [device("gpu-0", memory=memory)])
    known = book(node("a"), odd, node("b"), slice_on("b", devices(8)), claim("c"), pod("p", "c"))

    settled = known.settle()

    fitting = [
        n for n, seen in settled.nodes.items() if seen and any(FITS_LABEL in key for key in seen.metadata.labels)
    ]
    assert fitting == ["b"]


def asks(name: str, text: str, namespace: str = "ns") -> tuple[ResourceClaim, Pod]:
    """A claim with a selector that holds on every device and has this text in it, and the pod that uses it."""
    wants = claim(f"c-{name}", request(1, "gpus", f"device.driver != '{text}'"))
    user = pod(name, f"c-{name}")
    wants = replace(wants, metadata=replace(wants.metadata, namespace=namespace))
    return wants, replace(user, metadata=replace(user.metadata, namespace=namespace))


def settle_waiting(known: ClaimTranslation, *seen: tuple[ResourceClaim, Pod]) -> dict[str, str]:
    """Codes of the reasons of waiting pods, after these are seen."""
    for each in seen:
        see(known, *each)
    known.settle()
    return {name: reason.code for name, reason in known.reasons.items()}


def test_claims_of_one_namespace_that_take_long_to_match_hold_up_no_other() -> None:
    """Each was matched at once, whatever that took: ten of 64 long selectors 42 seconds on 100 nodes."""
    known = book(*(each for n in range(50) for each in (node(f"n{n}"), slice_on(f"n{n}", devices(8)))))
    # 400 devices times 4,000 characters with the class's are 1.62 of 8 million: four in a turn.
    flood = [asks(f"p{n:02}", f"{n:04000}"[-4000:]) for n in range(12)]

    waits = settle_waiting(known, *flood, asks("other", "x", "somebody"))

    assert set(waits.values()) == {"WorkUsedUp"}
    assert len(waits) == 12 - 4
    assert "somebody/other" not in waits
    assert (len(settle_waiting(known)), len(settle_waiting(known))) == (4, 0)


def test_a_namespace_waits_with_a_bounded_number_of_different_claims() -> None:
    """Each had a label on every node, and each new one changed all nodes."""
    known = book(node("a"), slice_on("a", devices(8)))
    flood = [asks(f"p{n:03}", str(n)) for n in range(MOST_KNOWN + 2)]
    waits = settle_waiting(known, *flood, asks("other", "x", "somebody"))
    assert waits == {f"ns/p{n:03}": "NamespaceBoundExceeded" for n in (MOST_KNOWN, MOST_KNOWN + 1)}

    earlier = settle_waiting(known, asks("a-first-name", "y"))
    assert earlier.keys() == {*waits, "ns/a-first-name"}  # it displaces none

    known.known.put_pod("ns/p007", None)
    assert len(settle_waiting(known)) == 2


@pytest.mark.parametrize(
    ("selectors", "says"),
    [
        ([f"device.driver != '{n}'" for n in range(MOST_SELECTORS + 1)], "has 65 selectors of"),
        (["device.driver != '" + "x" * LONGEST_SELECTORS + "'"], "has 1 selectors of 4115 characters"),
    ],
)
def test_a_claim_with_absurdly_many_or_long_selectors_is_not_supported(selectors: list[str], says: str) -> None:
    known = book(node("a"), slice_on("a", devices(8)), claim("c", request(1, "gpus", *selectors)), pod("p", "c"))

    known.settle()

    assert known.reasons["ns/p"].code == "ClaimUnsupported"
    assert says in known.reasons["ns/p"].words


def test_a_claim_that_thousands_of_pods_share_is_looked_through_once() -> None:
    """Each of its pods looked at all others: 4,000 pods took twelve seconds, again with each change of the claim."""
    pods = [pod(f"p{n:04}", "c") for n in range(300)]
    looked = Looked()
    known = book(node("a"), slice_on("a", devices(8)), claim("c"), *pods)
    known.known.is_bound = looked.counting(known.known.is_bound)  # type: ignore[method-assign]

    known.settle()

    assert looked.times < 5 * len(pods)
    assert {reason.code for reason in known.reasons.values()} == {"AwaitsClaim"}


class Looked:
    """Counts calls."""

    times = 0

    def counting(self, real: Callable[[str], bool]) -> Callable[[str], bool]:
        def counted(name: str) -> bool:
            self.times += 1
            return real(name)

        return counted
