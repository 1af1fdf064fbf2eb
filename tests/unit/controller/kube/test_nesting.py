"""Objects that nest deeper than a reader can go: they harm nobody else."""

import json

import pytest

from controller.api.structs import DEEPEST, OwnObject, nests_too_deep, plain, shallow
from controller.objects.own_objects import by_object
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import gang, node, pod, service
from tests.builders.watch_events import as_stored, listed, modified

MANY = (150, 600, 980, 3_000, 9_900)
"""Levels; an API server takes up to 10,000 of them. Python's readers fail at 500 and at 1,000."""


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def with_levels(written: bytes, levels: int) -> bytes:
    """The JSON with this many levels in place of the text DEEP."""
    return written.replace(b'"DEEP"', nested(levels).encode())


@pytest.mark.parametrize("levels", MANY)
def test_a_service_that_nests_too_deep_is_refused_alone(levels: int) -> None:
    live = LiveCluster([node()])
    written = service()
    written["spec"]["template"] = {"spec": {"containers": [{"name": "server", "image": "none", "more": "DEEP"}]}}
    line = with_levels(modified(as_stored(written, 5), 5), levels)
    services = next(cache for kind, cache in live.caches.own.items() if kind.name == "ModelService")

    services.take_line(line, live.clock.now_s)
    live.put(pod("canary"))
    seen = live.observer.see()

    assert list(seen.snapshot.pods.names) == ["default/canary"]
    assert [str(each) for each in by_object(seen.mistakes)["ModelService/default/chat"]] == [
        "ModelService/default/chat, spec: has more than 100 levels; nest less deeply"
    ]


@pytest.mark.parametrize("levels", MANY)
def test_a_group_whose_object_nests_too_deep_is_read_as_far_as_anything_is_read(levels: int) -> None:
    live = LiveCluster([node()])
    job = {"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 1, "template": "DEEP"}}}
    written = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": [job]},
    }
    sets = next(cache for cache in live.caches.groups if cache.resource.part == "JobSet")

    sets.take_page(with_levels(listed([as_stored(written)]), levels), live.clock.now_s, is_first=True)
    member = pod("train-a-0")
    member["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "train"}
    live.put(member)

    assert [(each.name, each.min_members) for each in live.observer.observe().gangs] == [("default/JobSet:train", 2)]


def test_what_nests_deeper_than_is_read_is_cut_off_and_text_is_left_alone() -> None:
    written = json.dumps({"a": {"b": {"c": 1}, "text": 'of {braces} and "quotes" and \\'}, "l": [[[1]], 2]}).encode()

    assert json.loads(shallow(written, 2)) == {
        "a": {"b": None, "text": 'of {braces} and "quotes" and \\'},
        "l": [None, 2],
    }
    assert shallow(written, 9) == written
    assert plain(written) == json.loads(written)


def test_levels_are_those_of_maps_and_lists() -> None:
    assert not nests_too_deep([1, {"a": 2}], 2)
    assert nests_too_deep([1, {"a": [2]}], 2)
    assert not nests_too_deep(json.loads(nested(DEEPEST)))
    assert nests_too_deep(json.loads(nested(DEEPEST + 1)))


def test_a_watch_of_objects_that_nest_too_deep_goes_on() -> None:
    live = LiveCluster([node()])
    gangs = next(cache for kind, cache in live.caches.own.items() if kind.name == "Gang")
    written = gang("train", members=2)
    written["status"] = {"more": "DEEP"}

    gangs.take_line(with_levels(modified(as_stored(written, 5), 5), 9_000), live.clock.now_s)
    live.put(gang("other", members=3))

    assert isinstance(gangs.get("default/train"), OwnObject)
    assert [each.name for each in live.observer.observe().gangs] == ["default/other"]
