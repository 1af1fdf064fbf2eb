"""Gangs by their members' life and by what their objects say, whatever their kind."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cluster.workloads import Gang, MemberGroup
from controller.api import foreign_kinds
from controller.api.structs import Pod
from controller.objects.read import put
from controller.snapshot import group_kinds
from controller.snapshot.group_kinds import GroupOwner, GroupRef, Share

REPLACE_WHAT_SUCCEEDED = frozenset(
    {"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet", foreign_kinds.RAY_CLUSTER.name}
)
"""Kinds that make a new pod for one that succeeded; all others count it as done. Source: their documentation, "Pod
lifetime" of Kubernetes' workloads; KubeRay deletes and makes anew the pods of a cluster that ended."""
Life = Literal["waiting", "running", "ending", "done", "gone"]


def life_of(pod: Pod) -> Life:
    """State of a pod as a member of its gang, the same for every kind.

    waiting: it has no node. running: it is bound. ending: it is being deleted, is no member any more, and holds its
    devices until it is gone. done: it succeeded and no other takes its place, so one fewer must start. gone: it holds
    nothing, and if it is missing, another comes: it failed, or was deleted before it was bound.
    """
    is_deleted, phase = pod.metadata.deletion_timestamp is not None, pod.status.phase
    if phase == "Succeeded" and not is_deleted:
        is_replaced = any(o.controller and o.kind in REPLACE_WHAT_SUCCEEDED for o in pod.metadata.owner_references)
        return "gone" if is_replaced else "done"
    if pod.holds_nothing:
        return "gone"
    if is_deleted:
        return "ending"
    return "running" if pod.spec.node_name else "waiting"


def still_needed(asked: int, done: int, alive: int) -> int:
    """Members that start together of a gang that asks for so many, some of which have finished.

    A member that is done counts where another is missing, and not where there is one in its place: a Job that works
    through a queue goes on with as many pods at once, and one that is started again keeps pods of its last run.
    """
    return min(asked, max(asked - done, alive))


@dataclass(frozen=True, slots=True, eq=False)
class KnownGroups:
    """Gangs at one instant."""

    gangs: tuple[Gang, ...] = ()
    """Our own and then those of other projects, each sorted by name, without priorities."""
    gang_of: Mapping[str, str] = field(default_factory=dict)
    """Gang by the name under which pods refer to it; empty: each pod is placed by itself. A group whose object is
    missing is not in it: its pods wait."""
    unread: tuple[tuple[str, str], ...] = ()
    """(kind, pod) of groups whose size is not known, because their kind is not read."""
    unreadable: frozenset[str] = frozenset()
    """Names under which pods refer to a group whose object cannot be read; they wait, too."""


class Groups:
    """Objects that say how many pods start together, and the pods that refer to them. Not thread-safe."""

    def __init__(self, rules: Mapping[str, group_kinds.GroupRule] = group_kinds.RULE) -> None:
        """rules: by their words."""
        self._rules = rules
        self._owners: dict[tuple[str, str], GroupOwner] = {}
        self._read: frozenset[str] = frozenset()
        self._members: dict[str, tuple[GroupRef, dict[str, bool]]] = {}
        """(group, whether it is for Tonnage by pod) by name."""
        self._of_pod: dict[str, str] = {}
        self._done: dict[str, GroupRef] = {}
        """Group of each pod that is done."""
        self._known: KnownGroups | None = None

    def put_done(self, pod: str, ref: GroupRef | None) -> None:
        """A member that is done; None: it is not, or not any more."""
        if (ref is not None or pod in self._done) and put(self._done, pod, ref):
            self._known = None

    def put_pod(self, pod: str, ref: GroupRef | None, *, is_ours: bool = True) -> None:
        """A pod that is not ours is no member of the gang, and counts as one that is there. None: of no group."""
        text, before = ref.text if ref else None, self._of_pod.get(pod)
        if ref is not None and text is not None and before == text:
            known, members = self._members[text]
            if known == ref and members[pod] == is_ours:
                return
        if before is not None:
            self._known = None
            del self._of_pod[pod], self._members[before][1][pod]
            if not self._members[before][1]:
                del self._members[before]
        if ref is not None and text is not None:
            _, members = self._members.get(text, (ref, {}))
            members[pod] = is_ours
            self._members[text] = (ref, members)
            self._of_pod[pod], self._known = text, None

    def put_owner(self, word: str, name: str, owner: GroupOwner | None) -> None:
        if put(self._owners, (word, name), owner):
            self._known = None

    def read(self, words: Iterable[str]) -> None:
        """Kinds whose objects are all known. A group of another kind has no size."""
        if (now := frozenset(words)) != self._read:
            self._read, self._known = now, None

    def known(self) -> KnownGroups:
        """Gangs of these pods; the same object while nothing changed."""
        if self._known is not None:
            return self._known
        found: dict[str, _Found] = {}
        gang_of, unread, unreadable = {}, [], set()
        read: dict[tuple[str, str], Any] = {}
        ended: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for ref in self._done.values():
            ended[ref.word, ref.name][ref.part] += 1
        groups = dict(self._members)
        for word, name in self._owners:  # a Gang is one without members, too
            if word == group_kinds.GANG:
                groups.setdefault(name, (GroupRef(word, name), {}))
        composites = group_kinds.composites(self._owners)
        for text, (ref, members) in groups.items():
            key = ref.word, ref.name
            rule, owner = self._rules[ref.word], self._owners.get(key)
            if owner is None and rule.needs_object:
                if ref.word not in self._read and ref.word != group_kinds.GANG:
                    gang_of[text] = ""
                    unread += [(ref.word, pod) for pod in members]
                continue
            done, whole = ended.get(key, Counter()), ref
            try:
                if root := group_kinds.root_of(ref, self._owners):
                    whole, ref = replace(ref, word=group_kinds.COMPOSITE, name=root), replace(ref, part=ref.name)
                    if root not in composites:
                        continue
                    share: Share | None = replace(composites[root], done={ref.part: done.total()})
                else:
                    if owner is not None and key not in read:
                        read[key] = rule.read(owner)
                    share = rule.share(read.get(key), ref, done)
            except Exception:  # noqa: BLE001 - one object must not stop the others
                unreadable.add(text)
                continue
            if share is None or (share.size <= 1 and ref.word != group_kinds.GANG):
                gang_of[text] = ""
                continue
            gang = GroupRef(whole.word, whole.name, share.part).text
            gang_of[text] = gang
            found.setdefault(gang, _Found(whole.word)).put(share, ref, members)
        gangs = [each.gang(name) for name, each in sorted(found.items(), key=lambda of: (not of[1].is_own, of[0]))]
        self._known = KnownGroups(tuple(gangs), gang_of, tuple(sorted(unread)), frozenset(unreadable))
        return self._known


class _Found:
    """What is found of one gang, part by part."""

    def __init__(self, word: str) -> None:
        self.is_own = word == group_kinds.GANG
        self._share = Share(0)
        self._done: dict[str, int] = {}
        self._members: defaultdict[str, dict[str, bool]] = defaultdict(dict)
        """Whether each member is ours, by pod, by the part that it names."""
        self._levels: dict[str, tuple[str | None, str | None]] = {}
        """Node labels that the members of each part must and should share by what they say themselves."""

    def put(self, share: Share, ref: GroupRef, members: Mapping[str, bool]) -> None:
        self._share = share if share.size > self._share.size else self._share
        self._done |= share.done
        self._members[ref.part].update(members)
        self._levels[ref.part] = ref.within or None, ref.prefer_within or None

    def gang(self, name: str) -> Gang:
        """A member that is not ours counts as one that is there."""
        share, alive = self._share, sum(map(len, self._members.values()))
        others = sum(not is_ours for each in self._members.values() for is_ours in each.values())
        size, done = min(share.size, group_kinds.MOST_MEMBERS), sum(self._done.values())
        least = max(1, still_needed(size, done, alive) - others)
        groups = tuple(map(self._group, share.groups))
        levels = set(self._levels.values())
        within, prefer_within = levels.pop() if len(levels) == 1 else (None, None)
        # Of members that name no role, nothing is known. Where all that exist are needed, their roles do not matter.
        are_told_apart = self.is_own or all(self._members)
        are_all_needed = alive - others == least and share.least_groups is None and not any(map(_matters, groups))
        if not are_told_apart or are_all_needed:
            groups = ()
        return Gang(
            name,
            least,
            share.within or within,
            share.prefer_within or prefer_within,
            groups=groups,
            least_groups=share.least_groups if groups else None,
            most_members=share.most,
            done=done,
        )

    def _group(self, wanted: MemberGroup) -> MemberGroup:
        """The group with its members, and with its groups."""
        inner = wanted.groups
        if [each.name for each in inner] == [""]:
            each_named = (part for part in self._members if part.startswith(wanted.name + group_kinds.SIGN))
            inner = tuple(replace(inner[0], name=part) for part in sorted(each_named))
        parts = [wanted.name, *_names_in(inner)]
        found = [is_ours for part in parts for is_ours in self._members.get(part, {}).values()]
        done = sum(self._done.get(part, 0) for part in parts)
        left = max(0, still_needed(wanted.least, done, len(found)) - found.count(False))
        within, prefer_within = self._levels.get(wanted.name, (None, None))
        return replace(
            wanted,
            least=left,
            members=tuple(sorted(pod for pod, is_ours in self._members.get(wanted.name, {}).items() if is_ours)),
            groups=tuple(map(self._group, inner)),
            within=wanted.within or within,
            prefer_within=wanted.prefer_within or prefer_within,
        )


def _names_in(groups: Iterable[MemberGroup]) -> Iterator[str]:
    for each in groups:
        yield each.name
        yield from _names_in(each.groups)


def _matters(group: MemberGroup) -> bool:
    """Whether it says more than that all of its members start."""
    says_more = group.least_groups is not None or group.within or group.prefer_within
    return (
        bool(says_more) or any(map(_matters, group.groups)) or (not group.groups and len(group.members) != group.least)
    )
