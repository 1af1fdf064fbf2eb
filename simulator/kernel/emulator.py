"""Emulated machine: QEMU and Debian 13's cloud kernel, by version and checksum, for what User-Mode Linux lacks.

Two CPUs, pressure stall information (PSI) and cpusets. The programs are started through their own C library's loader;
nothing is installed. The guest's root is this machine's, read-only, over virtiofs, which the kernel has built in, so
that it needs no initial RAM disk.
"""

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import GuestError
from simulator.controlplane.file_lock import locked
from simulator.kernel.deb import unpack
from simulator.kernel.packages import Package, archives_of, fetched, folder_of

PINS = Path(__file__).with_name("debian13.sha256")
"""Packages, a checksum and a path in Debian's archive a line: QEMU, virtiofsd, the kernel, and what those need."""

LINE = "/dev/vport1p1"
"""Virtio-serial port in the guest that carries calls and answers."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """Unpacked programs."""

    folder: Path

    def file_server(self, listener: int) -> list[str]:
        """Command that serves this machine's files, read-only, to the one client of the listening socket."""
        options = ["--fd", str(listener), "--shared-dir", "/", "--readonly", "--sandbox", "none", "--seccomp", "none"]
        return [*self._run("usr/libexec/virtiofsd"), *options, "--cache", "auto", "--log-level", "error"]

    def machine(self, memory_mib: int, files: Path, line: int, log: Path, words: list[str]) -> list[str]:
        """Command of a machine with two CPUs.

        files: socket of the file server; line: connected socket of calls and answers; log: of the kernel's console;
        words: the kernel's command line.
        """
        share = self.folder / "usr/share"
        cpu = ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-M", "q35,memory-backend=memory"]
        # The file server reads and writes the guest's memory, so that it must be shared.
        memory = ["-m", f"{memory_mib}M", "-object", f"memory-backend-memfd,id=memory,size={memory_mib}M,share=on"]
        root = [f"socket,id=files,path={files}", "-device", "vhost-user-fs-pci,chardev=files,tag=root,queue-size=1024"]
        port = ["-device", "virtio-serial-pci", "-chardev", f"socket,id=line,fd={line}"]
        port += ["-device", "virtserialport,chardev=line", "-device", "virtio-rng-pci"]
        console = ["-chardev", f"file,id=console,path={log}", "-device", "isa-serial,chardev=console"]
        kernel = ["-kernel", str(next((self.folder / "boot").glob("vmlinuz-*"))), "-append", " ".join(words)]
        bare = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        firmware = ["-L", str(share / "qemu"), "-L", str(share / "seabios")]
        program = self._run("usr/bin/qemu-system-x86_64")
        return [*program, *firmware, *cpu, *memory, *bare, "-chardev", *root, *port, *console, *kernel]

    def words(self, *program: str) -> list[str]:
        """Kernel command line: fewest checks at start, since each takes ten times as long as on a real machine."""
        root = ["root=root", "rootfstype=virtiofs", "ro", "console=ttyS0", "quiet", "loglevel=4", "panic=-1", "psi=1"]
        haste = ["tsc=reliable", "no_timer_check", "cryptomgr.notests", "mitigations=off", "random.trust_cpu=on"]
        modules = ["audit=0", "selinux=0", "apparmor=0"]
        return [*root, *haste, *modules, f"init={sys.executable}", f"TONNAGE_LINE={LINE}", *program]

    def _run(self, program: str) -> list[str]:
        loader = self.folder / "usr/lib64/ld-linux-x86-64.so.2"
        return [
            str(loader),
            "--library-path",
            str(self.folder / "usr/lib/x86_64-linux-gnu"),
            str(self.folder / program),
        ]


def emulator(environment: Mapping[str, str] = os.environ) -> Emulator:
    """Emulator, fetched where the cache has none: 63 MB. Raises GuestError with the reason."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise GuestError(f"the emulator is pinned for Linux and x86_64, not {platform.system()} {platform.machine()}")
    folder = folder_of("qemu", PINS.read_text(encoding="ascii"), environment)
    try:
        with locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.exists():
                _make(folder, environment)
    except OSError as error:
        raise GuestError(f"making the emulator in {folder}: {error}") from error
    return Emulator(folder)


def pinned() -> tuple[Package, ...]:
    lines = (line.split() for line in PINS.read_text(encoding="ascii").splitlines())
    return tuple(Package(path, sha256, "boot/" if "/linux-image-" in path else "usr/") for sha256, path in lines)


def _make(folder: Path, environment: Mapping[str, str]) -> None:
    """Unpacks all beside the folder, which then appears complete."""
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for package in pinned():
        unpack(fetched(package, archives_of(environment)), unfinished, only=package.folder)
    unfinished.rename(folder)
