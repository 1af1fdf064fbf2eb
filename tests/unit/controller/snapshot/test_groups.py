"""Groups of other projects' pods: what one object costs, and what it breaks."""

from dataclasses import replace
from typing import Any

from controller.api.foreign_kinds import VOLCANO
from controller.objects.read import GroupOwner
from controller.snapshot.group_kinds import MOST_MEMBERS, RULE, GroupRef
from controller.snapshot.pod_groups import Groups


def put(groups: Groups, word: str, name: str, *parts: str) -> None:
    for part in parts:
        groups.put_pod(f"{name}-{part}", GroupRef(word, name, part), is_ours=True)


def test_an_object_is_read_once_for_all_groups_in_it() -> None:
    """A JobSet of 10,000 replicated jobs that 1,000 pods name was read 1,000 times, in 14 s, whenever a pod changed."""
    reads = list[GroupOwner]()

    def read(owner: GroupOwner) -> Any:
        reads.append(owner)
        return RULE["JobSet"].read(owner)

    groups = Groups(RULE | {"JobSet": replace(RULE["JobSet"], read=read)})
    jobs = [{"name": f"job-{n}", "replicas": 2} for n in range(50)]
    groups.put_owner("JobSet", "ns/train", GroupOwner({"replicatedJobs": jobs}, {}))
    put(groups, "JobSet", "ns/train", *(f"job-{n}" for n in range(50)))

    known = groups.known()

    assert [(each.name, each.min_members) for each in known.gangs] == [("ns/JobSet:train", 100)]
    assert len(reads) == 1


def test_an_object_that_raises_keeps_its_own_pods_waiting_and_no_others() -> None:
    def broken(owner: GroupOwner) -> Any:
        raise TypeError("a bug")

    groups = Groups(RULE | {"JobSet": replace(RULE["JobSet"], read=broken)})
    groups.put_owner("JobSet", "ns/bad", GroupOwner({}, {}))
    groups.put_owner(VOLCANO.called, "ns/good", GroupOwner({"minMember": 2}, {}))
    put(groups, "JobSet", "ns/bad", "a")
    put(groups, VOLCANO.called, "ns/good", "")

    known = groups.known()

    assert [(each.name, each.min_members) for each in known.gangs] == [("ns/VolcanoPodGroup:good", 2)]
    assert known.unreadable == {"ns/JobSet:bad:a"}
    assert "ns/JobSet:bad:a" not in known.gang_of  # so that they wait


def test_no_group_is_larger_than_a_gang_may_be() -> None:
    """Numbers of pods multiply: 10^6 replicas of 10^6 pods each are no number of pods."""
    groups = Groups()
    job = {"name": "a", "replicas": 10**9, "template": {"spec": {"parallelism": 10**9}}}
    groups.put_owner("JobSet", "ns/train", GroupOwner({"replicatedJobs": [job]}, {}))
    put(groups, "JobSet", "ns/train", "a")

    assert [each.min_members for each in groups.known().gangs] == [MOST_MEMBERS]


def test_only_what_concerns_a_changed_object_is_made_anew() -> None:
    """5,000 gangs are as many objects in Python; a pod of one changes in nearly every cycle."""
    read = list[str]()

    def share(owner: GroupOwner, ref: GroupRef, done: Any) -> Any:
        read.append(ref.name)
        return RULE[VOLCANO.called].share(owner, ref, done)

    groups = Groups(RULE | {VOLCANO.called: replace(RULE[VOLCANO.called], share=share)})
    for name in ("ns/a", "ns/b"):
        groups.put_owner(VOLCANO.called, name, GroupOwner({"minMember": 2}, {}))
        put(groups, VOLCANO.called, name, "")
    before = groups.known()
    assert groups.known() is before

    groups.put_pod("ns/b-2", GroupRef(VOLCANO.called, "ns/b"))
    groups.put_done("ns/b-3", GroupRef(VOLCANO.called, "ns/b"))
    after = groups.known()

    assert read == ["ns/a", "ns/b", "ns/b"]
    assert [(each.name, each.done) for each in after.gangs] == [
        ("ns/VolcanoPodGroup:a", 0), ("ns/VolcanoPodGroup:b", 1)
    ]  # fmt: skip

    for pod in ("ns/b-", "ns/b-2"):
        groups.put_pod(pod, None)
    groups.put_done("ns/b-3", None)
    assert [each.name for each in groups.known().gangs] == ["ns/VolcanoPodGroup:a"]
