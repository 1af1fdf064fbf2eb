"""Forwarding of health reports over the agent's connection, one at a time and behind the reports on power."""

import asyncio
from collections.abc import Callable

from health.records.frames import REPORT_KIND, packed
from nodeagent.agent import Agent
from nodeagent.controller_link import Link
from nodeagent.health.feed import HealthFeed
from power.leases.messages import Keys, sealed_text

EVERY_S = 0.05


async def forward(feed: HealthFeed, agent: Agent, link: Link, keys: Callable[[], Keys], node: str) -> None:
    """Sends what the feed holds, for ever, while the controller takes it."""
    was_heard = False
    while True:
        await asyncio.sleep(EVERY_S)
        if not link.is_up:
            agent.heard_kinds = ()
        is_heard = REPORT_KIND in agent.heard_kinds
        if is_heard and not was_heard:
            feed.refresh()
        was_heard = is_heard
        if was_heard and link.is_idle and (report := feed.next_report()) is not None:
            link.send_bulk(sealed_text(REPORT_KIND, packed(report), keys(), node))
