import asyncio

from controller.fair_shares import FairTurns, Shares


class Work:
    """Jobs that hold their turn until they are let go."""

    def __init__(self, turns: FairTurns) -> None:
        self._turns = turns
        self.running: list[str] = []
        self._let_go: dict[str, asyncio.Event] = {}

    def begin(self, namespace: str, name: str) -> "asyncio.Task[None]":
        self._let_go[name] = asyncio.Event()
        return asyncio.get_running_loop().create_task(self._hold(namespace, name))

    async def end(self, name: str) -> None:
        self._let_go[name].set()
        await settle()

    async def _hold(self, namespace: str, name: str) -> None:
        async with self._turns.turn(namespace):
            self.running.append(name)
            await self._let_go[name].wait()
        self.running.remove(name)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_one_namespace_takes_at_most_half_of_the_turns() -> None:
    async def scenario() -> list[str]:
        work = Work(FairTurns(4))
        tasks = [work.begin("greedy", f"g{n}") for n in range(5)]
        tasks += [work.begin("modest", "m0")]
        await settle()
        running = list(work.running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return running

    assert asyncio.run(scenario()) == ["g0", "g1", "m0"]


def test_namespaces_are_served_in_rotation() -> None:
    async def scenario() -> list[str]:
        work = Work(FairTurns(1))
        tasks = [
            work.begin(namespace, name) for namespace, name in [("a", "a0"), ("a", "a1"), ("a", "a2"), ("b", "b0")]
        ]
        await settle()
        order = []
        while work.running:
            order.append(work.running[0])
            await work.end(work.running[0])
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(scenario()) == ["a0", "a1", "b0", "a2"]


def test_work_that_is_given_up_while_it_waits_takes_no_turn() -> None:
    async def scenario() -> list[str]:
        work = Work(FairTurns(1))
        first, second, third = (work.begin("a", name) for name in ("a0", "a1", "a2"))
        await settle()
        second.cancel()
        await settle()
        await work.end("a0")
        running = list(work.running)
        await work.end("a2")
        await asyncio.gather(first, second, third, return_exceptions=True)
        return running

    assert asyncio.run(scenario()) == ["a2"]


def test_one_name_has_half_and_the_rest_is_for_the_others() -> None:
    shares = Shares(4)

    taken = [shares.take("greedy") for _ in range(3)] + [shares.take(name) for name in ("a", "b", "c")]
    shares.give_back("greedy")

    assert taken == [True, True, False, True, True, False]
    assert shares.take("c")


def test_what_was_taken_comes_back_with_time_to_each_as_much_as_it_took() -> None:
    """4 taken, of which 2 a second come back: after a second each has half of what it had."""
    shares = Shares(4, per_s=2.0)
    for name in ("a", "a", "b", "c"):
        shares.take(name, 0.0)

    assert not shares.take("d", 0.0)
    assert [shares.take(name, 1.0) for name in ("d", "a", "d")] == [True, True, False]
    assert not shares.take("e", 0.5), "a clock that goes back gives nothing"
    assert [shares.take("b", 60.0, kept=2.0) for _ in range(3)] == [True, True, False]
