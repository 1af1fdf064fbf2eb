"""Leader election on an API server: how long a leader may write, and under which precondition it holds the Lease."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.errors import ActionError
from controller.kube.leader_election import IDENTITY_PATH, ROUND_TIMEOUT_S, Leadership, identity_at
from controller.kube.request import JSON, KubeReadError, KubeWriteError, Refusal
from tests.clock import HandClock, run_in_no_time

MISSING = KubeReadError("reading", Refusal(404, "NotFound", "no such Lease"))


@dataclass
class LeaseServer:
    """API server with one Lease, which it replaces only under the version that it has, as a real one."""

    stored: dict[str, Any] | None = None
    version: int = 0
    sent: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    on_write: Callable[[], None] = lambda: None
    """Called while a write is under way."""

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        if self.stored is None:
            raise MISSING
        return json.dumps(self.stored).encode()

    async def write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        assert body is not None
        assert (body["apiVersion"], body["kind"]) == ("coordination.k8s.io/v1", "Lease"), "a server takes no other"
        self.sent.append((method, path, body))
        self.on_write()
        asked = body["metadata"].get("resourceVersion")
        if asked is not None and asked != str(self.version):
            raise KubeWriteError(f"{method} {path}", Refusal(409, "Conflict", "it was modified"))
        self.version += 1
        self.stored = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return json.dumps(self.stored).encode()


def candidate(
    server: LeaseServer,
    clock: HandClock,
    identity: str = "a",
    rolled_back: Callable[[], None] = lambda: None,
    identity_at: Callable[[str], Awaitable[str | None]] | None = None,
) -> Leadership:
    return Leadership(
        server,
        lease=("ns", "tonnage"),
        identity=identity,
        clock=clock,
        wall_clock=lambda: 1.7e9 + clock.now_s,
        rolled_back=rolled_back,
        identity_at=identity_at,
    )


def test_a_leader_counts_its_renewal_from_when_it_was_sent_not_from_the_answer() -> None:
    """Others count from when the Lease changed, which may be just after the request was sent."""
    clock = HandClock(100.0)
    server = LeaseServer(on_write=lambda: clock.__setattr__("now_s", clock.now_s + 3.0))
    leader = candidate(server, clock)

    asyncio.run(leader.round())

    clock.now_s = 109.9
    assert leader.may_write()
    clock.now_s = 110.0
    assert not leader.may_write(), "10 s after 100 s, when it was sent, although it was answered at 103 s"


def test_a_lease_is_replaced_only_as_it_was_read() -> None:
    clock, server = HandClock(), LeaseServer()
    leader, other = candidate(server, clock), candidate(server, clock, "b")
    asyncio.run(leader.round())
    asyncio.run(other.round())
    clock.now_s = 20.0
    server.on_write = lambda: setattr(server, "version", 7)  # a third candidate writes it in between

    with pytest.raises(ActionError, match="modified"):
        asyncio.run(other.round())

    method, path, body = server.sent[-1]
    assert (body["apiVersion"], body["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert (method, path) == ("PUT", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/tonnage")
    assert body["metadata"]["resourceVersion"] == "1"
    assert not other.may_write()


def test_a_process_that_releases_the_lease_stops_writing_before_the_answer_comes() -> None:
    clock, server = HandClock(), LeaseServer()
    leader = candidate(server, clock)
    asyncio.run(leader.round())
    assert leader.may_write()
    seen: list[bool] = []
    server.on_write = lambda: seen.append(leader.may_write())

    asyncio.run(leader.release())

    assert seen == [False]
    assert server.stored is not None
    assert server.stored["spec"]["holderIdentity"] == ""


def test_a_release_that_fails_still_ends_the_writing() -> None:
    clock, server = HandClock(), LeaseServer()
    leader = candidate(server, clock)
    asyncio.run(leader.round())
    server.on_write = lambda: setattr(server, "version", 9)

    asyncio.run(leader.release())

    assert not leader.may_write()


def test_a_takeover_is_a_new_epoch_and_the_former_leader_sees_it() -> None:
    clock, server = HandClock(), LeaseServer()
    leader, other = candidate(server, clock), candidate(server, clock, "b")
    asyncio.run(leader.round())
    asyncio.run(other.round())
    clock.now_s = 15.0

    asyncio.run(other.round())
    asyncio.run(leader.round())

    assert (other.may_write(), other.epoch) == (True, leader.epoch)
    assert other.epoch == 1
    assert not leader.may_write()


def test_a_store_that_went_back_is_told_and_its_leader_takes_the_lease_in_a_new_epoch() -> None:
    """As after a restored backup: the Lease is one that a process held which ended long ago."""
    clock, server, told = HandClock(), LeaseServer(), list[str]()
    gone = candidate(server, clock, "gone")
    asyncio.run(gone.round())
    backup = server.version, server.stored
    clock.now_s = 20.0
    leader = candidate(server, clock, rolled_back=lambda: told.append("leader"))
    standby = candidate(server, clock, "b", rolled_back=lambda: told.append("standby"))
    asyncio.run(leader.round())
    clock.now_s = 35.0
    asyncio.run(leader.round())
    asyncio.run(standby.round())
    epoch = leader.epoch

    server.version, server.stored = backup
    asyncio.run(standby.round())
    was_refused = not standby.may_write()
    asyncio.run(leader.round())
    asyncio.run(standby.round())

    assert told == ["standby", "leader"]
    assert was_refused
    assert (leader.may_write(), standby.may_write()) == (True, False)
    assert leader.epoch == epoch + 1


def test_a_lease_that_is_gone_is_told_as_a_store_that_went_back_and_its_epoch_does_not_begin_again() -> None:
    """The backup may be from before the Lease; and an earlier leader's writes may still be on their way."""
    clock, server, told = HandClock(), LeaseServer(), list[str]()
    leader = candidate(server, clock, rolled_back=lambda: told.append("leader"))
    asyncio.run(leader.round())
    server.stored = None

    asyncio.run(leader.round())
    asyncio.run(leader.round())

    assert (told, leader.may_write(), leader.epoch) == (["leader"], True, 1)


def test_a_renewal_without_an_answer_ends_before_the_leader_must_stop() -> None:
    clock, server = HandClock(), LeaseServer()
    leader = candidate(server, clock)
    asyncio.run(leader.round())

    async def never(*_: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    server.write = never  # type: ignore[method-assign, assignment]
    with pytest.raises(ActionError, match="no answer"):
        run_in_no_time(leader.round(), clock)

    assert clock.now_s == pytest.approx(ROUND_TIMEOUT_S)
    assert leader.may_write()


def test_a_leader_that_steps_down_leaves_the_lease_to_others_for_a_while() -> None:
    clock, server = HandClock(100.0), LeaseServer()
    leader = candidate(server, clock)
    held: list[tuple[float, bool]] = []

    async def sleep(for_s: float) -> None:
        held.append((clock.now_s, leader.may_write()))
        if len(held) == 8:
            raise asyncio.CancelledError
        await clock.sleep(for_s)

    async def life() -> None:
        await leader.round()
        await leader.step_down(10.0)
        assert server.stored is not None
        assert server.stored["spec"]["holderIdentity"] == ""
        await leader.campaign(sleep)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(life())

    assert [at_s for at_s, leads in held if not leads] == [100.0, 102.0, 104.0, 106.0, 108.0]
    assert (110.0, True) in held, "nobody else took it"


@dataclass
class Host:
    """What answers at the leader's address: its identity, nobody ("": refused), or nothing in time (None)."""

    answers: str | None = "a"
    asked: list[str] = field(default_factory=list)

    async def look(self, address: str) -> str | None:
        self.asked.append(address)
        return self.answers


def standing_by(host: Host) -> tuple[HandClock, Leadership]:
    """A leader `a` that says where it answers, and a standby that has asked it once."""
    clock, server = HandClock(100.0), LeaseServer()
    leader = candidate(server, clock)
    leader.answers_at("10.0.0.1:8081")
    standby = candidate(server, clock, "b", identity_at=host.look)
    run_in_no_time(leader.round(), clock)
    run_in_no_time(standby.round(), clock)
    return clock, standby


@pytest.mark.parametrize("answers", ["", "another"], ids=["its port is closed", "another process is there"])
def test_a_standby_takes_the_lease_of_a_process_that_has_ended_before_it_expires(answers: str) -> None:
    host = Host()
    clock, standby = standing_by(host)
    assert not standby.may_write()

    host.answers = answers
    clock.now_s += 2.0
    run_in_no_time(standby.round(), clock)

    assert standby.may_write()
    assert (standby.epoch, set(host.asked)) == (1, {"10.0.0.1:8081"})
    # Read at 100 s for 15 s: what it sent may come until 115 s; it is 102 s and the pause of two looks.
    assert 12.0 < standby.rest_s < 13.0


@pytest.mark.parametrize("answers", ["a", None], ids=["it answers", "it is silent: frozen, or cut off"])
def test_the_lease_of_a_process_that_may_live_has_to_expire(answers: str | None) -> None:
    host = Host()
    clock, standby = standing_by(host)

    host.answers = answers
    for now_s in (102.0, 108.0, 114.9):
        clock.now_s = now_s
        run_in_no_time(standby.round(), clock)
        assert not standby.may_write()
    clock.now_s = 115.0
    run_in_no_time(standby.round(), clock)
    assert standby.may_write()


def test_an_address_that_never_answered_proves_nothing() -> None:
    """Where a policy of the network refuses the standby, the leader is not dead: two would take turns for ever."""
    host = Host("")
    clock, standby = standing_by(host)
    for _ in range(5):
        clock.now_s += 2.0
        run_in_no_time(standby.round(), clock)

    assert not standby.may_write()


def test_a_process_is_asked_who_it_is_over_http() -> None:
    async def story() -> list[str | None]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.readline() == f"GET {IDENTITY_PATH} HTTP/1.0\r\n".encode()
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nme1\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = [await identity_at(address)]
        server.close()
        await server.wait_closed()
        return [*found, await identity_at(address), await identity_at("nowhere")]

    assert asyncio.run(story()) == ["me1", "", None]
