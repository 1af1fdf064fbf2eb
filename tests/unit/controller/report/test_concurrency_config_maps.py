"""Published limits of concurrency: the one in force, in the ConfigMap that its policy names, and again in a while."""

from typing import Any

from cluster.autoscaling import BanditState, ConcurrencyLimit, ConcurrencyTuning, Scaler
from controller.report.scaling_status import (
    AGAIN_S,
    Published,
    concurrency_claim,
    concurrency_status_after,
    limit_writes,
)
from tests.builders.scalers import NOW_S, scaler


def tuned(name: str = "ns/chat", *, follows: bool = True, mode: str = "Auto", config_map: str = "ns/limit") -> Scaler:
    """Scaler with a limit of 16 that was decided, and one of 8 that the replicas began with."""
    tuning = ConcurrencyTuning(5.0, 1, 64, start=8, wanted=16, follows=follows, config_map=config_map)
    return scaler(name=name, mode=mode, concurrency=tuning)


def decided(limit: int) -> ConcurrencyLimit:
    return ConcurrencyLimit("ns/chat", NOW_S, limit, "Raised", "", BanditState())


def sent(published: Published, *scalers: Scaler, limits: Any = (), at_s: float = NOW_S) -> dict[str, str]:
    """Limit by path of each write."""
    writes = [job.write for job in published.jobs(limit_writes(scalers, limits), at_s)]
    return {write.path: write.body["data"]["concurrency"] for write in writes if isinstance(write.body, dict)}


PATH = "/api/v1/namespaces/ns/configmaps/limit"


def test_the_limit_in_force_is_applied_to_the_config_map_without_taking_over_what_others_wrote() -> None:
    (job,) = Published().jobs(limit_writes([tuned()], []), NOW_S)

    assert (job.write.method, job.write.path) == ("PATCH", PATH)
    assert job.write.body == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "limit", "namespace": "ns"},
        "data": {"concurrency": "16"},
    }
    assert job.write.query == {"fieldManager": "tonnage-concurrency"}


def test_a_recommendation_is_not_published_but_what_the_replicas_are_configured_with() -> None:
    assert sent(Published(), tuned(follows=False), limits=[decided(20)]) == {PATH: "8"}


def test_a_policy_that_is_off_or_names_no_config_map_publishes_nothing() -> None:
    assert sent(Published(), tuned(mode="Off"), tuned("ns/b", config_map=""), scaler(name="ns/c")) == {}


def test_a_new_limit_is_sent_at_once_and_an_old_one_again_after_a_minute() -> None:
    published = Published()

    assert sent(published, tuned()) == {PATH: "16"}
    assert sent(published, tuned(), at_s=NOW_S + 15.0) == {}
    assert sent(published, tuned(), limits=[decided(20)], at_s=NOW_S + 30.0) == {PATH: "20"}
    assert sent(published, tuned(), limits=[decided(20)], at_s=NOW_S + 30.0 + AGAIN_S) == {PATH: "20"}


def test_of_two_policies_with_one_config_map_the_first_by_name_counts() -> None:
    assert sent(Published(), tuned("ns/z", follows=False), tuned("ns/a")) == {PATH: "16"}


def test_a_limit_that_no_one_can_read_is_told() -> None:
    tuning = tuned().concurrency
    assert tuning is not None
    status = concurrency_status_after(None, tuning, decided(20))
    assert status is not None

    _, verdict, reason = concurrency_claim(tuning, status, publishes=False)

    assert (verdict, reason.code) == ("False", "NotPublished")
    assert "autoscaler.configMaps" in reason.words
    assert concurrency_claim(tuning, status, publishes=True)[2].code == "Raised"
