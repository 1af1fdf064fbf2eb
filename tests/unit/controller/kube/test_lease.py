"""Leader election: never two writers at once, whatever their clocks and however long one is frozen."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from controller.kube.leader_election import LeaseCandidate, LeaseRecord


def leading(now_s: float = 0.0, identity: str = "a") -> LeaseCandidate:
    """A candidate that acquired a free Lease."""
    looked = LeaseCandidate(identity).watched(LeaseRecord(), now_s)
    wanted = looked.wanted(now_s, "t0")
    assert wanted is not None
    return looked.written(replace(wanted, version="1"), now_s)


def test_a_free_lease_is_taken_as_epoch_0() -> None:
    standing = leading()

    assert (standing.epoch, standing.may_write(0.0)) == (0, True)


def test_a_leader_that_cannot_renew_stops_writing_after_10_s() -> None:
    standing = leading(now_s=100.0)

    assert standing.may_write(109.9)
    assert not standing.may_write(110.0)


def test_a_standby_waits_15_s_from_when_it_first_saw_the_lease_as_it_is() -> None:
    held = LeaseRecord("a", 15, "t0", "t0", 0, "1")
    standby = LeaseCandidate("b").watched(held, 3.0)

    # Seen again unchanged at 17 s: it has stood still for 14 s only.
    standby = standby.watched(held, 17.0)

    assert standby.wanted(17.9, "t") is None
    assert standby.wanted(18.0, "t") is not None


def test_a_renewal_starts_the_wait_anew() -> None:
    standby = LeaseCandidate("b").watched(LeaseRecord("a", 15, "t0", "t0", 0, "1"), 0.0)
    standby = standby.watched(LeaseRecord("a", 15, "t0", "t1", 0, "2"), 14.0)

    assert standby.wanted(20.0, "t") is None


def test_a_takeover_is_a_new_epoch_and_a_renewal_is_not() -> None:
    standby = LeaseCandidate("b").watched(LeaseRecord("a", 15, "t0", "t0", 4, "7"), 0.0)

    taken = standby.wanted(15.0, "t9")
    assert taken is not None
    leader = standby.written(replace(taken, version="8"), 15.0)
    renewed = leader.wanted(17.0, "t11")

    assert taken.transitions == 5
    assert taken.version == "7", "the precondition: nobody wrote it meanwhile"
    assert renewed is not None
    assert (renewed.transitions, renewed.acquired, renewed.version) == (5, "t9", "8")


def test_a_released_lease_is_taken_at_once_as_a_new_epoch() -> None:
    released = leading().released("t1")
    assert released is not None

    taken = LeaseCandidate("b").watched(replace(released, version="2"), 5.0).wanted(5.0, "t2")

    assert released.holder == ""
    assert taken is not None
    assert taken.transitions == 1


def test_who_sees_another_holder_has_stopped_leading() -> None:
    thawed = leading().watched(LeaseRecord("b", 15, "t9", "t9", 1, "9"), 1.0)

    assert not thawed.may_write(1.0)
    assert thawed.wanted(1.0, "t") is None


def test_only_a_holder_releases() -> None:
    assert LeaseCandidate("b").watched(LeaseRecord("a", 15, "t", "t", 0, "1"), 0.0).released("t") is None


def test_of_two_of_one_name_one_leads() -> None:
    """Two operators from one settings file, which had an identity in it, both led."""
    leader = leading()
    held = leader.seen
    assert held is not None
    namesake = LeaseCandidate("a").watched(held, 1.0)

    assert namesake.wanted(1.0, "t1") is None, "the Lease has its name, and it did not write it"
    assert namesake.released("t1") is None
    taken = namesake.wanted(16.0, "t16")
    assert taken is not None
    assert taken.transitions == 1, "a new epoch"
    assert not leader.watched(replace(taken, version="2"), 16.0).may_write(1.0), "who is renewed for by another ends"


def test_a_renewal_without_an_answer_is_known_as_its_own() -> None:
    leader = leading()
    renewed = leader.wanted(2.0, "t2")
    assert renewed is not None

    seen = leader.sending(renewed).watched(replace(renewed, version="2"), 4.0)

    assert seen.may_write(4.0)
    assert seen.wanted(4.0, "t4") is not None


@pytest.mark.parametrize("frozen_for_s", [0.0, 5.0, 10.0, 14.9, 15.0, 20.0, 1000.0])
def test_a_frozen_leader_never_writes_beside_its_successor(frozen_for_s: float) -> None:
    leader = leading(now_s=0.0)
    held = leader.seen
    assert held is not None
    standby = LeaseCandidate("b").watched(held, 0.0)

    takes_over = standby.wanted(frozen_for_s, "t") is not None

    assert not (takes_over and leader.may_write(frozen_for_s))


@given(
    names=st.sampled_from([("a", "b"), ("a", "a")]),
    rounds=st.lists(
        st.tuples(st.sampled_from("ab"), st.floats(0.0, 8.0), st.booleans(), st.booleans()), min_size=1, max_size=60
    ),
    skew_s=st.floats(-1e6, 1e6),
)
def test_at_most_one_may_write_at_any_instant(
    names: tuple[str, str], rounds: list[tuple[str, float, bool, bool]], skew_s: float
) -> None:
    """Two candidates take turns on one Lease at arbitrary times, with clocks that disagree; writes may be lost on the
    way there or, taken effect, on the way back."""
    clocks = {"a": 0.0, "b": skew_s}
    standings = {who: LeaseCandidate(name) for who, name in zip("ab", names, strict=True)}
    lease, version, now_s = LeaseRecord(), 0, 0.0
    for who, later_s, is_sent, is_answered in rounds:
        now_s += later_s
        mine_s = now_s + clocks[who]
        standing = standings[who].watched(lease, mine_s)
        wanted = standing.wanted(mine_s, f"{who} at {now_s}")
        if wanted is not None and is_sent:
            standing = standing.sending(wanted)
            version += 1
            lease = replace(wanted, version=str(version))
            if is_answered:
                standing = standing.written(lease, mine_s)
        standings[who] = standing

        writers = [name for name in "ab" if standings[name].may_write(now_s + clocks[name])]
        assert len(writers) <= 1
