"""Cache under the protocol of list and watch, step by step, without a server."""

import errno

import pytest

from controller.api.structs import Node, Pod
from controller.kube.api_server import no_connection
from controller.kube.cache import Cache
from controller.kube.request import KubeReadError, Refusal
from controller.kube_world.observer import NODES, PODS
from tests.builders.manifests import node, pod
from tests.builders.watch_events import CUT, EXPIRED, added, bookmark, deleted, error, event, listed, modified


def pods() -> Cache[Pod]:
    return Cache(PODS)


def nodes(*names: str, version: int = 1) -> Cache[Node]:
    """A cache that has listed these."""
    cache = Cache(NODES)
    cache.take_page(listed([node(name) for name in names], version), 1.0, is_first=True)
    cache.drain()
    return cache


def names(cache: Cache[Node]) -> list[str]:
    return sorted(cache.all())


def test_a_cache_is_not_synced_before_the_last_page_of_its_list() -> None:
    cache = Cache(NODES)

    more = cache.take_page(listed([node("a")], continue_="next"), 1.0, is_first=True)

    assert (more, cache.is_synced, names(cache)) == ("next", False, [])
    assert cache.list_query(more)["continue"] == "next"

    more = cache.take_page(listed([node("b")], version=7), 2.0, is_first=False)

    assert (more, cache.is_synced, names(cache)) == ("", True, ["a", "b"])
    assert cache.watch_query(300.0)["resourceVersion"] == "7"


def test_the_first_list_takes_what_the_server_has_at_hand_and_a_later_one_nothing_older_than_was_seen() -> None:
    cache = Cache(NODES)
    assert cache.list_query()["resourceVersion"] == "0"

    cache.take_page(listed(version=5), 1.0, is_first=True)
    cache.take_line(bookmark(9), 2.0)

    assert cache.list_query()["resourceVersion"] == "9"


@pytest.mark.parametrize(
    "refusal",
    [
        EXPIRED,
        Refusal(410, "Gone", "gone"),
        Refusal(504, "Timeout", "Too large resource version: 9, current: 3"),
    ],
    ids=lambda r: f"{r.status} {r.reason}",
)
def test_a_version_that_the_server_does_not_know_is_listed_anew_from_the_newest(refusal: Refusal) -> None:
    cache = nodes("a", version=5)

    cache.fail(refusal)

    assert cache.wants_list
    assert "resourceVersion" not in cache.list_query()
    assert names(cache) == ["a"]  # what is known stays known meanwhile


def test_after_a_cut_the_watch_goes_on_from_the_newest_version() -> None:
    cache = nodes("a", version=5)
    cache.take_line(added(node("b"), 6), 2.0)

    cache.fail(CUT)

    assert not cache.wants_list
    assert cache.watch_query(300.0)["resourceVersion"] == "6"
    assert cache.watch_query(300.0)["allowWatchBookmarks"] == "true"


def test_after_the_server_was_away_all_is_listed_that_is_no_older_than_what_was_seen() -> None:
    cache = nodes("a", version=5)

    cache.fail(no_connection("10.0.0.1:6443", ConnectionRefusedError(errno.ECONNREFUSED, "refused")))

    assert cache.wants_list
    assert cache.list_query()["resourceVersion"] == "5", "an older store answers 504, and then the newest is listed"


def test_a_relist_tells_what_went_while_nobody_watched_and_is_silent_about_what_stayed() -> None:
    cache = nodes("gone", "stays", "changes", version=5)
    cache.fail(EXPIRED)

    cache.take_page(listed([node("stays"), node("changes", gpus=4), node("new")], version=9), 3.0, is_first=True)

    drained = cache.drain()
    assert sorted(drained) == ["changes", "gone", "new"]
    assert drained["gone"] is None


def test_a_cache_whose_store_went_back_asks_for_the_newest_list_and_takes_it_whatever_its_version() -> None:
    cache = nodes("came later", "stays", version=900)
    cache.drain()

    cache.start_over()

    assert (cache.is_synced, cache.wants_list) == (False, True)
    assert "resourceVersion" not in cache.list_query()
    cache.take_page(listed([node("stays"), node("was deleted later")], version=9), 3.0, is_first=True)
    assert cache.is_synced
    assert cache.watch_query(300.0)["resourceVersion"] == "9"
    assert sorted(cache.drain()) == ["came later", "was deleted later"]


def test_a_list_that_breaks_between_two_pages_leaves_no_trace() -> None:
    cache = nodes("a", version=5)
    cache.take_page(listed([node("b")], continue_="next"), 2.0, is_first=True)

    cache.fail(EXPIRED)
    cache.take_page(listed([node("c")], version=9), 3.0, is_first=True)

    assert names(cache) == ["c"]


def test_events_change_the_cache_and_are_told_once() -> None:
    cache = nodes("a", "b")

    cache.take_line(modified(node("a", gpus=4), 2), 2.0)
    cache.take_line(modified(node("a", gpus=2), 3), 2.0)
    cache.take_line(deleted(node("b"), 4), 2.0)
    cache.take_line(added(node("c"), 5), 2.0)

    drained = cache.drain()
    assert sorted(drained) == ["a", "b", "c"]
    assert drained["a"] is cache.get("a")
    assert drained["b"] is None
    assert cache.drain() == {}


def test_an_event_that_comes_twice_changes_nothing_the_second_time() -> None:
    told = []
    cache = Cache(NODES, lambda: told.append("changed"))
    cache.take_page(listed([node("a")]), 1.0, is_first=True)
    for line in (added(node("b"), 2), deleted(node("a"), 3)):
        cache.take_line(line, 2.0)
    cache.drain(), told.clear()

    for line in (added(node("b"), 2), deleted(node("a"), 3)):
        cache.take_line(line, 2.0)

    assert (cache.drain(), told, names(cache)) == ({}, [], ["b"])


def test_a_bookmark_moves_the_version_and_shows_that_the_server_is_there() -> None:
    cache = nodes("a", version=5)

    cache.take_line(bookmark(50), 99.0)

    assert cache.watch_query(300.0)["resourceVersion"] == "50"
    assert cache.seen_at_s == 99.0
    assert cache.drain() == {}


def test_an_error_in_the_stream_is_raised_with_what_the_server_said() -> None:
    with pytest.raises(KubeReadError, match="too old resource version") as caught:
        nodes("a").take_line(error(410, "Expired", "too old resource version: 1 (7)"), 2.0)

    assert (caught.value.refusal.status, caught.value.refusal.reason) == (410, "Expired")


@pytest.mark.parametrize("line", [b"{", b'{"type":"ADDED","object":{"metadata":{}}}', b'{"type":"NEW","object":{}}'])
def test_what_cannot_be_read_is_an_error_and_changes_nothing(line: bytes) -> None:
    cache = nodes("a", version=5)

    with pytest.raises(KubeReadError):
        cache.take_line(line, 2.0)

    assert (names(cache), cache.seen_at_s, cache.watch_query(1.0)["resourceVersion"]) == (["a"], 1.0, "5")


def test_pods_are_told_apart_by_namespace_and_known_by_the_fields_that_planning_reads() -> None:
    cache = pods()
    own = pod("p", labels={"tonnage.dev/gang": "g", "app": "x"}, annotations={"tonnage.dev/devices": "0", "other": "y"})
    far = {**pod("p"), "metadata": {"name": "p", "namespace": "far"}}

    cache.take_page(listed([own, far]), 1.0, is_first=True)

    assert sorted(cache.all()) == ["default/p", "far/p"]
    held = cache.get("default/p")
    assert held is not None
    assert (held.metadata.gang, held.metadata.annotations.devices) == ("g", "0")


def test_fields_and_values_that_a_later_release_adds_do_not_blind_it() -> None:
    cache = pods()
    later = pod("p", tolerations=[{"key": "k", "operator": "Gt", "value": "5"}], novelty={"a": [1]})

    cache.take_page(listed([later]), 1.0, is_first=True)
    cache.take_line(event("MODIFIED", later, 2), 2.0)

    assert sorted(cache.all()) == ["default/p"]
