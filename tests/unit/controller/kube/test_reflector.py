"""Reflector: keeps a cache up to date through every failure, against a fake transport."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from controller.api.structs import Node
from controller.kube.cache import STARTING, Cache, Resource, WatchSurroundings, WatchTimes, reflect
from controller.kube.request import Refusal
from controller.kube_world.observer import NODES
from tests.builders.manifests import node
from tests.builders.watch_events import CUT, EXPIRED, added, bookmark, deleted, error, listed, modified
from tests.clock import HandClock
from tests.unit.controller.kube.fake_transport import FakeTransport, Listed, Refused, ScriptOverError, Watched

RHYTHM = WatchTimes()
ABSENT = Refusal(404, "NotFound", "the server could not find the requested resource")


def run(
    *script: Listed | Watched | Refused,
    step_s: float = 0.0,
    resource: Resource[Node] = NODES,
    went_back: Callable[[], None] = lambda: None,
) -> tuple[Cache[Node], FakeTransport, HandClock]:
    """A reflector from its start to the end of the script."""
    cache, transport, clock = Cache(resource), FakeTransport(list(script)), HandClock(1000.0, step_s)
    around = WatchSurroundings(clock, clock.sleep, Random(1), went_back)  # noqa: S311  # jitter
    with pytest.raises(ScriptOverError):
        asyncio.run(reflect(cache, transport, RHYTHM, around))
    return cache, transport, clock


def versions(transport: FakeTransport) -> list[str]:
    """How each request asked: `list 0`, `watch 5`; a list without a version asks for the newest."""
    return [
        f"{'watch' if 'watch' in query else 'list'} {query.get('resourceVersion', 'newest')}"
        for _, query in transport.asked
    ]


def test_it_lists_once_and_then_watches_on_and_on_from_where_it_was() -> None:
    cache, transport, clock = run(
        Listed(listed([node("a")], version=5)),
        Watched((added(node("b"), 6), bookmark(8))),
        Watched((modified(node("b", gpus=4), 9),)),
    )

    assert versions(transport) == ["list 0", "watch 5", "watch 8"]
    assert sorted(cache.all()) == ["a", "b"]
    assert clock.sleeps_s == []


def test_a_list_of_many_pages_is_read_to_the_end() -> None:
    cache, transport, _ = run(
        Listed(listed([node("a")], continue_="x")),
        Listed(listed([node("b")], continue_="y")),
        Listed(listed([node("c")])),
    )

    assert [query.get("continue") for _, query in transport.asked] == [None, "x", "y"]
    assert sorted(cache.all()) == ["a", "b", "c"]


def test_after_a_cut_connection_it_waits_and_watches_on_without_a_list() -> None:
    cache, transport, clock = run(
        Listed(listed([node("a")], version=5)), Watched((deleted(node("a"), 6),), broken=CUT), Watched((bookmark(7),))
    )

    assert versions(transport) == ["list 0", "watch 5", "watch 6"]
    # The first wait is 0.8 s, of which chance leaves half at least.
    assert [0.4 <= wait_s <= 0.8 for wait_s in clock.sleeps_s] == [True]
    assert (cache.all(), cache.trouble) == ({}, "")


@pytest.mark.parametrize(
    "lost",
    [Watched((error(410, "Expired", "too old"),)), Watched(broken=EXPIRED), Refused(EXPIRED)],
    ids=["in the stream", "breaking it", "as the answer"],
)
def test_a_version_that_was_lost_is_listed_anew_at_once(lost: Watched | Refused) -> None:
    cache, transport, clock = run(
        Listed(listed([node("a")], version=5)), lost, Listed(listed([node("b")], version=9)), Watched((bookmark(9),))
    )

    assert versions(transport) == ["list 0", "watch 5", "list newest", "watch 9"]
    assert clock.sleeps_s == [0.0]
    assert sorted(cache.all()) == ["b"]


@pytest.mark.parametrize(
    ("lost", "times"), [(Refusal(504, "Timeout", "Too large resource version: 5, current: 3"), 1), (EXPIRED, 0)]
)
def test_a_server_that_is_behind_what_one_cache_knows_is_told_for_all(lost: Refusal, times: int) -> None:
    """Others may know objects that are no more, from versions that the server has again."""
    told = list[int]()

    run(Listed(listed([node("a")], version=5)), Refused(lost), went_back=lambda: told.append(1))

    assert len(told) == times


def test_in_a_storm_of_lost_versions_it_waits_longer_and_longer() -> None:
    storm = [Listed(listed(version=5)), Refused(EXPIRED)] * 4

    _, _, clock = run(*storm)

    assert clock.sleeps_s[0] == 0.0
    # Doubling from 1.6 s, of each of which chance leaves between half and all.
    assert [
        0.5 <= wait_s / full_s <= 1.0 for wait_s, full_s in zip(clock.sleeps_s[1:], (1.6, 3.2, 6.4), strict=True)
    ] == [True] * 3


def test_no_wait_is_longer_than_the_longest() -> None:
    _, _, clock = run(*[Refused(CUT)] * 12)

    assert len(clock.sleeps_s) == 12
    assert max(clock.sleeps_s) <= RHYTHM.longest_wait_s


def test_a_failure_after_a_long_calm_counts_as_the_first() -> None:
    calm = Watched((bookmark(6),) * 70, broken=CUT)

    _, _, clock = run(Listed(listed(version=5)), calm, calm, calm, step_s=1.0)

    assert max(clock.sleeps_s) <= RHYTHM.first_wait_s


def test_a_watch_that_is_cut_again_and_again_but_tells_something_is_asked_anew_soon() -> None:
    cut = Watched((bookmark(6),), broken=CUT)

    _, _, clock = run(Listed(listed(version=5)), *[cut] * 8)

    assert len(clock.sleeps_s) == 8
    assert max(clock.sleeps_s) <= RHYTHM.first_wait_s


def test_a_server_that_names_a_time_is_given_it() -> None:
    _, _, clock = run(Refused(Refusal(429, "TooManyRequests", "slow down", retry_after_s=17.0)))

    assert clock.sleeps_s == [17.0]


@pytest.mark.parametrize("asked_s", [86_400.0, float("inf")])
def test_a_server_that_names_a_day_is_asked_again_within_a_minute(asked_s: float) -> None:
    refusal = Refusal(503, "Unknown", "status 503: maintenance", retry_after_s=asked_s)

    _, _, clock = run(Listed(listed(version=5)), Refused(refusal))

    assert clock.sleeps_s == [60.0]


def test_after_a_watch_that_ended_at_once_without_a_word_all_is_listed_anew_and_not_at_once() -> None:
    """The server's store may have gone back to a version that such a watch would be silent at."""
    again = (Watched(), Listed(listed([node("a")], version=4)))
    cache, _, clock = run(Listed(listed(version=5)), *again, *again)

    assert len(clock.sleeps_s) == 2
    assert all(clock.sleeps_s)
    assert sorted(cache.all()) == ["a"]


def test_what_is_known_stays_and_the_trouble_is_told_while_the_server_is_away() -> None:
    cache, _, _ = run(Listed(listed([node("a")], version=5)), Refused(CUT), Refused(CUT))

    assert sorted(cache.all()) == ["a"]
    assert (cache.is_synced, cache.failures, cache.trouble) == (True, 2, CUT.words)
    assert cache.seen_at_s == 1000.0


def optional(*script: Listed | Watched | Refused) -> tuple[Cache[Node], FakeTransport, HandClock]:
    return run(*script, resource=replace(NODES, is_optional=True))


def test_an_optional_kind_that_is_not_served_has_no_objects_and_is_tried_again() -> None:
    cache, _, clock = optional(Refused(ABSENT), Listed(listed([node("a")], version=5)), Refused(CUT))

    assert RHYTHM.absent_s / 2 <= clock.sleeps_s[0] <= RHYTHM.absent_s
    assert (cache.is_absent, list(cache.all())) == (False, ["a"])


def test_an_optional_kind_that_was_read_is_kept_while_a_starting_server_refuses_it() -> None:
    read = (Listed(listed([node("a")], version=5)), *[Refused(ABSENT)] * STARTING)
    starting, _, _ = optional(*read)
    gone, _, _ = optional(*read, Refused(ABSENT))

    assert (starting.is_absent, list(starting.all())) == (False, ["a"])
    assert (gone.is_absent, list(gone.all())) == (True, [])
