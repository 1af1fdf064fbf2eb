"""A pod's socket: made in its own folder, whatever the pod planted there."""

import os
import socket
import stat
from pathlib import Path

import pytest

from nodeagent.sandboxes.sockets import SOCKET, listening_socket, remove_socket

UID = "0f1e2d3c-aaaa-bbbb-cccc-1234567890ab"


def test_every_user_of_the_pod_may_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has at most 107 bytes
    listener = listening_socket(tmp_path, UID)
    mode = (tmp_path / UID / SOCKET).stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o666
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(f"{UID}/{SOCKET}")
    client.close()
    listener.close()
    remove_socket(tmp_path, UID)
    assert not (tmp_path / UID).exists()


def test_a_socket_of_an_earlier_process_is_replaced(tmp_path: Path) -> None:
    listening_socket(tmp_path, UID).close()
    listener = listening_socket(tmp_path, UID)

    listener.close()
    remove_socket(tmp_path, UID)


def test_a_planted_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept", encoding="utf-8")
    victim.chmod(0o600)
    (tmp_path / UID).mkdir()
    (tmp_path / UID / SOCKET).symlink_to(victim)

    listener = listening_socket(tmp_path, UID)

    assert victim.read_text(encoding="utf-8") == "kept"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert not (tmp_path / UID / SOCKET).is_symlink()
    listener.close()
    remove_socket(tmp_path, UID)


def test_a_planted_folder_costs_the_pod_its_own_socket(tmp_path: Path) -> None:
    (tmp_path / UID / SOCKET / "in-the-way").mkdir(parents=True)

    with pytest.raises(OSError, match="directory"):
        listening_socket(tmp_path, UID)


def test_a_link_in_place_of_the_pod_s_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / UID).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError):  # noqa: PT011 - ENOTDIR or ELOOP, by kernel
        listening_socket(tmp_path, UID)
    assert os.listdir(tmp_path / "elsewhere") == []
