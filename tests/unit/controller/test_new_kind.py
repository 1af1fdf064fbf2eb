"""A new kind takes its model, one Kind in the registry, and a part of the snapshot; all else follows from these."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import Field

from cli.printing.field_documentation import field_text
from cli.printing.object_pages import Related, page
from cluster.errors import ConfigError, ObservationError
from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.api.conditions import ObservedStatus
from controller.api.fields import ApiVersion, OwnMeta, Strict
from controller.api.kind import ACCEPTED, AGE, Kind, PrinterColumn
from controller.api.kinds import KINDS
from controller.api.rbac import Permission, features, needed, roles_yaml
from controller.kube.cache import Cache
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView
from controller.kube_world.observer import Observer, empty_caches
from controller.objects.manifests import read_manifests
from controller.objects.read import Read
from controller.ports import Outcome
from controller.report.events import EventSeries, ReportedDecision, event_write
from controller.report.own_statuses import StatusReports
from controller.snapshot.from_manifests import snapshot_from
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import node, written
from tests.builders.watch_events import listed
from tests.generated.crd_files import files
from tests.generated.manifests_reference import reference

# First place: the model.


class SquadSpec(Strict):
    size: int = Field(ge=1, le=64, description="Pods that start together.")


class SquadStatus(ObservedStatus):
    """Whether it is Accepted, or why not."""


class Squad(Strict):
    """A gang of a fixed size."""

    api_version: ApiVersion
    kind: Literal["Squad"]
    metadata: OwnMeta
    spec: SquadSpec = Field(description="How many pods start together.")
    status: SquadStatus = Field(default=SquadStatus(), description="Written by Tonnage.")


SQUAD = Kind(
    model=Squad,
    plural="squads",
    short_names=("sqd",),
    is_namespaced=True,
    columns=(PrinterColumn("Size", ".spec.size", "integer", "Pods that start together."), ACCEPTED, AGE),
)

# Second place: the registry.
WITH_SQUADS = (*KINDS, SQUAD)


# Third place: what it means for planning.
def with_squads(snapshot: Snapshot, reads: tuple[Read[Squad], ...]) -> Snapshot:
    squads = tuple(Gang(name=read.name, min_members=read.object.spec.size) for read in reads)
    return replace(snapshot, gangs=(*snapshot.gangs, *squads))


NOON_S = 1_772_366_400.0
OURS = "/apis/tonnage.dev/v1alpha1"


def squad(name: str = "blue", size: int = 4) -> dict[str, Any]:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "Squad",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"size": size},
    }


def live(*objects: dict[str, Any]) -> LiveCluster:
    return LiveCluster(objects, WITH_SQUADS, facts=((SQUAD, with_squads),))


def statuses(cluster: LiveCluster) -> dict[str, Any]:
    """Path → what is written there after a plan."""
    reports = StatusReports(cluster.observer, cluster.caches, lambda _: False)
    jobs = reports.jobs(cluster.observer.observe(), Plan(), Outcome(), {}, NOON_S)
    return {job.write.path: job.write.body for job in jobs}


def asked(kinds: Sequence[Kind]) -> set[Permission]:
    return {permission for _, permission in needed(frozenset({"gate"}), ("ns", "tonnage"), kinds=kinds)}


def test_its_definition_is_made_with_its_names_columns_and_status() -> None:
    definition = yaml.safe_load(files(WITH_SQUADS)["tonnage.dev_squads.yaml"])
    (version,) = definition["spec"]["versions"]

    assert definition["metadata"]["name"] == "squads.tonnage.dev"
    assert definition["spec"]["scope"] == "Namespaced"
    assert definition["spec"]["names"]["shortNames"] == ["sqd"]
    assert definition["spec"]["names"]["categories"] == ["tonnage"], "`tonnage get all` and completion find it so"
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Size", "Accepted", "Age"]
    assert version["subresources"] == {"status": {}}


def test_it_is_watched_in_all_namespaces() -> None:
    resource = empty_caches(kinds=WITH_SQUADS).own[SQUAD].resource

    assert (resource.path, resource.is_namespaced) == (f"{OURS}/squads", True)
    assert "squads" in live(node()).observer.observe().observed_at_s


def test_nothing_is_planned_before_it_was_listed() -> None:
    caches = empty_caches(kinds=WITH_SQUADS)
    for cache in caches.each:
        if cache is not caches.own[SQUAD]:
            cache.take_page(listed(), 1000.0, is_first=True)

    with pytest.raises(ObservationError, match="not seen yet: squads"):
        Observer(caches, lambda: 1000.0).observe()


def test_the_operator_may_watch_it_and_write_its_status_and_the_doctor_asks_for_both() -> None:
    more = asked(WITH_SQUADS) - asked(KINDS)

    assert more == {
        Permission("list", "tonnage.dev", "squads"),
        Permission("watch", "tonnage.dev", "squads"),
        Permission("patch", "tonnage.dev", "squads/status"),
    }


def test_the_roles_of_the_chart_grant_it() -> None:
    roles = yaml.safe_load(roles_yaml(WITH_SQUADS))

    assert "squads" in {resource for rule in roles["read"] for resource in rule["resources"]}
    assert "squads/status" in {resource for rule in roles["report"] for resource in rule["resources"]}


def test_a_kind_of_a_fast_loop_has_a_role_of_its_own_and_is_not_planned_from() -> None:
    looped = Kind(model=Squad, plural="squads", is_namespaced=True, watched_by="reserves")
    kinds = (*KINDS, looped)

    granted = {permission for grant in features(kinds)["reserves"] for permission in grant.permissions()}

    assert granted == asked(WITH_SQUADS) - asked(KINDS)
    assert features(kinds)["read"] == features(KINDS)["read"]
    assert looped not in empty_caches(kinds=kinds).own


def test_a_kind_without_a_status_gets_neither_the_right_nor_the_subresource() -> None:
    silent = Kind(model=Squad, plural="squads", is_namespaced=True, has_status=False)
    definition = yaml.safe_load(files((silent,))["tonnage.dev_squads.yaml"])

    assert asked((*KINDS, silent)) - asked(KINDS) == {
        Permission("list", "tonnage.dev", "squads"),
        Permission("watch", "tonnage.dev", "squads"),
    }
    assert definition["spec"]["versions"][0]["subresources"] == {}


@pytest.mark.parametrize("word", ["squad", "squads", "sqd", "Squad"])
def test_its_fields_are_explained(word: str) -> None:
    assert "Pods that start together." in field_text(f"{word}.spec.size", WITH_SQUADS)

    with pytest.raises(ConfigError, match="not one of Tonnage's kinds"):
        field_text(f"{word}.spec.size")


def test_it_has_a_section_in_the_reference() -> None:
    assert "| Squad | `squads`, `sqd` | yes |" in reference(WITH_SQUADS)
    assert "- `size` (integer, from 1 to 64, required): Pods that start together." in reference(WITH_SQUADS)


def test_it_is_described() -> None:
    (status,) = statuses(live(squad(), node())).values()
    text = page({**squad(), "status": status["status"]}, Related(), NOON_S)

    assert "size: 4" in text
    assert "Accepted" in text


def test_it_becomes_a_part_of_the_snapshot_from_a_cluster_and_from_files_alike(tmp_path: Path) -> None:
    manifests = read_manifests([str(written(tmp_path, [node(), squad()]))], kinds=WITH_SQUADS)

    of_cluster = live(squad(), node()).observer.observe()
    of_files = snapshot_from(manifests, facts=((SQUAD, with_squads),)).snapshot

    assert of_cluster.gangs == of_files.gangs == (Gang(name="default/blue", min_members=4),)


def test_it_leaves_the_snapshot_when_it_is_deleted() -> None:
    cluster = live(squad(), node())

    cluster.remove(squad())

    assert cluster.observer.observe().gangs == ()


def test_its_status_says_that_it_is_accepted() -> None:
    written_at = statuses(live(squad(), node()))

    (body,) = written_at.values()
    (condition,) = body["status"]["conditions"]
    assert list(written_at) == [f"{OURS}/namespaces/default/squads/blue/status"]
    assert (body["kind"], condition["type"], condition["status"]) == ("Squad", "Accepted", "True")


def test_one_that_cannot_be_read_is_left_out_and_its_status_says_why() -> None:
    cluster = live(squad(size=65), node())

    (body,) = statuses(cluster).values()
    (condition,) = body["status"]["conditions"]
    assert cluster.observer.observe().gangs == ()
    assert (condition["type"], condition["status"]) == ("Accepted", "False")
    assert "spec.size" in condition["message"]


def test_events_can_be_about_it() -> None:
    cluster = live(squad(), node())
    sightings = CachedView(cluster.observer, Cache(DEPLOYMENTS))
    uid = sightings.uid("Squad", "default/blue")
    assert uid == "uid-blue"

    said = ReportedDecision("Squad", "default/blue", "Starting", Reason("Started", "4 of 4 started"))
    event = event_write(EventSeries(said, uid, NOON_S, NOON_S), 1, "test").body or {}

    assert event["regarding"]["apiVersion"] == "tonnage.dev/v1alpha1"
    assert event["regarding"]["kind"] == "Squad"


def test_what_its_file_gets_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Squad/default/blue, spec\.size"):
        read_manifests([str(written(tmp_path, [squad(size=0)]))], kinds=WITH_SQUADS)
