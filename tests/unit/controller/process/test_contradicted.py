"""Objects that the API server has with another identity than the watches showed."""

import pytest

from controller.process import cluster
from controller.process.cluster import FORGOTTEN_S, LATE_EVENT_S, WatchedCluster

ONE, ANOTHER = "/api/v1/namespaces/a/pods/one", "/api/v1/namespaces/a/pods/another"


class _Watches(WatchedCluster):
    """Nothing but what is asked; no connection."""

    def __init__(self) -> None:
        self._contradicted = ("", float("-inf"))
        self.lists = 0

    def _watch_anew(self) -> None:
        self.lists += 1


@pytest.mark.parametrize(
    ("refused", "lists"),
    [
        ([(0.0, ONE)], 0),
        ([(0.0, ONE), (LATE_EVENT_S - 1, ONE)], 0),
        ([(0.0, ONE), (LATE_EVENT_S, ONE)], 1),
        ([(0.0, ONE), (LATE_EVENT_S, ANOTHER)], 0),
        ([(0.0, ONE), (5.0, ANOTHER), (LATE_EVENT_S, ONE)], 1),
        ([(0.0, ONE), (FORGOTTEN_S, ANOTHER), (FORGOTTEN_S + LATE_EVENT_S, ANOTHER)], 1),
        ([(0.0, ONE), (LATE_EVENT_S, ONE), (LATE_EVENT_S + 1, ONE), (2 * LATE_EVENT_S + 1, ONE)], 2),
    ],
)
def test_all_is_listed_anew_where_one_object_stays_contradicted(
    refused: list[tuple[float, str]], lists: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches = _Watches()
    for at_s, path in refused:
        monkeypatch.setattr(cluster, "boot_time_s", lambda now_s=at_s: now_s)
        watches.contradicted(path)
    assert watches.lists == lists
