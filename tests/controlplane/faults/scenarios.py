"""Fault scenarios, one function each. After each of them every pod that was created must run."""

import os
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from threading import Event, Thread
from typing import Any

from simulator.controlplane import processes
from simulator.controlplane.server import up
from tests.controlplane.faults.stage import Actor, NotConvergedError, Play
from tests.controlplane.faults.workload import RESERVED, TIGHT, Wave, placed, wave
from tests.controlplane.plain_api import PlainApi
from tests.controlplane.processes import process_of
from tests.until import comes_true

Scenario = Callable[[Play, int], None]
"""Plays a number of rounds."""

DELAY_S = 0.02
"""Of each placing write, so that a plan of some hundred has a middle."""


def a_wave(play: Play, number: int) -> Wave:
    return wave(f"w{number}", play.namespace, play.pods, play.chance)


def in_the_middle(play: Play, actor: Actor, deed: Callable[[], None]) -> Event:
    """Does it before some placing write of the next wave is passed on, by chance; set once it was done."""
    number, done = actor.proxy.placing + play.chance.randint(2, max(3, play.pods // 2)), Event()

    def look(count: int) -> None:
        if count == number:
            deed()
            done.set()

    actor.proxy.faults.on_placing = look
    return done


def happened(event: Event) -> None:
    if not event.wait(60):
        raise NotConvergedError("the operator made too few writes for the fault to happen")


def killed(play: Play, rounds: int) -> None:
    """The leader is killed (SIGKILL) in the middle of a plan, and the standby takes over."""
    play.start(2, delay_s=DELAY_S)
    for number in range(rounds):
        leader = play.leader()
        dead = in_the_middle(play, leader, leader.process.process.kill)
        play.create(a_wave(play, number))
        happened(dead)
        leader.process.process.wait()
        play.injected["leaders killed in the middle of a plan"] += 1
        play.settle()
        play.clear()
        if number + 1 < rounds:
            play.start(1, delay_s=DELAY_S)


def frozen(play: Play, rounds: int) -> None:
    """The leader is frozen in the middle of a plan past its Lease, and thaws in the middle of its successor's."""
    play.start(2, delay_s=DELAY_S)
    for number in range(rounds):
        old = play.leader()
        (new,) = (actor for actor in play.actors if actor is not old)
        stopped = in_the_middle(play, old, lambda old=old: old.send(signal.SIGSTOP))  # type: ignore[misc]
        thawed = in_the_middle(play, new, lambda old=old: old.send(signal.SIGCONT))  # type: ignore[misc]
        play.create(a_wave(play, 2 * number))
        happened(stopped)
        if not comes_true(lambda new=new: new.leads, 60):  # type: ignore[misc]
            raise NotConvergedError("the standby did not take over")
        play.create(a_wave(play, 2 * number + 1))
        happened(thawed)
        play.injected["leaders frozen past their Lease and thawed"] += 1
        play.settle()
        if not comes_true(lambda old=old: not old.leads, 60):  # type: ignore[misc]
            raise NotConvergedError("the thawed leader still thinks that it leads")
        play.clear()


def in_hand(play: Play, rounds: int) -> None:
    """A frozen leader's binds, sent while it led, reach the server after its successor gave the devices to others."""
    _in_hand(play, rounds)


def in_hand_unfenced(play: Play, rounds: int) -> None:
    """The same without the fence: shows what the API server lets through, and that the witness sees it."""
    play.stage.fence(stands=False)
    try:
        _in_hand(play, rounds)
    finally:
        play.stage.fence(stands=True)


def _in_hand(play: Play, rounds: int) -> None:
    for number in range(rounds):
        play.start(2)
        old = play.leader()
        (new,) = (actor for actor in play.actors[-2:] if actor is not old)
        old.line.call(old.proxy.hold)
        create(play, "first", number)
        if not comes_true(lambda old=old: old.proxy.placing >= 8 * TIGHT, 60):  # type: ignore[misc]
            raise NotConvergedError("the leader did not try to bind")
        old.send(signal.SIGSTOP)
        create(play, "second", number, priorityClassName="important")
        second = {name for name in play.wanted if "/second" in name}
        if not comes_true(lambda second=second: not second & play.missing(), 120):  # type: ignore[misc]
            raise NotConvergedError("the successor did not place the pods that came later")
        old.line.run(old.proxy.release())
        for status, count in old.proxy.answered.items():
            play.injected[f"stale writes answered {status}"] += count
        old.send(signal.SIGCONT)
        for pod in play.stage.witness.pods(play.namespace):
            if pod.name in second:
                del play.wanted[pod.name]
                play.delete(pod, play.api())
        if old.proxy.answered[201]:  # they hold what others held; what the kubelet made of them is of no interest
            play.clear()
        else:
            play.settle()
            play.clear()
        old.process.process.kill()
        new.process.process.terminate()
        new.process.process.wait(30)


def create(play: Play, name: str, number: int, **spec: Any) -> None:
    """As many single pods as the tight corner has devices."""
    pods = tuple(
        placed(f"{name}-{number}-{n:02d}", play.namespace, "bind", corner="tight", **spec) for n in range(8 * TIGHT)
    )
    play.create(Wave(pods, (), {}))


def server_restarted(play: Play, rounds: int) -> None:
    """The API server is killed in the middle of a plan and comes back seconds later."""
    play.start(1, delay_s=DELAY_S)
    stage = play.stage
    for number in range(rounds):
        server = process_of(stage.plane.folder, "kube-apiserver")
        dead = in_the_middle(play, play.leader(), lambda server=server: os.kill(server.pid, signal.SIGKILL))  # type: ignore[misc]
        made = a_wave(play, number)
        creating = Thread(target=_create_in_spite, args=(play, made))
        creating.start()
        happened(dead)
        processes.ended_within(server, 30)
        up(stage.plane.folder, stage.plane.state.settings, stage.programs)
        creating.join(60)
        play.injected["API servers killed in the middle of a plan"] += 1
        play.settle()
        play.clear()


def _create_in_spite(play: Play, made: Wave) -> None:
    """Pods whose making broke off with the server are made when it is back."""
    try:
        play.create(made)
    except Exception:  # noqa: BLE001 - whatever broke; what is missing is made below
        over = Event()
        for path, objects in (("gangs", made.gangs), ("pods", made.pods)):
            base = "/api/v1" if path == "pods" else "/apis/tonnage.dev/v1alpha1"
            for each in objects:
                while True:
                    try:
                        with closing(PlainApi(play.stage.plane.kubeconfig)) as api:
                            answer = api.send("POST", f"{base}/namespaces/{play.namespace}/{path}", each)
                    except OSError:
                        over.wait(0.2)
                        continue
                    if answer.is_ok or answer.status == 409:
                        break
                    over.wait(0.2)


def watches_cut(play: Play, rounds: int) -> None:
    """Every watch of the operator breaks three times a second, while it plans."""
    play.start(1, delay_s=DELAY_S)
    (actor,) = play.actors
    play.create_service()
    with play.meanwhile(lambda: actor.line.call(actor.proxy.cut), 0.3):
        for number in range(rounds):
            play.create(a_wave(play, number))
            play.settle(has_service=True)
            play.clear()


def expired(play: Play, rounds: int) -> None:
    """Every watch ends with 410 Gone three times a second, and etcd drops all versions but the newest."""
    play.start(1, delay_s=DELAY_S)
    (actor,) = play.actors
    play.create_service()

    def compact() -> None:
        etcd = f"http://127.0.0.1:{play.stage.plane.state.ports.etcd}/v3/kv"
        newest = _post(f"{etcd}/range", b'{"key": "AA==", "limit": 1}')
        revision = newest.partition('"revision":"')[2].partition('"')[0]
        _post(f"{etcd}/compaction", f'{{"revision": "{revision}", "physical": true}}'.encode())
        play.injected["compactions of etcd"] += 1

    with (
        play.meanwhile(lambda: actor.line.call(actor.proxy.expire), 0.3),
        play.meanwhile(compact, 1.0),
    ):
        for number in range(rounds):
            play.create(a_wave(play, number))
            play.settle(has_service=True)
            play.clear()


def _post(url: str, body: bytes) -> str:
    with urllib.request.urlopen(url, body, timeout=10) as answer:  # noqa: S310 - a server of our own
        return str(answer.read().decode())


def nodes_lost(play: Play, rounds: int) -> None:
    """Nodes are deleted and cordoned in the middle of binding; their pods are recreated."""
    play.start(1, delay_s=DELAY_S)
    for number in range(rounds):
        picked = play.chance.sample([each for each in play.stage.nodes if _corner(each) == "open"], 8)
        api = play.api()

        def strike(picked: Any = picked, api: PlainApi = api) -> None:
            for node in picked[:4]:
                api.send("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")
            for node in picked[4:]:
                play.patch(api, f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": True}})

        done = in_the_middle(play, play.leader(), strike)
        play.create(a_wave(play, number))
        happened(done)
        play.injected["nodes deleted"] += 4
        play.injected["nodes cordoned"] += 4
        play.settle()
        play.clear()
        for node in picked[:4]:
            api.send("POST", "/api/v1/nodes", node)
        for node in picked[4:]:
            play.patch(api, f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": None}})


def _corner(node: Mapping[str, Any]) -> str:
    return str(node["metadata"]["labels"]["corner"])


def pods_deleted(play: Play, rounds: int) -> None:
    """Pods are deleted while they are planned, bound and started, and recreated under their names."""
    play.start(1, delay_s=DELAY_S)
    api = play.api()

    def strike() -> None:
        pods = play.stage.witness.pods(play.namespace)
        if pods and play.delete(play.chance.choice(pods), api).is_ok:
            play.injected["pods deleted"] += 1

    for number in range(rounds):
        with play.meanwhile(strike, 0.03):
            play.create(a_wave(play, number))
            Event().wait(4.0)
        play.settle()
        play.clear()


def others_write(play: Play, rounds: int) -> None:
    """Another client annotates and binds the same pods, and another manager changes Deployments and services."""
    play.start(1, delay_s=DELAY_S)
    play.create_service()
    api, base = play.api(), f"/api/v1/namespaces/{play.namespace}/pods"
    reserved = [each["metadata"]["name"] for each in play.stage.nodes if _corner(each) == "reserved"]
    taken: list[str] = []

    def touch() -> None:
        pods = [pod for pod in play.stage.witness.pods(play.namespace) if not pod.node]
        for pod in play.chance.sample(pods, min(len(pods), 3)):
            name = pod.name.partition("/")[2]
            stamp = {"metadata": {"annotations": {"example.com/seen": str(play.chance.random())}}}
            if play.patch(api, f"{base}/{name}", stamp).is_ok:
                play.injected["pods changed by another"] += 1
            if name.startswith("w") and "-p" in name and play.chance.random() < 0.2 and len(taken) < 8 * RESERVED // 4:
                _bind(play, api, name, reserved[len(taken) % len(reserved)], taken)

    other = play.api()

    def meddle() -> None:
        deployments = f"/apis/apps/v1/namespaces/{play.namespace}/deployments"
        for each in other.send("GET", deployments).body.get("items", ()):
            name = each["metadata"]["name"]
            replicas = {"spec": {"replicas": play.chance.randint(0, 4)}}
            if play.chance.random() < 0.2:
                other.send("DELETE", f"{deployments}/{name}")
                play.injected["Deployments deleted by another"] += 1
            elif play.patch(other, f"{deployments}/{name}", replicas).is_ok:
                play.injected["Deployments scaled by another"] += 1
        path = f"/apis/tonnage.dev/v1alpha1/namespaces/{play.namespace}/modelservices/chat"
        play.patch(other, path, {"metadata": {"annotations": {"example.com/seen": str(play.chance.random())}}})

    with _open_to_another(play, api, reserved):
        for number in range(rounds):
            with play.meanwhile(touch, 0.02), play.meanwhile(meddle, 0.5):
                play.create(a_wave(play, number))
                Event().wait(4.0)
            play.settle(has_service=True)
            play.clear()
            taken.clear()


@contextmanager
def _open_to_another(play: Play, api: PlainApi, nodes: Sequence[str]) -> Iterator[None]:
    """Reserved nodes as the wave's pods select them, so that a kubelet runs what another client binds there; a taint
    keeps Tonnage off."""

    def change(pool: str, corner: str, taints: object) -> None:
        for node in nodes:
            body = {"metadata": {"labels": {"pool": pool, "corner": corner}}, "spec": {"taints": taints}}
            play.patch(api, f"/api/v1/nodes/{node}", body)

    change("bind", "open", [{"key": "example.com/reserved", "effect": "NoSchedule"}])
    try:
        yield
    finally:
        change("reserved", "reserved", None)


def _bind(play: Play, api: PlainApi, name: str, node: str, taken: list[str]) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    if api.send("POST", f"/api/v1/namespaces/{play.namespace}/pods/{name}/binding", body).is_ok:
        taken.append(name)
        play.injected["pods bound by another"] += 1


def refused(play: Play, rounds: int) -> None:
    """One request in twenty is answered 429, 500 or 409; one write in fifty is done and its answer lost."""
    play.start(2, delay_s=DELAY_S, refused_share=0.05, lost_share=0.02)
    play.create_service()
    for number in range(rounds):
        play.create(a_wave(play, number))
        play.settle(has_service=True)
        play.clear()


MACHINERY: Mapping[str, tuple[Scenario, int]] = {
    "killed": (killed, 20),
    "frozen": (frozen, 3),
    "in-hand": (in_hand, 1),
    "in-hand-unfenced": (in_hand_unfenced, 1),
    "server-restarted": (server_restarted, 3),
    "watches-cut": (watches_cut, 3),
    "expired": (expired, 3),
    "nodes-lost": (nodes_lost, 3),
    "pods-deleted": (pods_deleted, 3),
    "others-write": (others_write, 3),
    "refused": (refused, 5),
}
"""With the rounds of the long form."""
EXPECTED_DOUBLE = frozenset({"in-hand-unfenced"})
"""Where the witness must see devices given twice: else it would see nothing anywhere."""
