"""Node agents of tests: their controller is a function that takes what they send."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.clock import Clock
from nodeagent.agent import Hardware, NodeAgent
from nodeagent.out_of_band import MeterReading
from nodeagent.recovery import AgentRules, Session
from power.devices.backend import Backend


@dataclass(frozen=True, slots=True)
class FakeController:
    """Implements `Controller` with functions."""

    sends: Callable[[bytes], object]
    reconnects: Callable[[], object]

    def send(self, message: bytes) -> None:
        self.sends(message)

    def reconnect(self) -> None:
        self.reconnects()


def agent_of(
    node: str,
    life: str,
    boot: str,
    backend: Backend,
    record: Path,
    rules: AgentRules,
    clock: Clock,
    sends: Callable[[bytes], object],
    meter: Callable[[], MeterReading | None] = lambda: None,
    leave_at: Callable[[Mapping[str, float]], None] = lambda _: None,
    reconnects: Callable[[], object] = lambda: None,
) -> NodeAgent:
    """An agent with this session, hardware and controller."""
    controller = FakeController(sends, reconnects)
    return NodeAgent(Session(node, life, boot), Hardware(backend, leave_at, meter), record, rules, clock, controller)
