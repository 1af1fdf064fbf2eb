"""Resource that a word on the command line names, among those that the server serves."""

import json
from typing import Any

import pytest

from cluster.errors import ObservationError
from controller.kube.discovery import Discovered, discovered


def group(name: str, *versions: tuple[str, list[dict[str, Any]]], freshness: str = "Current") -> dict[str, Any]:
    each = [{"version": version, "resources": resources, "freshness": freshness} for version, resources in versions]
    return {"metadata": {"name": name} if name else {}, "versions": each}


def resource(plural: str, kind: str, *short: str, scope: str = "Namespaced", categories: tuple[str, ...] = ()) -> Any:
    return {
        "resource": plural,
        "responseKind": {"kind": kind},
        "scope": scope,
        "singularResource": kind.lower(),
        "verbs": ["get", "list"],
        "shortNames": list(short),
        "categories": list(categories),
    }


def served(*groups: dict[str, Any]) -> Discovered:
    core = {"items": [group("", ("v1", [resource("pods", "Pod", "po"), resource("events", "Event", "ev")]))]}
    return discovered(json.dumps(core).encode(), json.dumps({"items": list(groups)}).encode())


OURS = group("tonnage.dev", ("v1alpha1", [resource("gangs", "Gang", "gng", categories=("tonnage",))]))
EVENTS = group("events.k8s.io", ("v1", [resource("events", "Event", "ev")]))


@pytest.mark.parametrize("word", ["gangs", "gang", "Gang", "gng", "gangs.tonnage.dev", "gang.v1alpha1.tonnage.dev"])
def test_a_kind_goes_by_plural_singular_short_name_and_with_its_group(word: str) -> None:
    assert served(OURS).named(word).full_name == "gangs.tonnage.dev"


def test_the_core_group_goes_before_others_of_the_same_name() -> None:
    found = served(EVENTS)

    assert found.named("events").group == ""
    assert found.named("events.events.k8s.io").group == "events.k8s.io"


def test_the_version_that_the_server_prefers_is_spoken_and_older_ones_by_name() -> None:
    two = group("example.com", ("v1", [resource("toys", "Toy")]), ("v1beta1", [resource("toys", "Toy")]))

    found = served(two)

    assert found.named("toys").version == "v1"
    assert found.named("toys.v1beta1.example.com").version == "v1beta1"
    of_kind = found.of_kind("example.com/v1beta1", "Toy")
    assert of_kind is not None
    assert of_kind.collection("ns") == "/apis/example.com/v1beta1/namespaces/ns/toys"


def test_paths_leave_the_namespace_out_where_a_kind_has_none() -> None:
    nodes = group("example.com", ("v1", [resource("racks", "Rack", scope="Cluster")]))

    assert served(nodes).named("rack").path("ns", "r1") == "/apis/example.com/v1/racks/r1"
    assert served().named("pod").path("ns", "p") == "/api/v1/namespaces/ns/pods/p"


def test_a_word_that_means_nothing_names_what_is_there_and_who_did_not_answer() -> None:
    silent = group("metrics.k8s.io", ("v1", []), freshness="Stale")

    with pytest.raises(ObservationError, match=r'type "gongs".*gangs.*no response from metrics\.k8s\.io'):
        served(OURS, silent).named("gongs")


def test_without_our_kinds_it_says_how_to_install_them() -> None:
    with pytest.raises(ObservationError, match="not installed"):
        served().named("gangs")


def test_short_names_are_suggested_and_listed() -> None:
    with pytest.raises(ObservationError, match=r"did you mean gng\?"):
        served(OURS).named("gg")
    with pytest.raises(ObservationError, match=r"known: gangs \(gng\)"):
        served(OURS).named("xyz")
