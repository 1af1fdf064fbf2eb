"""Statuses of our own objects: an error in an object is in its status, and an unchanged status costs no write."""

import json
from typing import Any

import msgspec
from structlog.testing import capture_logs

from cluster.errors import Mistake
from cluster.plans import Plan
from controller.api.kinds import OWN_KINDS
from controller.api.structs import OwnObject
from controller.kube.sender import WriteJob
from controller.objects.own_objects import by_object
from controller.ports import Outcome
from controller.report.own_statuses import MOST_WRITES, GangFacts, ObjectFacts, Settled, StatusReports, status_jobs
from tests.builders.crd_cases import FULL, having
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import gang, gpu_type, node, pod, profile

RAW_TEXT = msgspec.Raw(b"[")
NOON_S = 1_772_366_400.0
BY_NAME = {kind.name: kind for kind in OWN_KINDS}


def stored(kind: str, **status: object) -> OwnObject:
    """An object as a watch brings it, of generation 2."""
    obj = having(FULL[kind], "status", status)
    obj["metadata"] = {"name": "full", "namespace": "ns", "uid": "u1", "generation": 2, "resourceVersion": "7"}
    return msgspec.json.decode(json.dumps(obj), type=OwnObject)


def told(kind: str, name: str, obj: OwnObject, *mistakes: Mistake, gang: GangFacts | None = None) -> list[Any]:
    facts = ObjectFacts(by_object(mistakes).get(f"{kind}/{name}", ()), gang=gang)
    return [job.write for job in status_jobs([(BY_NAME[kind], name, obj, facts)], NOON_S, {})]


def conditions(write: Any) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["message"]) for each in write.body["status"]["conditions"]}


def test_an_object_that_is_right_is_accepted_at_its_generation() -> None:
    (write,) = told("GPUType", "full", stored("GPUType"))

    assert write.path == "/apis/tonnage.dev/v1alpha1/gputypes/full/status"
    assert write.body["metadata"] == {"name": "full", "uid": "u1"}
    assert write.body["status"]["observedGeneration"] == 2
    assert conditions(write) == {"Accepted": ("True", "its fields and the objects that it names are valid")}


def test_what_was_said_already_is_not_written_again() -> None:
    (write,) = told("GPUType", "full", stored("GPUType"))

    assert told("GPUType", "full", stored("GPUType", **write.body["status"])) == []


def test_a_mistake_is_told_to_the_object_that_it_is_in() -> None:
    mistake = Mistake("ModelProfile/full, spec.gpuType", "there is no GPUType 'a100'")
    other = Mistake("ModelProfile/other, spec.gpuType", "there is no GPUType 'b'")

    (write,) = told("ModelProfile", "full", stored("ModelProfile"), mistake, other)

    assert conditions(write) == {"Accepted": ("False", "spec.gpuType: there is no GPUType 'a100'")}


def test_a_service_is_told_of_its_mistakes_and_keeps_the_rest_of_its_status() -> None:
    service = stored("ModelService", replicas={"a100": 2}, observedGeneration=1)
    mistake = Mistake("ModelService/ns/full, spec.gpuTypes[0]", "there is no GPUType 'a100'")

    (write,) = told("ModelService", "ns/full", service, mistake)

    assert write.path == "/apis/tonnage.dev/v1alpha1/namespaces/ns/modelservices/full/status"
    assert write.body["status"]["replicas"] == {"a100": 2}
    assert conditions(write)["Accepted"][0] == "False"
    assert told("ModelService", "ns/full", service) == []


def test_a_gang_says_how_it_stands() -> None:
    (write,) = told("Gang", "ns/full", stored("Gang"), gang=GangFacts(2, 2, placed=2, running=2))

    assert {kind: said for kind, (said, _) in conditions(write).items()} == {
        "Accepted": "True",
        "Planned": "True",
        "Ready": "True",
        "Degraded": "False",
    }
    assert (write.body["status"]["members"], write.body["status"]["running"]) == (2, 2)


def test_a_gang_that_changed_since_it_was_counted_is_told_of_in_the_next_cycle() -> None:
    """The full gang asks for 2 members; these facts are of the time when it asked for 5."""
    (write,) = told("Gang", "ns/full", stored("Gang"), gang=GangFacts(5))

    assert set(conditions(write)) == {"Accepted"}


def test_an_object_that_is_being_deleted_is_left_alone() -> None:
    gone = msgspec.structs.replace(
        stored("GPUType"),
        metadata=msgspec.structs.replace(stored("GPUType").metadata, deletion_timestamp="2026-03-01T12:00:00Z"),
    )

    assert told("GPUType", "full", gone) == []


def test_a_cluster_is_told_once_what_is_wrong_in_it_and_how_its_gangs_stand() -> None:
    member = {"tonnage.dev/gang": "train"}
    objects = [
        gpu_type("a100"),
        profile("right", "a100"),
        profile("wrong", "h100"),
        gang("train", 1),
        node("n1"),
        pod("p1", 1, on="n1", labels=member),
    ]
    live = LiveCluster(objects)
    reports = StatusReports(live.observer, live.caches, lambda name: name == "default/p1")

    def jobs(at_s: float) -> list[WriteJob]:
        return list(reports.jobs(live.observer.observe(), Plan(), Outcome(), {}, at_s))

    said = {job.about: job.write for job in jobs(NOON_S)}

    assert {about: conditions(write)["Accepted"][0] for about, write in said.items()} == {
        "GPUType/a100": "True",
        "ModelProfile/right": "True",
        "ModelProfile/wrong": "False",
        "Gang/default/train": "True",
    }
    assert "there is no GPUType 'h100'" in conditions(said["ModelProfile/wrong"])["Accepted"][1]
    assert conditions(said["Gang/default/train"])["Ready"] == ("True", "1 members run, 1 are required")

    live.put(
        *(
            {**obj, "status": said[about].body["status"]}
            for about, obj in zip(_abouts(objects), objects, strict=True)
            if about in said
        )
    )

    assert jobs(NOON_S + 60) == []


def test_one_namespace_s_thousands_leave_the_others_their_turn_and_all_are_told_in_the_end() -> None:
    def of(namespace: str, number: int) -> Any:
        return having(gang(f"g{number:04d}"), "metadata.namespace", namespace)

    live = LiveCluster([*(of("flood", n) for n in range(1000)), *(of("quiet", n) for n in range(3))])
    reports = StatusReports(live.observer, live.caches, lambda _: False)
    rounds: list[set[str]] = []

    while jobs := list(reports.jobs(live.observer.observe(), Plan(), Outcome(), {}, NOON_S)):
        rounds.append({job.about for job in jobs})
        for job in jobs:
            _, namespace, name = job.about.split("/")
            live.put({**of(namespace, int(name[1:])), "status": job.write.body["status"]})

    assert {f"Gang/quiet/g{n:04d}" for n in range(3)} <= rounds[0]
    assert max(map(len, rounds)) == MOST_WRITES
    assert len(rounds) == -(-1003 // MOST_WRITES)
    assert len(set.union(*rounds)) == 1003


def _abouts(objects: list[Any]) -> list[str]:
    inside = {"Gang": "default/", "Pod": "default/"}
    return [f"{obj['kind']}/{inside.get(obj['kind'], '')}{obj['metadata']['name']}" for obj in objects]


def test_a_status_is_computed_again_only_when_something_changed() -> None:
    """One that cannot be computed is told of once, not in every cycle."""
    settled: Settled = {}
    whole = GangFacts(2, 2, placed=2, running=2)

    def cycle(obj: OwnObject, gang: GangFacts) -> tuple[int, int]:
        """(writes, statuses that could not be computed)."""
        with capture_logs() as lines:
            jobs = status_jobs([(BY_NAME["Gang"], "ns/full", obj, ObjectFacts(gang=gang))], NOON_S, settled)
            return len(list(jobs)), len(lines)

    (write,) = told("Gang", "ns/full", stored("Gang"), gang=whole)
    right, broken = stored("Gang", **write.body["status"]), msgspec.structs.replace(stored("Gang"), status=RAW_TEXT)

    assert [cycle(right, whole), cycle(right, whole)] == [(0, 0), (0, 0)]
    assert cycle(right, GangFacts(2, 2, placed=1, running=1)) == (1, 0)
    assert [cycle(broken, whole), cycle(broken, whole)] == [(0, 1), (0, 0)]
    assert cycle(right, whole) == (0, 0)
    assert list(status_jobs([], NOON_S, settled)) == []
    assert settled == {}


def test_a_failed_removal_of_routes_is_tried_again() -> None:
    """The status is of the new generation only by the write that follows all removals of the same subject."""
    obj = stored("ModelService", observedGeneration=1)
    spec = {name: each for name, each in FULL["ModelService"]["spec"].items() if name != "routes"}
    gone = msgspec.structs.replace(obj, spec=msgspec.Raw(json.dumps(spec).encode()))
    mistake = Mistake("ModelService/ns/full, spec.gpuTypes[0]", "there is no GPUType 'a100'")
    facts = ObjectFacts((mistake,), publishes=True)

    def jobs(of: OwnObject) -> list[WriteJob]:
        return list(status_jobs([(BY_NAME["ModelService"], "ns/full", of, facts)], NOON_S, {}))

    *removals, after, before = jobs(gone)
    assert [each.write.method for each in removals] == ["DELETE", "DELETE"]
    assert {each.about for each in (*removals, after)} == {"ModelService/ns/full routes"}
    told_of: list[Any] = [after.write.body, before.write.body]
    assert [each["status"]["observedGeneration"] for each in told_of] == [2, 1]
    # The removal failed: all that is written is what is due again. It succeeded: nothing is.
    failed, done = (
        msgspec.structs.replace(gone, status=msgspec.Raw(json.dumps(each["status"]).encode())) for each in told_of[::-1]
    )
    assert [each.write.method for each in jobs(failed)] == ["DELETE", "DELETE", "PATCH"]
    assert jobs(done) == []
