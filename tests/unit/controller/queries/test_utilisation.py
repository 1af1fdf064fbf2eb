"""Utilisation of pods from answers of Prometheus, whatever exporter wrote them."""

import json

import pytest

from controller.loops.autoscaler.prometheus import series_in
from controller.queries.holders import used_share_by_pod


def series(name: str, value: float, **labels: str) -> tuple[dict[str, str], float]:
    return {"__name__": name, **labels}, value


def test_the_pod_that_holds_a_device_is_not_the_exporters_own() -> None:
    labels = {"namespace": "gpu-operator", "pod": "dcgm-x", "exported_namespace": "team", "exported_pod": "train-0"}

    assert used_share_by_pod([series("DCGM_FI_DEV_GPU_UTIL", 40.0, **labels)]) == {"team/train-0": pytest.approx(0.4)}


def test_the_busiest_device_of_a_pod_counts_and_series_have_their_own_units() -> None:
    pod = {"namespace": "a", "pod": "p"}
    of_pod = [series("DCGM_FI_DEV_GPU_UTIL", 2.0, **pod), series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.3, **pod)]
    others = [series("gpu_gfx_activity", 50.0, namespace="a", pod="amd"), series("DCGM_FI_DEV_GPU_UTIL", 9.0, gpu="0")]

    assert used_share_by_pod([*of_pod, *others]) == {"a/p": pytest.approx(0.3), "a/amd": pytest.approx(0.5)}


def test_a_saved_answer_is_read_as_the_servers() -> None:
    result = [
        {"metric": {"__name__": "neuroncore_utilization_ratio", "namespace": "a", "pod": "p"}, "value": [1, "0.02"]}
    ]
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()

    assert used_share_by_pod((each.labels, each.points[-1][1]) for each in series_in(body)) == {
        "a/p": pytest.approx(0.02)
    }
