"""Held seats in a draft: the pods that an earlier plan made room for are placed there first, gangs whole."""

from collections.abc import Iterable

from cluster.snapshot import PENDING, HeldSeat, HeldSeats, device_mask
from placement.engine.packer import Choice
from placement.packing.draft import NEVER, PackingDraft
from placement.packing.preemption import stopped_with


def take_held_seats(draft: PackingDraft) -> None:
    """Places every pod that has a held seat on it, if what is still in its way ends by itself or has lower priority.

    What an earlier plan decided goes on with it. Where a seat cannot be had any more, none of those that were held for
    the same gang is taken: the gang is placed as any other.
    """
    for held in draft.snapshot.held:
        for seat in held.seats:
            mark = draft.mark
            if seat.is_moved and seat.taker and not _is_taken(draft, seat):
                draft.roll_back(mark)
        mark, moved = draft.mark, list[int]()
        own = [seat for seat in held.seats if not seat.is_moved]
        if own and not (_move_on(draft, held, moved) and all(_is_taken(draft, seat) for seat in own)):
            draft.roll_back(mark)
            draft.moved.difference_update(moved)


def _move_on(draft: PackingDraft, held: HeldSeats, moved: list[int]) -> bool:
    """Moves the pods that were to move and still run: the leader died before it evicted them, or the watch lags."""
    pods, nodes = draft.snapshot.pods, draft.snapshot.nodes.names
    for seat in held.seats:
        row, node = pods.names.row(seat.pod), nodes.row(seat.node)
        if not seat.is_moved or seat.taker or row is None or draft.ends(row) or pods.node[row] == PENDING:
            continue
        if draft.resistance[row] == NEVER or node is None:
            return False
        draft.unseat(row)
        if not _fits(draft, row, node, seat):
            return False
        moved.append(row)
        draft.move(row, Choice(node, device_mask(seat.devices), 0.0))
        draft.held_for.add(row)
    return True


def _fits(draft: PackingDraft, row: int, node: int, seat: HeldSeat) -> bool:
    return bool(draft.packer.eligible(draft.shape(row))[node]) and draft.fits_at(row, node, seat.devices)


def _is_taken(draft: PackingDraft, seat: HeldSeat) -> bool:
    row, node = draft.snapshot.pods.names.row(seat.taker), draft.snapshot.nodes.names.row(seat.node)
    if row is None or node is None:
        return False
    if draft.node[row] != PENDING:
        return True  # it has a place
    wanted = device_mask(seat.devices)

    def leave(rows: Iterable[int]) -> None:
        for each in rows:
            if draft.node[each] == node and not _fits(draft, row, node, seat):
                draft.unseat(each)

    there = draft.pods_on(node)
    leave(each for each in there if draft.ends(each) and int(draft.devices[each]) & wanted)
    leave(each for each in there if draft.ends(each))
    if not _fits(draft, row, node, seat) and draft.may_preempt(row):
        lower = (each for each in there if draft.resistance[each] < draft.priority[row] and not draft.ends(each))
        in_the_way = [each for each in lower if int(draft.devices[each]) & wanted]
        for each in stopped_with(draft, in_the_way):
            draft.unseat(each)
    if not _fits(draft, row, node, seat):
        return False
    draft.put(row, Choice(node, wanted, 0.0))
    return True
