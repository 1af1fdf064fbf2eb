"""Bundles are read back as they were written, contain no path to a secret, and are refused when not trustworthy."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

import msgspec
import pytest

from cluster.actions import Bind, Evict, Scale
from cluster.errors import ConfigError
from cluster.plans import Phase, Plan, Reason, Step
from controller.brain.frames import snapshot_frame
from controller.cycle import Cycle
from controller.guard import Limits
from controller.ports import Outcome
from controller.recording.bundle import (
    About,
    Bundle,
    about,
    compared,
    files_of,
    merged,
    read_bundle,
    replayed,
    settings_from,
    shown,
    write_tar,
    write_tar_gz,
)
from controller.settings import OperatorSettings
from tests.builders.fleet import node, pod, world
from tests.builders.mix import of_types
from tests.builders.recordings import recording_of

WHY = Reason("LeastCost", "for a reason")


def plan_of(*actions: Any, code: str = "LeastCost") -> Plan:
    return Plan((Phase("pack", tuple(Step(action, Reason(code, "for a reason")) for action in actions)),))


def cycle(at_s: float = 1.0, plan: Plan | None = None) -> Cycle:
    plan = plan or plan_of(Bind("d/p", "a", (0,)))
    snapshot = replace(world([node("a", gpus=2)], [pod("d/p", 1)], at_s=at_s), observed_at_s={"pods": at_s})
    return Cycle(snapshot, plan, Outcome(done=tuple(plan.steps())), wanted=plan)


def content(*cycles: Cycle, identity: str = "one", compressed: bool = True) -> bytes:
    recording, to = recording_of(cycles), BytesIO()
    files = files_of(about(recording, shown(OperatorSettings(identity=identity)), identity, 100.0), recording)
    if compressed:
        write_tar_gz(to, files, 100.0)
    else:
        write_tar(to.write, files, 100.0)
    return to.getvalue()


@pytest.mark.parametrize("compressed", [True, False])
def test_a_bundle_comes_back_as_it_was_written(*, compressed: bool) -> None:
    original = cycle()

    (back,) = read_bundle(content(original, compressed=compressed)).cycles()

    assert snapshot_frame(back.snapshot) == snapshot_frame(original.snapshot)
    assert (back.wanted, back.guarded, back.outcome) == (original.wanted, original.plan, original.outcome)


def test_the_same_cycles_give_the_same_bytes() -> None:
    assert content(cycle()) == content(cycle())


def altered(original: bytes, name: str, new: bytes | None) -> bytes:
    """The bundle with other content in one file, or without it."""
    files = dict(read_bundle(original).files)
    files[name] = new or b""
    kept = ((key, value) for key, value in files.items() if new is not None or key != name)
    to = BytesIO()
    write_tar(to.write, kept, 100.0)
    return to.getvalue()


def about_with(**changes: Any) -> bytes:
    says = msgspec.json.decode(read_bundle(content(cycle())).files["bundle.json"])
    return msgspec.json.encode(says | changes)


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (b"junk", "is not a tar file"),
        (content(cycle())[:200], "is not a tar file"),
        (altered(content(cycle()), "bundle.json", None), "has no bundle.json"),
        (altered(content(cycle()), "bundle.json", about_with(form=2)), "has format 2, this version of Tonnage reads 1"),
        (altered(content(cycle()), "cycles.json", b"{}"), "cycles.json: cannot be read"),
        (
            altered(content(cycle()), f"frames/{recording_of([cycle()]).entries[0].snapshot}.gz", None),
            "frames are missing",
        ),
    ],
    ids=["junk", "cut", "no head", "other form", "no cycles", "no frame"],
)
def test_what_is_no_whole_bundle_of_this_form_is_refused(damaged: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_bundle(damaged, "b.tar.gz")


def test_a_frame_that_is_not_what_its_name_says_is_refused() -> None:
    entry = recording_of([cycle()]).entries[0]
    other = recording_of([cycle(plan=plan_of(Evict("d/p", "a")))])
    swapped = altered(content(cycle()), f"frames/{entry.wanted}.gz", other.frames[other.entries[0].wanted])

    with pytest.raises(ConfigError, match="does not match the digest in its name"):
        list(read_bundle(swapped).cycles())


def test_replicas_become_one_bundle_in_the_order_of_time() -> None:
    one, other = (read_bundle(content(*(cycle(t) for t in at_s), identity=who)) for who, at_s in REPLICAS.items())

    both = merged([one, other])

    assert [(entry.by, entry.at_s) for entry in both.entries] == [("b", 2.0), ("a", 4.0), ("b", 6.0)]
    assert both.about.identity == "b"
    assert len(list(both.cycles())) == 3


REPLICAS = {"a": (4.0,), "b": (2.0, 6.0)}


def test_settings_in_a_bundle_lead_to_no_secret() -> None:
    settings = settings_from(
        {
            "kubeconfig": "/secret/config",
            "context": "prod-admin",
            "ray": {"mode": "cluster", "address": "ray:6390", "token_file": "/secret/token"},
            "power": {
                "tls": {"certificate": "/secret/c", "key": "/secret/k"},
            },
        }
    )[0]

    text = str(shown(settings))

    assert "secret" not in text
    assert "prod-admin" not in text
    assert "ray:6390" not in text


def test_settings_come_back_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    written = shown(OperatorSettings(identity="x", policy="fgd", gang_deadline_s=12.0))
    monkeypatch.setenv("TONNAGE_GANG_DEADLINE_S", "99")

    settings, unknown = settings_from(written)

    assert (settings.policy, settings.gang_deadline_s, unknown) == ("fgd", 12.0, ())


def test_settings_that_this_version_does_not_know_are_passed_over_and_named() -> None:
    settings, unknown = settings_from({"weather": "fine", "ray": {"mode": "none", "mood": 1}, "gang_deadline_s": 5})

    assert settings.gang_deadline_s == 5.0
    assert sorted(unknown) == ["ray.mood", "weather"]


def test_settings_with_a_wrong_value_are_refused() -> None:
    with pytest.raises(ConfigError, match="settings of the bundle, gang_deadline_s"):
        settings_from({"gang_deadline_s": -1})


class Opinion:
    """A brain of one fixed plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def plan(self, snapshot: Any, deadline_s: float) -> Plan:
        return self._plan


def one_cycle(plan: Plan) -> Bundle:
    return read_bundle(content(cycle(plan=plan)))


def replay(recorded: Plan, now: Plan) -> Iterator[Any]:
    return replayed(one_cycle(recorded).cycles(), Opinion(now), Limits(), 1.0)


def test_a_replay_that_decides_the_same_differs_in_nothing() -> None:
    (result,) = replay(plan_of(Bind("d/p", "a", (0,))), plan_of(Bind("d/p", "a", (0,)), code="OtherReason"))

    assert result.is_same


def test_a_replay_tells_what_is_added_removed_and_changed() -> None:
    recorded = plan_of(Bind("d/p", "a", (0,)), Evict("d/q", "a"))
    (kept,) = one_cycle(recorded).cycles()

    result = compared(kept, plan_of(Bind("d/p", "a", (1,)), Scale("d/s", of_types({"A100": 1}))))

    assert [step.action for step in result.added] == [Scale("d/s", of_types({"A100": 1}))]
    assert [step.action for step in result.removed] == [Evict("d/q", "a")]
    assert [(both.before.action, both.after.action) for both in result.changed] == [
        (Bind("d/p", "a", (0,)), Bind("d/p", "a", (1,)))
    ]
    assert not result.is_same


def test_a_replay_passes_the_guard_as_the_operator_does() -> None:
    (result,) = replay(plan_of(), plan_of(Bind("d/p", "nowhere", (0,))))

    assert [each.reason.code for each in result.after.refused] == ["NotFound"]
    assert result.is_same


def test_a_bundle_says_what_it_left_out() -> None:
    recording = replace(recording_of([cycle()]), too_large=3, seen=9)

    says = about(recording, {}, "one", 1.0)

    assert isinstance(says, About)
    assert (says.too_large, says.seen) == (3, 9)
