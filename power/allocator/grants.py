"""Results of a step: the grants, the same object while nothing changes, and the state for the next step."""

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of
from power.allocator.reading_accumulator import Waited
from power.allocator.state import Allocator, AllocatorState, Grants
from power.bursts.burst_limits import BurstAccount
from power.estimation.commitments import Book
from power.estimation.spike import Spikes


def grants(allocator: Allocator, book: Book, account: BurstAccount, changed: BoolArray) -> Grants:
    burst_to_w = np.maximum(account.to_w, book.cap_w)
    return Grants(
        changed=changed,
        cap_w=book.cap_w,
        burst_j=allocator.burst_j if all_of(book.burst) else np.where(book.burst, allocator.burst_j, 0.0),
        burst_to_w=burst_to_w,
        credit_back_s=account.back_s,
        sequence=book.sequence,
        safe_w=np.minimum(allocator.appetite.floor_w, book.cap_w),
        met=book.met,
    )


def nothing_new(allocator: Allocator, state: AllocatorState, account: BurstAccount) -> Grants:
    told, before = state.told, state.account
    same = account.to_w is before.to_w and account.back_s is before.back_s
    if told is not None and same and told.changed is allocator.tree.nobody:
        return told
    return grants(allocator, state.book, account, allocator.tree.nobody)


def still(
    state: AllocatorState,
    spikes: Spikes,
    mean_w: FloatArray,
    account: BurstAccount,
    waited: Waited | None,
    at_s: float,
    told: Grants,
) -> AllocatorState:
    """The state after a step in which nothing happened that moves a cap."""
    return AllocatorState(  # most steps end here: `replace` would cost more than everything else in them
        book=state.book,
        trust=state.trust,
        spikes=spikes,
        need_w=state.need_w,
        usual_w=state.usual_w,
        known=state.known,
        rises_per_s=state.rises_per_s,
        target_w=state.target_w,
        mean_w=mean_w,
        prompts=state.prompts,
        rest_w=state.rest_w,
        estimate=state.estimate,
        account=account,
        braking=state.braking,
        quiet=state.quiet,
        started_s=state.started_s,
        at_s=at_s,
        decided_s=state.decided_s,
        waited=waited,
        told=told,
    )
