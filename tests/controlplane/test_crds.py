"""Our kinds as a real API server serves them: every rule and bound, merging, pruning, explaining, printing."""

import asyncio
import json
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import msgspec
import pytest
import yaml

from cluster.errors import ActionError, Mistake
from controller.api.kinds import OWN_KINDS
from controller.api.structs import OwnObject
from controller.kube.connection import connect
from controller.kube.credentials import ApiAccess
from controller.kube.sender import Applier, Write
from controller.objects.documents import read_documents
from controller.report.own_statuses import GangFacts, ObjectFacts, status_jobs
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane
from tests.builders.crd_cases import FULL, LARGEST, RULE_CASES, Case, Object, all_bound_cases, having
from tests.builders.leading import Leading
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import until
from tests.controlplane.plain_api import APPLY_PATCH, MERGE_PATCH, TABLE, Answer, PlainApi
from tests.controlplane.servers import StartServer
from tests.generated.crd_files import FOLDER

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BY_NAME = {kind.name: kind for kind in OWN_KINDS}
DRY = {"dryRun": "All", "fieldValidation": "Strict"}


def path_of(kind: str, name: str = "") -> str:
    inside = "/namespaces/default" if BY_NAME[kind].is_namespaced else ""
    whole = f"/apis/tonnage.dev/v1alpha1{inside}/{BY_NAME[kind].plural}"
    return f"{whole}/{name}" if name else whole


def create(api: PlainApi, obj: Object, **query: str) -> Answer:
    return api.send("POST", path_of(obj["kind"]), obj, query=query)


def update_status(api: PlainApi, obj: Object, **query: str) -> Answer:
    """The object's status as Tonnage writes it. A replacement, because null in a merge patch means a field less."""
    path = path_of(obj["kind"], obj["metadata"]["name"])
    there = api.send("GET", path).body
    return api.send("PUT", f"{path}/status", {**there, "status": obj["status"]}, query=query)


def apply(api: PlainApi, obj: Object, manager: str, **query: str) -> Answer:
    path = path_of(obj["kind"], obj["metadata"]["name"])
    return api.send("PATCH", path, obj, content_type=APPLY_PATCH, query={"fieldManager": manager, **query})


def named(obj: Object, name: str) -> Object:
    return having(obj, "metadata.name", name)


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> ControlPlane:
    """Of its own: definitions hold for a whole server, and what is tried here would disturb others."""
    return start_server(ControlPlaneSettings())


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    return Kubectl(programs["kubectl"], server.kubeconfig)


@pytest.fixture(scope="module")
def api(server: ControlPlane) -> Iterator[PlainApi]:
    """The server with our definitions, and one full object of each kind."""
    line = PlainApi(server.kubeconfig)
    for file in sorted((ROOT / FOLDER).glob("*.yaml")):
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))
        where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
        query = {"fieldManager": "tests", "force": "true"}
        answer = line.send("PATCH", where, definition, content_type=APPLY_PATCH, query=query)
        assert answer.is_ok, answer.message
    wait_until_served(line)
    for full in FULL.values():
        answer = create(line, full)
        assert answer.is_ok, answer.message
    yield line
    line.close()


def wait_until_served(line: PlainApi) -> None:
    """Asks until every kind answers: a definition is served a moment after it was taken."""
    for kind in BY_NAME:
        assert any(line.send("GET", path_of(kind)).is_ok for _ in range(2000)), f"{kind} is not served"


@pytest.mark.parametrize("kind", sorted(BY_NAME))
def test_the_server_takes_our_definition_whole(api: PlainApi, kind: str) -> None:
    """NonStructuralSchema would switch pruning, defaults and rules off."""
    where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{BY_NAME[kind].definition}"

    said = {each["type"]: each["status"] for each in api.send("GET", where).body["status"]["conditions"]}

    assert (said["Established"], said["NamesAccepted"], said.get("NonStructuralSchema")) == ("True", "True", None)


def judged(api: PlainApi, case: Case, obj: Object) -> Answer:
    """What the server says to this object in place of the one before it. Nothing is stored."""
    if case.about.startswith("status."):
        return update_status(api, obj, **DRY)
    if case.before is None:
        return create(api, named(obj, "tried") if obj["metadata"]["name"] == "full" else obj, **DRY)
    path = path_of(obj["kind"], "full")
    there = api.send("GET", path).body
    return api.send("PUT", path, {**obj, "metadata": {**there["metadata"], **obj["metadata"]}}, query=DRY)


@pytest.mark.parametrize("case", [*RULE_CASES, *all_bound_cases()], ids=lambda case: case.id)
def test_the_server_takes_what_is_right_and_says_what_is_wrong(api: PlainApi, case: Case) -> None:
    right = judged(api, case, case.good)
    wrong = judged(api, case, case.bad)

    assert right.is_ok, right.message
    assert wrong.status == 422, wrong.body
    assert case.said in wrong.message
    # Whoever reads the message finds the field.
    path = case.about.split(" ")[0]
    assert path.rpartition(".")[2].replace("[]", "") in wrong.message


@pytest.mark.parametrize("kind", sorted(LARGEST))
def test_rules_are_not_too_dear_for_the_largest_object(api: PlainApi, kind: str) -> None:
    answer = create(api, named(LARGEST[kind], "largest"), **DRY)

    assert answer.is_ok, answer.message[:2000]
    assert answer.body["spec"] is not None


@pytest.mark.parametrize("kind", sorted(BY_NAME))
def test_a_field_that_does_not_exist_is_refused_or_dropped_with_a_warning(api: PlainApi, kind: str) -> None:
    misspelt = having(named(FULL[kind], "misspelt"), "spec.sloo", 1)

    strict = create(api, misspelt, dryRun="All", fieldValidation="Strict")
    warned = create(api, misspelt, dryRun="All", fieldValidation="Warn")

    assert (strict.status, 'unknown field "spec.sloo"' in strict.message) == (400, True)
    assert warned.is_ok
    assert "sloo" not in warned.body["spec"]
    assert any('unknown field \\"spec.sloo\\"' in warning for warning in warned.warnings), warned.warnings


def test_what_is_left_out_gets_its_default_from_the_server(api: PlainApi) -> None:
    little = named(FULL["ModelService"], "little")
    for field in ("spot", "split", "sliceFactor", "instance", "priority", "template", "headroom"):
        little = having(little, f"spec.{field}", ...)

    spec = create(api, little, **DRY).body["spec"]

    assert {key: spec.get(key) for key in ("spot", "split", "sliceFactor", "instance", "priority", "headroom")} == {
        "spot": False,
        "split": "sliced",
        "sliceFactor": 8,
        "instance": {"cpu": "0", "memory": "0"},
        "priority": 0,
        "headroom": None,
    }


def test_null_is_a_field_that_was_left_out(api: PlainApi) -> None:
    answer = create(api, having(named(FULL["GPUType"], "null"), "spec.inventory", None), **DRY)

    assert answer.is_ok, answer.message
    assert "inventory" not in answer.body["spec"]


def test_a_new_object_has_no_status_and_nobody_writes_one_with_the_spec(api: PlainApi) -> None:
    answer = create(api, named(FULL["ModelService"], "new"), **DRY)

    assert "status" not in answer.body


def test_a_status_counts_no_generation_and_a_spec_does(api: PlainApi) -> None:
    full = FULL["ModelService"]
    path = path_of("ModelService", "full")
    before = api.send("GET", path).body["metadata"]["generation"]

    told = update_status(api, full)
    changed = api.send("PATCH", path, {"spec": {"sliceFactor": 9}}, content_type=MERGE_PATCH)

    assert told.body["metadata"]["generation"] == before
    assert changed.body["metadata"]["generation"] == before + 1


@pytest.fixture
def merged(api: PlainApi) -> Iterator[str]:
    """The name of a service that is removed again."""
    yield "merged"
    api.send("DELETE", path_of("ModelService", "merged"))


def bare(name: str, **spec: object) -> Object:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": name},
        "spec": {"model": "m", "slo": {"tpot": "40ms"}, **spec},
    }


def test_two_appliers_each_add_to_a_set(api: PlainApi, merged: str) -> None:
    apply(api, bare(merged, gpuTypes=["a100"]), "one")
    answer = apply(api, bare(merged, gpuTypes=["l4"]), "two")

    assert (answer.status, answer.body["spec"]["gpuTypes"]) == (200, ["a100", "l4"])


def test_two_appliers_each_own_fields_of_one_container(api: PlainApi, merged: str) -> None:
    def container(**fields: object) -> dict[str, object]:
        return {"spec": {"containers": [{"name": "server", **fields}]}}

    apply(api, bare(merged, template=container(image="vllm:1")), "one")
    answer = apply(api, bare(merged, template=container(args=["--port=1"])), "two")

    assert answer.body["spec"]["template"]["spec"]["containers"] == [
        {"name": "server", "image": "vllm:1", "args": ["--port=1"]}
    ]


def test_two_appliers_each_say_a_condition(api: PlainApi, merged: str) -> None:
    apply(api, bare(merged), "one")
    path = f"{path_of('ModelService', merged)}/status"
    answer = None
    for kind in ("Ready", "Degraded"):
        condition = {**FULL["ModelService"]["status"]["conditions"][0], "type": kind}
        told = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "status": {"conditions": [condition]}}
        told["metadata"] = {"name": merged}
        answer = api.send("PATCH", path, told, content_type=APPLY_PATCH, query={"fieldManager": f"says-{kind}"})

    assert answer is not None
    assert [each["type"] for each in answer.body["status"]["conditions"]] == ["Ready", "Degraded"]


def test_two_appliers_who_want_different_things_are_told_so(api: PlainApi, merged: str) -> None:
    apply(api, bare(merged, sliceFactor=4), "one")
    answer = apply(api, bare(merged, sliceFactor=5), "two")

    assert (answer.status, 'conflict with "one"' in answer.message) == (409, True)
    assert ".spec.sliceFactor" in answer.message


def test_what_was_applied_twice_is_stored_once(api: PlainApi, merged: str) -> None:
    first = apply(api, bare(merged, gpuTypes=["a100"]), "one")
    second = apply(api, bare(merged, gpuTypes=["a100"]), "one")

    assert first.body["metadata"]["resourceVersion"] == second.body["metadata"]["resourceVersion"]


def test_the_scale_of_a_gang_is_how_many_of_its_members_must_start(api: PlainApi) -> None:
    update_status(api, FULL["Gang"])
    path = f"{path_of('Gang', 'full')}/scale"

    scaled = api.send("PATCH", path, {"spec": {"replicas": 5}}, content_type=MERGE_PATCH)

    assert scaled.body["spec"] == {"replicas": 5}
    assert scaled.body["status"] == {"replicas": 2, "selector": "tonnage.dev/gang=full"}
    assert api.send("GET", path_of("Gang", "full")).body["spec"]["minMembers"] == 5


def test_the_columns_of_kubectl_get_tell_how_a_service_fares(api: PlainApi) -> None:
    update_status(api, FULL["ModelService"])

    table = api.send("GET", path_of("ModelService", "full"), accept=TABLE).body
    row = dict(zip([each["name"] for each in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))

    age = row.pop("Age")
    assert age
    assert row == {
        "Name": "full",
        "Model": "m",
        "Wanted": 2,
        "Running": 1,
        "$/h": 8,
        "Ready": "True",
        "Mix": '{"a100":2}',
        "Gap": 0.0625,
        "J/token": 0.25,
        "Reason": "AllRunning",
    }


@pytest.mark.parametrize("kind", sorted(BY_NAME))
def test_every_column_finds_its_field(api: PlainApi, kind: str) -> None:
    """A path that leads nowhere prints an empty column for ever."""
    update_status(api, having(FULL[kind], "status.conditions", conditions("Accepted", "Ready", "Applied", "Waiting")))

    table = api.send("GET", path_of(kind, "full"), accept=TABLE).body
    cells = dict(zip([each["name"] for each in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))

    of_another_unit = {"Share $/h"}
    assert [name for name, cell in cells.items() if cell in (None, "", "<none>") and name not in of_another_unit] == []


def conditions(*kinds: str) -> list[Object]:
    return [{**FULL["Gang"]["status"]["conditions"][0], "type": kind} for kind in kinds]


def apply_example(api: PlainApi, obj: Object, **query: str) -> Answer:
    where = {
        "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
        "Node": "/api/v1/nodes",
        "Pod": "/api/v1/namespaces/default/pods",
    }.get(obj["kind"]) or path_of(obj["kind"])
    query = {"fieldManager": "tests", "force": "true", "fieldValidation": "Strict", **query}
    return api.send("PATCH", f"{where}/{obj['metadata']['name']}", obj, content_type=APPLY_PATCH, query=query)


FOREIGN = "agents.x-k8s.io/"
"""API group of agent-sandbox, whose kinds this server does not have."""
OBJECTS = [
    document.content
    for document in read_documents([str(EXAMPLES)])[0]
    if not document.content["apiVersion"].startswith(FOREIGN)
]


@pytest.fixture(scope="module")
def priority_classes(api: PlainApi) -> Iterator[None]:
    """Pods name them, and so they are there first."""
    classes = [obj for obj in OBJECTS if obj["kind"] == "PriorityClass"]
    for each in classes:
        apply_example(api, each)
    yield
    for each in classes:
        api.send("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{each['metadata']['name']}")


@pytest.mark.usefixtures("priority_classes")
@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_the_examples_apply(api: PlainApi, obj: Object) -> None:
    answer = apply_example(api, obj, dryRun="All")

    assert answer.is_ok, answer.message
    assert answer.warnings == ()


@pytest.mark.parametrize(
    ("field", "unit"),
    [
        ("gputypes.spec.memory", "bytes"),
        ("gput.spec.pricePerHour", "dollars per device and hour"),
        ("msvc.spec.slo", "40ms"),
        ("msvc.spec.demand", "tokens"),
        ("msvc.status.costPerHour", "dollars per hour"),
        ("mprof.spec.throughput.requestsPerSecond", "Requests per second"),
        ("gangs.spec.minMembers", "fewer never start"),
    ],
)
def test_kubectl_explains_a_field_with_its_unit(api: PlainApi, kubectl: Kubectl, field: str, unit: str) -> None:
    text = " ".join(kubectl("explain", field).split())

    assert unit in text


def test_the_category_shows_objects_of_all_kinds(api: PlainApi, kubectl: Kubectl) -> None:
    assert {each["kind"] for each in kubectl.get("tonnage")["items"]} >= set(BY_NAME)


def test_kubectl_waits_for_a_condition_of_the_generation_that_is_there(api: PlainApi, kubectl: Kubectl) -> None:
    """A condition of an older generation says nothing of the object as it is now."""
    told = update_status(api, FULL["ModelService"])
    generation = told.body["metadata"]["generation"]
    update_status(api, having(FULL["ModelService"], "status.conditions[].observedGeneration", generation))

    kubectl.wait("condition=Ready", "modelservice/full")
    api.send("PATCH", path_of("ModelService", "full"), {"spec": {"sliceFactor": 77}}, content_type=MERGE_PATCH)

    assert "timed out" in kubectl.refusal("wait", "--for=condition=Ready", "modelservice/full", "--timeout=1s")


def test_what_the_operator_says_of_an_object_is_stored_and_then_not_written_again(api: PlainApi) -> None:
    mistake = Mistake("ModelProfile/full, spec.gpuType", "there is no GPUType 'a100'")
    facts = {
        ("GPUType", "full"): ObjectFacts(),
        ("ModelProfile", "full"): ObjectFacts((mistake,)),
        ("Gang", "default/full"): ObjectFacts(
            gang=GangFacts(5, 5, placed=5, running=4, half_started_since_s=1_772_366_400.0)
        ),
    }
    api.send("PATCH", path_of("Gang", "full"), {"spec": {"minMembers": 5}}, content_type=MERGE_PATCH)

    def writes() -> list[Write]:
        seen = [
            (
                BY_NAME[kind],
                name,
                msgspec.json.decode(json.dumps(api.send("GET", path_of(kind, "full")).body), type=OwnObject),
                about,
            )
            for (kind, name), about in facts.items()
        ]
        return [job.write for job in status_jobs(seen, 1_772_366_400.0, {})]

    answers = [api.send(w.method, w.path, w.body, content_type=w.content_type, query=w.query) for w in writes()]

    assert [answer.status for answer in answers] == [200, 200, 200], [answer.message for answer in answers]
    assert writes() == []


def maps_and_lists(part: Object, path: str) -> Iterator[str]:
    for key, value in part.items():
        if value and isinstance(value, dict | list):
            yield f"{path}.{key}"
        if isinstance(value, dict):
            yield from maps_and_lists(value, f"{path}.{key}")


@pytest.mark.parametrize(
    ("kind", "path"),
    [(kind, path) for kind in sorted(BY_NAME) for path in maps_and_lists(FULL[kind]["status"], "status")],
)
def test_a_map_or_list_of_a_status_that_becomes_empty_is_stored_so(api: PlainApi, kind: str, path: str) -> None:
    """Server-side apply makes null of one that is applied empty after it had keys, and the CRD refuses the status."""
    *way, last = path.split(".")
    schema = yaml.safe_load((ROOT / FOLDER / f"tonnage.dev_{BY_NAME[kind].plural}.yaml").read_text(encoding="utf-8"))
    part = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for each in way:
        part = part["properties"].get(each, part)
    if last in part.get("required", ()):
        assert part["properties"][last]["minItems"] >= 1, "it is never written empty"
        return
    emptied = named(FULL[kind], "emptied")  # one of its own: parts of conditions that others own would stay
    create(api, emptied)
    base = {key: emptied[key] for key in ("apiVersion", "kind", "metadata")}
    where, query = path_of(kind, "emptied"), {"fieldManager": "empties", "force": "true"}
    for status in (FULL[kind]["status"], having(FULL[kind], path, ...)["status"]):
        body = base | {"status": status}
        answer = api.send("PATCH", f"{where}/status", body, content_type=APPLY_PATCH, query=query)
        assert answer.is_ok, answer.message
    api.send("DELETE", where)


def test_a_status_that_an_older_definition_does_not_know_whole_is_written_without_the_rest(
    api: PlainApi, server: ControlPlane
) -> None:
    """As while the definitions of an earlier release are still installed: one field must not cost the others."""
    where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gangs.tonnage.dev"
    whole = api.send("GET", where).body
    (version,) = whole["spec"]["versions"]
    older = deepcopy(version)
    status = older["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["running"], status["conditions"]["items"]["properties"]["observedGeneration"]
    api.send("PATCH", where, {"spec": {"versions": [older]}}, content_type=MERGE_PATCH)
    write = Write(
        "PATCH",
        f"{path_of('Gang', 'full')}/status",
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "Gang",
            "metadata": {"name": "full", "namespace": "default"},
            "status": FULL["Gang"]["status"] | {"running": 3},
        },
        APPLY_PATCH,
        {"fieldManager": "test", "force": "true"},
    )

    async def send() -> bytes | ActionError:
        async with await connect(ApiAccess(kubeconfig=str(server.kubeconfig)), time.monotonic) as connection:
            return await Applier(connection, Leading()).send_one(write)

    def answer() -> Object:
        found = asyncio.run(send())
        assert isinstance(found, bytes), found
        stored: Object = json.loads(found)["status"]
        return stored

    try:
        until(lambda: "running" not in answer(), "the older definition is served")
        stored = answer()
    finally:
        api.send("PATCH", where, {"spec": {"versions": [version]}}, content_type=MERGE_PATCH)

    assert stored["members"] == FULL["Gang"]["status"]["members"]
    assert stored["conditions"]
