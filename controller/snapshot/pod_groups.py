"""Gangs by their members' life and by what their objects say, whatever their kind."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cluster.workloads import Gang, MemberGroup
from controller.api import foreign_kinds
from controller.api.structs import Pod
from controller.objects.read import GroupOwner, put
from controller.snapshot import group_kinds
from controller.snapshot.group_kinds import GroupRef, Share

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


Key = tuple[str, str]
"""Word and name of a group's object."""


@dataclass(frozen=True, slots=True)
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
        self._owners: dict[Key, GroupOwner] = {}
        self._read: frozenset[str] = frozenset()
        self._members: defaultdict[Key, dict[str, tuple[GroupRef, dict[str, bool]]]] = defaultdict(dict)
        """(group, whether it is for Tonnage by pod) by name, by object."""
        self._of_pod: dict[str, GroupRef] = {}
        self._done: dict[str, GroupRef] = {}
        """Group of each pod that is done."""
        self._ended: defaultdict[Key, Counter[str]] = defaultdict(Counter)
        """How many are done, by part, by object."""
        self._changed: set[Key] = set()
        self._made: dict[Key, KnownGroups] = {}
        """What follows of each object, and together of those of one composite group."""
        self._known: KnownGroups | None = None

    def put_done(self, pod: str, ref: GroupRef | None) -> None:
        """A member that is done; None: it is not, or not any more."""
        before = self._done.get(pod)
        if before == ref:
            return
        for each, count in ((before, -1), (ref, 1)):
            if each is not None:
                self._ended[each.key][each.part] += count
                self._changed.add(each.key)
        put(self._done, pod, ref)

    def put_pod(self, pod: str, ref: GroupRef | None, *, is_ours: bool = True) -> None:
        """A pod that is not ours is no member of the gang, and counts as one that is there. None: of no group."""
        before = self._of_pod.get(pod)
        if before is not None:
            known, members = self._members[before.key][before.text]
            if ref is not None and ref.text == before.text and known == ref and members[pod] == is_ours:
                return
            del members[pod]
            if not members:
                del self._members[before.key][before.text]
            self._changed.add(before.key)
        if ref is not None:
            _, members = self._members[ref.key].get(ref.text, (ref, {}))
            members[pod] = is_ours
            self._members[ref.key][ref.text] = ref, members
            self._changed.add(ref.key)
        put(self._of_pod, pod, ref)

    def put_owner(self, word: str, name: str, owner: GroupOwner | None) -> None:
        if put(self._owners, (word, name), owner):
            self._changed.add((word, name))

    def read(self, words: Iterable[str]) -> None:
        """Kinds whose objects are all known. A group of another kind has no size."""
        if (now := frozenset(words)) != self._read:
            self._read = now
            self._changed.update(self._members)

    def known(self) -> KnownGroups:
        """Gangs of these pods; the same object while nothing changed. Only what concerns changed objects is made anew.

        5,000 groups of eight of which one changed: 3 ms.
        """
        if self._known is not None and not self._changed:
            return self._known
        in_tree = {group_kinds.POD_GROUP, group_kinds.COMPOSITE}
        if not in_tree.isdisjoint(word for word, _ in self._changed):
            self._changed.update(key for key in (*self._made, *self._members) if key[0] in in_tree)
        wholes: defaultdict[Key, list[Key]] = defaultdict(list)
        for key in sorted(self._changed):
            self._made.pop(key, None)
            if not self._members.get(key):
                self._members.pop(key, None)
            if key in self._ended and not self._ended[key].total():
                del self._ended[key]
            if root := group_kinds.root_of(key, self._owners):
                wholes[group_kinds.COMPOSITE, root].append(key)
            else:
                wholes[key].append(key)
        composites = group_kinds.composites(self._owners) if group_kinds.COMPOSITE in (w for w, _ in wholes) else {}
        for whole, keys in wholes.items():
            made = self._of_objects(whole, keys, composites)
            put(self._made, whole, None if made == KnownGroups() else made)
        self._changed.clear()
        parts = self._made.values()
        gangs = [gang for each in parts for gang in each.gangs]
        gangs.sort(key=_order)
        self._known = KnownGroups(
            tuple(gangs),
            {text: gang for each in parts for text, gang in each.gang_of.items()},
            tuple(sorted(each for part in parts for each in part.unread)),
            frozenset().union(*(each.unreadable for each in parts if each.unreadable)),
        )
        return self._known

    def _of_objects(self, whole: Key, keys: Iterable[Key], composites: Mapping[str, Share]) -> KnownGroups:
        """What follows of these objects, which make up one whole."""
        found: dict[str, _Found] = {}
        gang_of, unread, unreadable = {}, list[tuple[str, str]](), set()
        for key in keys:
            owner, done = self._owners.get(key), self._ended.get(key, Counter())
            groups = self._members.get(key, {})
            if key[0] == group_kinds.GANG and owner is not None:  # one without members is a gang, too
                groups = {key[1]: (GroupRef(*key), {}), **groups}
            read: Any = None
            for text, (ref, members) in groups.items():
                rule = self._rules[ref.word]
                if owner is None and rule.needs_object:
                    if key[0] not in self._read and key[0] != group_kinds.GANG:
                        gang_of[text] = ""
                        unread += [(key[0], pod) for pod in members]
                    continue
                try:
                    if whole != key:
                        if whole[1] not in composites:
                            continue
                        ref = replace(ref, part=ref.name)
                        share: Share | None = replace(composites[whole[1]], done={ref.part: done.total()})
                    else:
                        if read is None and owner is not None:
                            read = owner if rule.read is None else rule.read(owner)
                        share = rule.share(read, ref, done)
                except Exception:  # noqa: BLE001 - one object must not stop the others
                    unreadable.add(text)
                    continue
                if share is None or (share.size <= 1 and key[0] != group_kinds.GANG):
                    gang_of[text] = ""
                    continue
                gang_of[text] = GroupRef(*whole, share.part).text
                found.setdefault(gang_of[text], _Found(whole[0])).put(share, ref, members)
        gangs = tuple(each.gang(name) for name, each in found.items())
        return KnownGroups(gangs, gang_of, tuple(unread), frozenset(unreadable))


def _order(gang: Gang) -> tuple[bool, str]:
    return group_kinds.SIGN in gang.name, gang.name


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
