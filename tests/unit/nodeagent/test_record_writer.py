"""A disk that is full or hangs stops no limit from being lowered; nothing is raised that is not on record."""

import asyncio
import threading
from pathlib import Path

import pytest

from nodeagent import state_file
from nodeagent.state_file import Record, RecordWriter, lease_path, read_record, write_record
from tests.unit.nodeagent.test_agent import Node, gpu, lived


class Disk:
    """What stands for the disk below `write_record`: it may be full, or hang until it is let go."""

    def __init__(self) -> None:
        self.is_full = self.hangs = False
        self.let_go = threading.Event()

    def write(self, path: Path, record: Record, known: Record | None = None) -> None:
        if self.hangs:
            self.let_go.wait(20.0)
        if self.is_full:
            raise OSError(28, "No space left on device")
        write_record(path, record, known)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(state_file, "write_record", made.write)
    monkeypatch.setattr(state_file, "PATIENCE_S", 20.0)
    return made


@pytest.mark.parametrize("fault", ["is_full", "hangs"])
def test_limits_are_lowered_without_a_record_and_raised_with_one_only(
    tmp_path: Path, disk: Disk, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu("a"), gpu("b"))
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"a": 600.0, "b": 500.0}))
        await node.passes(1.0)
        setattr(disk, fault, True)
        monkeypatch.setattr(state_file, "PATIENCE_S", 20.0 if fault == "is_full" else 0.02)
        node.agent.receive(node.lease(await node.passes(1.0), {"a": 300.0, "b": 650.0}))
        without = await node.passes(1.0)
        assert [without.devices[uuid].cap_w for uuid in "ab"] == [300.0, 500.0]
        assert without.sequence == 1  # not in force: after a crash it would be forgotten

        setattr(disk, fault, False)
        monkeypatch.setattr(state_file, "PATIENCE_S", 20.0)
        disk.let_go.set()
        while not await node.agent._writer.write(Record()):
            await asyncio.sleep(0.01)
        await node.passes(1.0)
        report = await node.passes(1.0)
        assert [report.devices[uuid].cap_w for uuid in "ab"] == [300.0, 650.0]
        assert report.sequence == 2

    lived(story)


def test_an_agent_starts_on_a_full_disk_and_lowers_its_devices_to_their_floor(tmp_path: Path, disk: Disk) -> None:
    async def story() -> None:
        disk.is_full = True
        node = Node(tmp_path, gpu())
        await node.agent.start()
        await node.looks()

        assert node.devices.orders == [("g", 350.0)]

    lived(story)


def test_a_lease_that_cannot_be_written_leaves_no_older_one(tmp_path: Path) -> None:
    """It may allow more, and an agent that starts again would resume it."""

    async def story() -> None:
        path = tmp_path / "record"
        node = Node(tmp_path, gpu())
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}))
        await node.passes(1.0)
        assert read_record(path).holder is not None
        scratch = lease_path(path).with_name(f".{lease_path(path).name}.new")
        scratch.mkdir()  # nothing can be written in its place
        assert not await RecordWriter(path).write(Record(boot="boot-1"))

        assert read_record(path).holder is None

    lived(story)
