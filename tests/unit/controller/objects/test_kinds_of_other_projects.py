"""Objects of other projects in files stand for the pods that their controllers would make, and for their groups."""

import io
import json
from typing import Any

import pytest

from controller.objects.manifests import read_manifests
from controller.snapshot.from_manifests import snapshot_from
from tests.builders.manifests import Object, node

GPUS = {"limits": {"nvidia.com/gpu": 4}}
POD = {"containers": [{"name": "c", "image": "i", "resources": GPUS}]}
TEMPLATE = {"spec": POD}
RAY = {
    "headGroupSpec": {"template": {"spec": {"containers": [{"name": "h", "image": "i"}]}}},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "minReplicas": 2, "template": TEMPLATE}],
}


def of(kind: str, version: str, spec: dict[str, Any]) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, "spec": spec}


# Pods with four GPUs each, and the sizes of the gangs.
KINDS: dict[str, tuple[Object, int, list[int]]] = {
    "CronJob": (
        of(
            "CronJob", "batch/v1", {"jobTemplate": {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}}
        ),
        2,
        [],
    ),
    "InferenceService": (
        of(
            "InferenceService",
            "serving.kserve.io/v1beta1",
            {"predictor": {"minReplicas": 2, "model": {"modelFormat": {"name": "huggingface"}, "resources": GPUS}}},
        ),
        2,
        [],
    ),
    "InferenceService on several nodes": (
        of(
            "InferenceService",
            "serving.kserve.io/v1beta1",
            {"predictor": {"model": {"resources": GPUS}, "workerSpec": {"pipelineParallelSize": 3, **POD}}},
        ),
        3,
        [],
    ),
    "DisaggregatedSet": (
        of(
            "DisaggregatedSet",
            "disaggregatedset.x-k8s.io/v1",
            {
                "slices": 2,
                "roles": [
                    {"name": "prefill", "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}}},
                    {
                        "name": "decode",
                        "spec": {"replicas": 3, "leaderWorkerTemplate": {"size": 1, "workerTemplate": TEMPLATE}},
                    },
                ],
            },
        ),
        2 * (2 + 3),
        [2, 2],
    ),
    "LLMInferenceService": (
        of(
            "LLMInferenceService",
            "serving.kserve.io/v1alpha1",
            {"replicas": 2, "template": POD, "prefill": {"replicas": 3, "template": POD}},
        ),
        5,
        [],
    ),
    "LLMInferenceService on several nodes": (
        of(
            "LLMInferenceService",
            "serving.kserve.io/v1alpha1",
            {"replicas": 2, "template": POD, "worker": POD, "parallelism": {"data": 16, "dataLocal": 8}},
        ),
        4,
        [],
    ),
    "TrainJob": (
        of(
            "TrainJob",
            "trainer.kubeflow.org/v1alpha1",
            {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 3, "resourcesPerNode": GPUS}},
        ),
        3,
        [3],
    ),
    "Volcano Job": (
        of(
            "Job",
            "batch.volcano.sh/v1alpha1",
            {"minAvailable": 2, "tasks": [{"name": "w", "replicas": 3, "template": TEMPLATE}]},
        ),
        3,
        [2],
    ),
    "StormService": (
        of(
            "StormService",
            "orchestration.aibrix.ai/v1alpha1",
            {
                "replicas": 2,
                "template": {
                    "spec": {
                        "roles": [
                            {"name": "prefill", "replicas": 1, "template": TEMPLATE},
                            {"name": "decode", "replicas": 2, "template": TEMPLATE},
                        ]
                    }
                },
            },
        ),
        6,
        [],
    ),
    "RayClusterFleet": (
        of("RayClusterFleet", "orchestration.aibrix.ai/v1alpha1", {"replicas": 2, "template": {"spec": RAY}}),
        4,
        [3, 3],
    ),
    "RayCronJob": (of("RayCronJob", "ray.io/v1", {"jobTemplate": {"rayClusterSpec": RAY}}), 2, [3]),
    "PodCliqueSet": (
        of(
            "PodCliqueSet",
            "grove.io/v1alpha1",
            {
                "replicas": 2,
                "template": {
                    "cliques": [
                        {"name": "prefill", "spec": {"replicas": 2, "podSpec": POD}},
                        {"name": "decode", "spec": {"replicas": 2, "minAvailable": 1, "podSpec": POD}},
                    ],
                    "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["decode"], "replicas": 2}],
                },
            },
        ),
        12,
        [3, 3],
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_workload_of_another_project_is_planned_as_its_pods_and_its_groups(name: str) -> None:
    written, pods, gangs = KINDS[name]
    text = io.StringIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node(gpus=8), written]}))

    now = snapshot_from(read_manifests(["-"], text)).snapshot

    shapes = [now.pods.shapes[number] for number in now.pods.shape.tolist()]
    assert [shape.gpus for shape in shapes if shape.gpus] == [4] * pods
    assert [gang.min_members for gang in now.gangs] == gangs
    assert not now.left_out


def test_a_train_job_that_leaves_its_pods_to_its_runtime_is_named_and_refuses_nothing() -> None:
    written = of("TrainJob", "trainer.kubeflow.org/v1alpha1", {"runtimeRef": {"name": "torch"}, "trainer": {}})
    text = io.StringIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node(gpus=8), written]}))

    (note,) = read_manifests(["-"], text).notes

    assert (note.about, note.reason.code) == ("TrainJob (trainer.kubeflow.org/v1alpha1)", "KindNotRead")


def test_a_fraction_of_a_gpu_as_kai_writes_it_is_planned_from_files() -> None:
    annotations = {"gpu-fraction": "0.25"}
    asked = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "schedulerName": "kai-scheduler"}}  # fmt: skip
    text = io.StringIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node(gpus=8), asked]}))

    now = snapshot_from(read_manifests(["-"], text)).snapshot

    assert [(shape.gpus, shape.gpu_milli) for shape in now.pods.shapes] == [(1, 250)]
    assert not now.left_out
