"""The page of one object."""

from typing import Any

from cli.printing.object_pages import Related, page

SERVICE: dict[str, Any] = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "ModelService",
    "metadata": {"name": "chat", "namespace": "ns", "generation": 3, "creationTimestamp": "1970-01-01T00:00:00Z"},
    "spec": {"model": "small-8b", "slo": {"tpot": "40ms"}, "demand": {"requestsPerSecond": 3}},
    "status": {
        "observedGeneration": 2,
        "costPerHour": 4.0,
        "boundPerHour": 3.0,
        "gap": 0.25,
        "replicas": {"l4": 2},
        "running": {"l4": 1},
        "routing": {
            "inputTokens": [512],
            "outputTokens": [256],
            "weights": [{"gpuType": "l4", "share": [[0.25]]}, {"gpuType": "a100", "share": [[0.75]]}],
        },
    },
}


def pod(name: str, node: str = "", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node, **spec}, "status": {"phase": "Running"}}


def words(obj: dict[str, Any], related: Related | None = None) -> str:
    """With single spaces: where columns stand is said elsewhere."""
    return "\n".join(" ".join(line.split()) for line in page(obj, related or Related(), now_s=60.0).splitlines())


def test_a_service_shows_cost_proof_mix_and_routing() -> None:
    text = words(SERVICE)

    assert "Cost: $4.00 per hour; no mix costs less than $3.00 (gap 25.00 %)" in text
    assert "l4 2 1" in text
    assert "≤ 512 ≤ 256 25 75" in text


def test_an_outdated_status_is_marked() -> None:
    assert "Generation: 3 (Tonnage has seen 2)" in words(SERVICE)


def test_a_pod_that_waits_shows_what_was_said_last_of_it() -> None:
    def warned(at: str, note: str) -> dict[str, Any]:
        return {"metadata": {"name": at}, "type": "Warning", "reason": "NoGpuFree", "note": note, "eventTime": at}

    said = [warned("1970-01-01T00:00:20Z", "newer"), warned("1970-01-01T00:00:10Z", "older")]
    pods = (pod("runs", "n1"), pod("waits"), pod("gated", schedulingGates=[{"name": "example.com/quota"}]))

    text = words(SERVICE, Related(pods=pods, pod_events={"waits": said}))

    assert "runs n1 - - Running" in text
    assert "waits NoGpuFree: newer" in text
    assert "gated waits for example.com/quota" in text


def test_an_object_that_ends_shows_what_holds_it() -> None:
    ending = {**SERVICE["metadata"], "deletionTimestamp": "1970-01-01T00:00:30Z", "finalizers": ["example.com/books"]}

    assert "Deleting: since 1970-01-01T00:00:30Z, held by example.com/books" in words({**SERVICE, "metadata": ending})


def test_a_service_without_a_plan_is_marked() -> None:
    text = words({**SERVICE, "status": {}})

    assert "Cost: not planned yet" in text
    assert "not seen by Tonnage yet" in text
