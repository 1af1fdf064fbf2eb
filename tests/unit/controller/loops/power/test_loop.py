"""Fast loop in the operator: it serves only while this process leads, and a new epoch is a new term."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from controller.loops.power.loop import LOOK_S, PowerLoop, PowerView
from power.rules import PowerRules
from tests.agents.credentials import names_itself
from tests.clock import HandClock, run_in_no_time


@dataclass
class Process:
    """A process with the loop, that leads or does not."""

    clock: HandClock = field(default_factory=HandClock)
    view: PowerView | None = field(default_factory=lambda: PowerView({}, {}))
    leads: bool = True
    epoch: int = 1

    def __post_init__(self) -> None:
        self.loop = PowerLoop(self.see, self, names_itself, self.clock, PowerRules())

    def see(self) -> PowerView | None:
        return self.view

    def may_write(self) -> bool:
        return self.leads

    def term(self) -> int | None:
        """Epoch of the running term."""
        return self.loop.loop_state.epoch if self.loop.loop_state is not None else None

    def runs(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def around() -> None:
            await self.loop.listen("127.0.0.1", 0, None)
            running = asyncio.create_task(self.loop.run())
            await asyncio.sleep(LOOK_S)
            await story()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

        run_in_no_time(around(), self.clock)


def test_only_a_process_that_leads_serves() -> None:
    process, seen = Process(leads=False), list[int | None]()

    async def story() -> None:
        for leads in (False, True, False):
            process.leads = leads
            await asyncio.sleep(2 * LOOK_S)
            seen.append(process.term())

    process.runs(story)

    assert seen == [None, 1, None]


def test_nothing_is_served_before_the_cluster_was_seen() -> None:
    process, seen = Process(view=None), list[int | None]()

    async def story() -> None:
        seen.append(process.term())

    process.runs(story)

    assert seen == [None]


def test_a_new_epoch_begins_a_new_term_and_a_gap_within_one_does_not() -> None:
    """Agents refuse numbers that begin again within an epoch, and instants of another leader's clock."""
    process, terms = Process(), list[object]()

    async def story() -> None:
        for epoch, leads in ((1, True), (1, False), (1, True), (2, True)):
            process.epoch, process.leads = epoch, leads
            await asyncio.sleep(2 * LOOK_S)
            terms.append((process.term(), process.loop._term))

    process.runs(story)

    (first, one), _, (again, same), (second, other) = terms  # type: ignore[misc]
    assert (first, again, second) == (1, 1, 2)
    assert same is one
    assert other is not one
