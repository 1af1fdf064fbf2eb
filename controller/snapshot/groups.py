"""Groups of other projects' pods as gangs: which pods are members of which, and how many start together."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.workloads import Gang
from controller.snapshot.pod_groups import MOST_MEMBERS, RULE, GroupRef, GroupRule, Owner


@dataclass(frozen=True, slots=True, eq=False)
class KnownGroups:
    """Gangs of other projects' pods at one instant."""

    gangs: tuple[Gang, ...] = ()
    """Sorted by name, without priorities."""
    gang_of: Mapping[str, str] = field(default_factory=dict)
    """Gang by the name under which pods refer to it; empty: each pod is placed by itself. A group whose object is
    missing is not in it: its pods wait."""
    unread: tuple[tuple[str, str], ...] = ()
    """(kind, pod) of groups whose size is not known, because their kind is not read."""
    unreadable: frozenset[str] = frozenset()
    """Names under which pods refer to a group whose object cannot be read; they wait, too."""


class Groups:
    """Objects of other projects and the pods that refer to them. Not thread-safe."""

    def __init__(self, rules: Mapping[str, GroupRule] = RULE) -> None:
        """rules: by their words."""
        self._rules = rules
        self._owners: defaultdict[str, dict[str, Owner]] = defaultdict(dict)
        self._read: frozenset[str] = frozenset()
        self._members: dict[str, tuple[GroupRef, dict[str, bool]]] = {}
        """(group, whether it is for Tonnage by pod) by name."""
        self._of_pod: dict[str, str] = {}
        self._known: KnownGroups | None = None

    def put_pod(self, pod: str, ref: GroupRef | None, *, is_ours: bool) -> None:
        """A pod that is not ours is no member of the gang, and counts as one that is there."""
        text = ref.text if ref else None
        if text is not None and self._of_pod.get(pod) == text:
            known, members = self._members[text]
            if known == ref and members[pod] == is_ours:
                return
        self.remove_pod(pod)
        if ref is not None and text is not None:
            _, members = self._members.get(text, (ref, {}))
            members[pod] = is_ours
            self._members[text] = (ref, members)
            self._of_pod[pod], self._known = text, None

    def remove_pod(self, pod: str) -> None:
        text = self._of_pod.pop(pod, None)
        if text is None:
            return
        self._known = None
        del self._members[text][1][pod]
        if not self._members[text][1]:
            del self._members[text]

    def put_owner(self, word: str, name: str, owner: Owner) -> None:
        if self._owners[word].get(name) != owner:
            self._owners[word][name], self._known = owner, None

    def remove_owner(self, word: str, name: str) -> None:
        if self._owners[word].pop(name, None) is not None:
            self._known = None

    def read(self, words: Iterable[str]) -> None:
        """Kinds whose objects are all known. A group of another kind has no size."""
        if (now := frozenset(words)) != self._read:
            self._read, self._known = now, None

    def known(self) -> KnownGroups:
        """The same object while nothing changed."""
        if self._known is None:
            self._known = self._resolved()
        return self._known

    def _resolved(self) -> KnownGroups:
        sizes: dict[str, int] = {}
        others: defaultdict[str, int] = defaultdict(int)
        gang_of, unread, unreadable = {}, [], set()
        read: dict[tuple[str, str], Any] = {}
        for text, (ref, members) in self._members.items():
            rule, owner = self._rules[ref.word], self._owners[ref.word].get(ref.name)
            if owner is None and rule.needs_object:
                if ref.word not in self._read:
                    gang_of[text] = ""
                    unread += [(ref.word, pod) for pod in members]
                continue
            try:
                if owner is not None and (ref.word, ref.name) not in read:
                    read[ref.word, ref.name] = rule.read(owner)
                share = rule.share(read.get((ref.word, ref.name)), ref)
            except Exception:  # noqa: BLE001 - one object must not stop the others
                unreadable.add(text)
                continue
            if share is None or share.size <= 1:
                gang_of[text] = ""
                continue
            gang = GroupRef(ref.word, ref.name, share.part).text
            gang_of[text] = gang
            sizes[gang] = max(sizes.get(gang, 0), min(share.size, MOST_MEMBERS))
            others[gang] += sum(not is_ours for is_ours in members.values())
        gangs = (Gang(gang, max(1, size - others[gang])) for gang, size in sorted(sizes.items()))
        return KnownGroups(tuple(gangs), gang_of, tuple(sorted(unread)), frozenset(unreadable))
