"""Held seats in a draft: the pods that an earlier plan made room for are placed there first, gangs whole."""

from collections.abc import Iterable

from cluster.capacity import NodeRoom
from cluster.snapshot import PENDING, HeldSeat, device_mask
from placement.engine.packer import Choice
from placement.packing.draft import PackingDraft
from placement.packing.preemption import stopped_with


def take_held_seats(draft: PackingDraft) -> None:
    """Places every pod that has a held seat on it, if what is still in its way ends by itself or has lower priority.

    What an earlier plan decided goes on with it. Where a seat cannot be had any more, none of those that were held for
    the same gang is taken: the gang is placed as any other.
    """
    for held in draft.snapshot.held:
        mark = draft.mark
        if not all(_is_taken(draft, seat) for seat in held.seats if not seat.is_moved):
            draft.roll_back(mark)
        for seat in held.seats:
            mark = draft.mark
            if seat.is_moved and seat.taker and not _is_taken(draft, seat):
                draft.roll_back(mark)


def _is_taken(draft: PackingDraft, seat: HeldSeat) -> bool:
    row, node = draft.snapshot.pods.names.row(seat.taker), draft.snapshot.nodes.names.row(seat.node)
    if row is None or node is None:
        return False
    if draft.node[row] != PENDING:
        return True  # it has a place
    shape, packer, near = draft.shape(row), draft.packer, draft.packer.neighbours
    if len(seat.devices) != shape.gpus or not packer.eligible(shape)[node]:
        return False
    wanted = device_mask(seat.devices)

    def fits() -> bool:
        room = NodeRoom(packer.ledger.free, node)
        return not room.missing(shape) and all(room.gpu_milli[each] >= shape.gpu_milli for each in seat.devices)

    def leave(rows: Iterable[int]) -> None:
        for each in rows:
            if draft.node[each] == node and not fits():
                draft.unseat(each)

    there = draft.pods_on(node)
    leave(each for each in there if draft.ends(each) and int(draft.devices[each]) & wanted)
    leave(each for each in there if draft.ends(each))
    if not fits() and draft.may_preempt(row):
        lower = [each for each in there if draft.resistance[each] < draft.priority[row] and not draft.ends(each)]
        in_the_way = [each for each in lower if int(draft.devices[each]) & wanted]
        for each in stopped_with(draft, in_the_way):
            draft.unseat(each)
    allowed = None if near is None else near.allowed(shape)
    if not fits() or not (allowed is None or allowed[node]):
        return False
    room = NodeRoom(packer.ledger.free, node)
    room.charge(shape, seat.devices)
    if packer.floors is not None and not packer.floors.bears(node, room.held(int(packer.ledger.gpus[node]))):
        return False
    draft.put(row, Choice(node, wanted, 0.0))
    return True
