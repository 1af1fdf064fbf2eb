"""What a descriptor that a client passes says of a process."""

import os

from nodeagent.sandboxes.sockets import pid_of


def test_a_pidfd_names_its_process_and_nothing_else_does() -> None:
    pidfd, other = os.pidfd_open(os.getpid()), os.open("/dev/null", os.O_RDONLY)

    found = pid_of(pidfd), pid_of(other), pid_of(987_654)
    os.close(pidfd)
    os.close(other)

    assert found == (os.getpid(), 0, 0)


def test_the_pidfd_of_a_process_that_was_reaped_names_none() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    pidfd = os.pidfd_open(child)
    os.waitpid(child, 0)

    found = pid_of(pidfd)
    os.close(pidfd)

    assert found == 0
