"""Claims are translated event by event; the result must always equal a translation from scratch."""

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from controller.api.structs import Node, Pod
from controller.dra.requests import FITS_LABEL
from controller.dra.translation import ClaimTranslation
from tests.builders.dra import DRIVER, DRIVERS, claim, device, device_class, devices, node, pod, request, slice_on

NODES = {name: [node(name), node(name, {"pool": "dra"}), node(name, {"pool": "dra"}, cpu="1")] for name in ("a", "b")}
SLICES = {
    f"{name}-slice": [
        slice_on(name, devices(2)),
        slice_on(name, devices(4, product="L4")),
        slice_on(name, [*devices(2), {"name": "gpu-9", "taints": [{"key": "k", "effect": "NoExecute"}]}]),
        slice_on(name, devices(2), of=2),
        slice_on(name, [device("gpu-0", allowMultipleAllocations=True), device("gpu-1", attributes={"x": {"int": 1}})]),
    ]
    for name in ("a", "b")
}
CLAIMS = {
    name: [
        claim(name),
        claim(name, request(2, "gpus", f"device.attributes['{DRIVER}'].productName == 'L4'")),
        claim(name, request(1, "gpus", allocationMode="All")),
        claim(name, request(1, "gpus", "cel.bind(x, 1, true)")),
        claim(name, request(1, tolerations=[{"operator": "Exists"}])),
        claim(name, request(1, capacity={"requests": {"memory": "20Gi"}})),
        claim(name, request(1), constraints=[{"matchAttribute": f"{DRIVER}/x"}]),
        *(claim(name, on=(on, ("gpu-0", "gpu-1")), reserved_for=["p"], epoch="1") for on in ("a", "b")),
    ]
    for name in ("c", "d")
}
PODS = {
    name: [pod(name, *used, on=on) for used in (("c",), ("d",), ("c", "d"), ()) for on in ("", "a", "b")]
    for name in ("p", "q", "r")
}
CLASSES = {DRIVER: [device_class(f"device.driver == '{DRIVER}'"), device_class("device.driver == 'other'")]}

STORES: Mapping[str, Mapping[str, Any]] = {
    "node": NODES,
    "slice": SLICES,
    "claim": CLAIMS,
    "pod": PODS,
    "class": CLASSES,
}
EVENTS = st.sampled_from([(kind, name) for kind, store in STORES.items() for name in store]).flatmap(
    lambda at: st.tuples(st.just(at), st.sampled_from([None, *STORES[at[0]][at[1]]]))
)


def new_book() -> ClaimTranslation:
    return ClaimTranslation(DRIVERS, lambda labels: labels.get("pool") == "dra")


def tell(book: ClaimTranslation, kind: str, name: str, found: Any) -> None:
    match kind:
        case "node":
            book.known.put_node(name, found)
        case "slice":
            book.known.put_slice(name, found)
        case "claim":
            book.known.put_claim(f"ns/{name}", found)
        case "pod":
            book.known.put_pod(f"ns/{name}", found)
        case "class":
            book.known.put_class(name, found)


def take(picture: dict[str, Any], changed: Mapping[str, Node | Pod | None]) -> None:
    for name, found in changed.items():
        if found is None:
            picture.pop(name, None)
        else:
            picture[name] = found


def comparable(nodes: Mapping[str, Node], pods: Mapping[str, Pod]) -> tuple[Any, Any]:
    """Without labels for requests that no pod has any more: they remain from earlier and are not used."""
    wanted = {key for each in pods.values() for key in each.spec.node_selector}

    def kept(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        return ((k, v) for k, v in labels.items() if not k.startswith(FITS_LABEL) or k in wanted)

    stripped = {
        name: replace(each, metadata=replace(each.metadata, labels=dict(kept(each.metadata.labels))))
        for name, each in nodes.items()
    }
    return stripped, dict(pods)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=1, max_size=12))
def test_a_book_that_was_patched_says_what_a_new_one_says(batches: list[list[Any]]) -> None:
    patched, now = new_book(), dict[tuple[str, str], Any]()
    nodes: dict[str, Any] = {}
    pods: dict[str, Any] = {}
    for batch in batches:
        for (kind, name), found in batch:
            tell(patched, kind, name, found)
            now[kind, name] = found
        settled = patched.settle()
        take(nodes, settled.nodes)
        take(pods, settled.pods)

        fresh = new_book()
        for (kind, name), found in now.items():
            if found is not None:
                tell(fresh, kind, name, found)
        anew = fresh.settle()
        fresh_nodes: dict[str, Any] = {}
        fresh_pods: dict[str, Any] = {}
        take(fresh_nodes, anew.nodes)
        take(fresh_pods, anew.pods)

        assert comparable(nodes, pods) == comparable(fresh_nodes, fresh_pods)
        assert patched.reasons == fresh.reasons
        assert patched.mistakes == fresh.mistakes
        assert patched.known.claims_of_unbound_pods() == fresh.known.claims_of_unbound_pods()
