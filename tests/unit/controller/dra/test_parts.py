"""Parts of GPUs, shares and tainted devices as planning sees them: never more of a GPU than there is, never twice."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from cluster.actions import Bind
from cluster.errors import ActionError
from controller.api.structs import ExtendedRequest, ExtendedResourceClaim, Pod, PodStatus, Resources
from controller.dra.objects import ResourceSlice
from controller.dra.requests import FITS_LABEL
from controller.dra.translation import LATELY_S, ClaimTranslation
from controller.kube.sender import Stamp
from tests.builders.dra import DRIVER, book, claim, decoded, device, devices, node, pod, request, see, slice_on
from tests.builders.dra_cases import NODE, case
from tests.unit.controller.dra.test_translation import STAMP, gpus, pod_of, seen


def parted(gpu: int, parts: int = 4) -> list[dict[str, Any]]:
    """A GPU and its parts, which share its memory and have a slice of their own each."""

    def uses(share: int, *slices: int) -> list[Any]:
        counters = {"memory": {"value": f"{80 * share // parts}Gi"}, **{f"slice-{n}": {"value": "1"} for n in slices}}
        return [{"counterSet": f"set-{gpu}", "counters": counters}]

    part = {"type": {"string": "mig"}}
    whole = device(f"gpu-{gpu}", consumesCounters=uses(parts, *range(parts)))
    return [
        whole,
        *(device(f"gpu-{gpu}-mig-{n}", attributes=part, consumesCounters=uses(1, n)) for n in range(parts)),
    ]


def slices(gpus_: int = 2, *, counters_on: str = "a") -> list[ResourceSlice]:
    """Devices of node a, and their counter sets in a slice for node a or for any node of the pool."""
    counters = {"memory": {"value": "80Gi"}, **{f"slice-{n}": {"value": "1"} for n in range(4)}}
    sets = [{"name": f"set-{gpu}", "counters": counters} for gpu in range(gpus_)]
    where = {"nodeName": counters_on} if counters_on else {"allNodes": True}
    spec = {"driver": DRIVER, "pool": {"name": "a", "generation": 1, "resourceSliceCount": 2}, **where}
    shared = decoded({"metadata": {"name": "sets"}, "spec": {**spec, "sharedCounters": sets}}, ResourceSlice)
    return [slice_on("a", [each for gpu in range(gpus_) for each in parted(gpu)], of=2), shared]


def of_type(name: str) -> str:
    return f"device.attributes['{DRIVER}'].type == '{name}'"


PART, WHOLE = of_type("mig"), of_type("gpu")


def holders(known: ClaimTranslation, settled: dict[str, Pod | None]) -> Counter[int]:
    """Thousandths of each GPU that pods and placeholders hold."""
    held = Counter[int]()
    for each in settled.values():
        if each is not None and each.spec.node_name and each.metadata.annotations.devices:
            for number in each.metadata.annotations.devices.split(","):
                held[int(number)] += int(each.metadata.annotations.gpu_milli or 1000)
    return held


@pytest.mark.parametrize("counters_on", ["a", ""])
def test_a_node_offers_its_gpus_and_not_their_parts_beside_them(counters_on: str) -> None:
    known = book(node("a"), *slices(counters_on=counters_on))

    found = known.settle().nodes["a"]

    assert found is not None
    assert not found.spec.unschedulable
    assert found.status.allocatable["nvidia.com/gpu"] == "2"


def test_a_claim_for_a_part_asks_for_its_share_of_a_gpu_while_a_node_has_room_for_it() -> None:
    known = book(node("a"), *slices(1), claim("c", request(1, "gpus", PART)), pod("p", "c"))
    asks = pod_of(known, "p")
    # A quarter of the memory and one of four slices: (1/4 + 1 + 0 + 0 + 0) / 5.
    assert (gpus(asks), asks.metadata.annotations.gpu_milli) == (0, "250")

    see(known, claim("d", on=("a", ("gpu-0",))))
    known.settle()

    assert known.reasons["ns/p"].code == "NoDeviceMatches"
    assert "enough devices, counters and capacity left" in known.reasons["ns/p"].words


def test_a_part_that_is_held_leaves_the_others_and_not_the_whole() -> None:
    held = claim("h", on=("a", ("gpu-0-mig-1",)), reserved_for=["q"])
    wants = claim("c", request(1, "gpus", PART)), claim("w", request(1, "gpus", WHOLE))
    known = book(node("a"), *slices(1), held, pod("q", "h", on="a"), *wants, pod("p", "c"), pod("r", "w"))

    settled = known.settle()

    assert holders(known, settled.pods) == {0: 250}
    assert known.reasons.keys() == {"ns/r"}
    see(known, pod("r", "c"), pod("p"))
    assert given_to(known, "r", (0,)) == ["gpu-0-mig-0"]


def given_to(known: ClaimTranslation, name: str, chosen: tuple[int, ...]) -> list[str]:
    known.settle()
    writes = known.allocate(seen(name), Bind(f"ns/{name}", "a", chosen), STAMP)
    bodies = [write.body["status"] for write in writes if write.body and "status" in write.body]
    return [each["device"] for of in bodies for each in of["allocation"]["devices"]["results"]]


def test_what_a_pod_holds_of_several_gpus_is_held_by_placeholders_beside_it() -> None:
    held = claim("h", on=("a", ("gpu-0-mig-1", "gpu-1-mig-1", "gpu-1-mig-2")))
    known = book(node("a"), *slices(2), held, pod("q", "h", on="a"))

    settled = known.settle()

    assert holders(known, settled.pods) == {0: 250, 1: 500}
    running = settled.pods["ns/q"]
    assert running is not None
    assert (running.metadata.annotations.devices, running.metadata.annotations.gpu_milli) == ("1", "500")

    see(known, replace(held, status=replace(held.status, allocation=None)))
    settled = known.settle()
    assert {"resource.tonnage.dev/parts:a:0": None}.items() <= settled.pods.items()


def test_parts_are_taken_of_the_chosen_gpu_and_of_another_where_it_has_no_room() -> None:
    known = book(node("a"), *slices(2), claim("c", request(1, "gpus", PART)), pod("p", "c"))
    assert given_to(known, "p", (1,)) == ["gpu-1-mig-0"]

    see(known, claim("h", on=("a", ("gpu-1",))))
    assert given_to(known, "p", (1,)) == ["gpu-0-mig-0"]

    see(known, claim("i", on=("a", ("gpu-0",))))
    with pytest.raises(ActionError, match="holds it already"):
        given_to(known, "p", (1,))


def test_what_was_given_a_moment_ago_is_not_given_again_before_the_watch_shows_it() -> None:
    """A plan starts several pods at once, and each of them gets the first part that is free."""
    names = ("p", "q", "r")
    wants = [claim(f"c-{name}", request(2, "gpus", PART)) for name in names]
    known = book(node("a"), *slices(1), *wants, *(pod(name, f"c-{name}") for name in names))

    assert given_to(known, "p", (0,)) == ["gpu-0-mig-0", "gpu-0-mig-1"]
    assert given_to(known, "q", (0,)) == ["gpu-0-mig-2", "gpu-0-mig-3"]
    with pytest.raises(ActionError):
        given_to(known, "r", (0,))

    later = Stamp(STAMP.epoch, STAMP.at_s + LATELY_S)  # neither was made: no watch has shown them
    assert known.allocate(seen("r"), Bind("ns/r", "a", (0,)), later)


@pytest.mark.parametrize(
    ("counters", "word"),
    [({"nothing": {"value": "1"}}, "no counter set has"), ({"memory": {"value": "-1"}}, "invalid: a counter")],
)
def test_nothing_is_placed_on_a_node_whose_counters_cannot_be_right(counters: dict[str, Any], word: str) -> None:
    odd = device("gpu-9", consumesCounters=[{"counterSet": "set-0", "counters": counters}])
    sets = slices(1)[1]
    known = book(node("a"), slice_on("a", [*parted(0), odd], of=2), sets)

    found = known.settle().nodes["a"]

    assert found is not None
    assert found.spec.unschedulable
    assert any(word in str(mistake) for mistake in known.mistakes)


def shared(count: int = 1) -> ResourceSlice:
    return slice_on("a", [device(f"gpu-{n}", allowMultipleAllocations=True) for n in range(count)])


def test_a_share_of_a_device_is_allocated_with_an_id_and_what_it_consumes() -> None:
    wants = claim("c", request(1, "gpus", capacity={"requests": {"memory": "20Gi"}}))
    known = book(node("a"), shared(), wants, pod("p", "c"))
    assert pod_of(known, "p").metadata.annotations.gpu_milli == "250"

    _, write = known.allocate(seen("p"), Bind("ns/p", "a", (0,)), STAMP)

    assert write.body is not None
    (result,) = write.body["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": str(20 * 2**30)}
    assert len(result["shareID"]) == 36


def test_shares_of_a_device_never_exceed_its_capacity() -> None:
    held = decoded_share("h", "60Gi")
    wants = [claim(f"c{n}", request(1, "gpus", capacity={"requests": {"memory": f"{n}Gi"}})) for n in (20, 21)]
    known = book(node("a"), shared(), held, *wants, pod("p", "c20"), pod("q", "c21"))

    settled = known.settle()

    assert holders(known, settled.pods) == {0: 750}
    assert known.reasons.keys() == {"ns/q"}


def decoded_share(name: str, memory: str) -> Any:
    of = claim(name, on=("a", ("gpu-0",)))
    assert of.status.allocation is not None
    (result,) = of.status.allocation.devices.results
    result = replace(result, share_id=f"share-{name}", consumed_capacity={"memory": memory})
    devices_of = replace(of.status.allocation.devices, results=(result,))
    return replace(of, status=replace(of.status, allocation=replace(of.status.allocation, devices=devices_of)))


def tainted(effect: str) -> ResourceSlice:
    taint = {"key": "broken", "value": "ecc", "effect": effect}
    return slice_on("a", [device("gpu-0"), device("gpu-1", taints=[taint])])


@pytest.mark.parametrize(("effect", "free"), [("None", 2), ("NoSchedule", 1), ("NoExecute", 1)])
def test_a_taint_keeps_a_device_from_claims_that_do_not_tolerate_it(effect: str, free: int) -> None:
    known = book(node("a"), tainted(effect), claim("c", request(2)), pod("p", "c"))

    assert sum(holders(known, known.settle().pods).values()) == 1000 * (2 - free)


def test_a_claim_that_tolerates_a_taint_gets_the_device_with_its_tolerations() -> None:
    toleration = {"key": "broken", "operator": "Equal", "value": "ecc", "tolerationSeconds": 60}
    known = book(node("a"), tainted("NoExecute"), claim("c", request(2, tolerations=[toleration])), pod("p", "c"))

    settled = known.settle()
    _, write = known.allocate(seen("p"), Bind("ns/p", "a", (0, 1)), STAMP)

    assert holders(known, settled.pods) == {}
    assert write.body is not None
    results = write.body["status"]["allocation"]["devices"]["results"]
    assert [each["device"] for each in results] == ["gpu-0", "gpu-1"]
    assert {each["tolerations"][0]["tolerationSeconds"] for each in results} == {60}
    see(known, claim("c", request(2)))
    assert sum(holders(known, known.settle().pods).values()) == 1000


def test_devices_that_kube_scheduler_gave_for_extended_resources_are_held_by_their_pod_once() -> None:
    """The container asks for the resource, and the claim that kube-scheduler made for it holds the device."""
    made = ExtendedResourceClaim("p-extended-resources-x", (ExtendedRequest("nvidia.com/gpu"),))
    running = pod("p", on="a", containers=[{"resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "2"}}}])
    running = replace(running, status=PodStatus("Running", extended_resource_claim_status=made))
    held = claim("p-extended-resources-x", on=("a", ("gpu-3",)), reserved_for=["p"], owner="p")
    known = book(node("a"), slice_on("a", devices(8)), held, running)

    settled = known.settle()
    found = settled.pods["ns/p"]

    assert found is not None
    assert (gpus(found), found.metadata.annotations.devices) == (1, "3")
    assert found.spec.containers[0].resources == Resources({"cpu": "2"}, {})
    assert holders(known, settled.pods) == {3: 1000}


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 100_000), runs=st.booleans())
def test_no_gpu_is_held_beyond_its_whole_and_none_is_free_of_which_a_part_is_held(*, seed: int, runs: bool) -> None:
    """Whatever claims hold together, and whether pods run with it or not."""
    of = case(seed)
    known = book(node(NODE), *(decoded(each, ResourceSlice) for each in of["slices"]))
    known.settle()
    inventory = known._feasibility.inventory[NODE]
    held, left = [], dict(inventory.counters)
    for number, each in enumerate(inventory.devices):  # those that go together, without some by the seed
        fits = all(left[name] >= amount for name, amount in each.uses.items())
        if fits and not each.device.allow_multiple_allocations and seed >> number & 1:
            left = {name: amount - each.uses.get(name, 0) for name, amount in left.items()}
            held.append(claim(f"h{number}", on=(NODE, (each.id.device,))))
    see(known, *held)
    for number in range(0, len(held) if runs else 0, 2):  # of two claims each
        see(known, pod(f"p{number}", *(each.metadata.name for each in held[number : number + 2]), on=NODE))

    milli = holders(known, known.settle().pods)

    assert all(amount <= 1000 for amount in milli.values())
    holding = {device for each in held for device in each.held}
    assert {each.cell for each in inventory.devices if each.id in holding} <= milli.keys()


def test_labels_of_a_node_say_whether_it_has_room_for_a_part_now() -> None:
    known = book(node("a"), *slices(1), claim("c", request(4, "gpus", PART)), pod("p", "c"))

    def labels() -> list[str]:
        found = known.settle().nodes["a"]
        return [value for key, value in (found.metadata.labels if found else {}).items() if key.startswith(FITS_LABEL)]

    assert labels() == ["1000m"]
    see(known, claim("h", on=("a", ("gpu-0-mig-0",))))
    assert labels() == []
    known.known.put_claim("ns/h", None)
    assert labels() == ["1000m"]
