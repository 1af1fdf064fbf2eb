"""Messages of the kernel about hardware: what a line says, in its own words. How severe that is, `health` decides."""

import re
from dataclasses import dataclass

from health.verdicts.findings import TABLE


@dataclass(frozen=True, slots=True)
class Message:
    """One line that concerns hardware."""

    code: str
    """What was found, with the line's own word where that decides: `Xid79`, `Xid145Fatal`, `Xid154Reboot`."""
    subject: str
    topic: str
    """A newer line of the same topic and subject replaces an older one: a link that is up again, another action."""


_ADDRESS = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?\b")
"""Of the device that a driver writes about: the first in a line."""
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,6})\b(.*)")
_SXID = re.compile(r"nvidia-nvswitch\S*: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,6})\b(.*)")
_SXID_DETAIL = re.compile(r"^,?\s*(?:Severity|Data|Engine)\b")
"""Lines that follow the one with the word, with registers alone."""
_WORD = re.compile(r"\b(non-?fatal|fatal)\b", re.IGNORECASE)
_BY_WORD = frozenset({74, *range(144, 151)})
"""GPU errors of NVLink: the same number for what is fatal and what is not."""
_ACTION = re.compile(r"changed from 0x[0-9a-f]+ .*?to (0x[0-9a-f]+)", re.IGNORECASE)
ACTIONS = {0: "None", 1: "Reset", 2: "Reboot", 3: "DrainPeers", 4: "DrainAndReset"}
"""What the driver asks for. Source: nvmlDeviceGpuRecoveryAction_t."""
_MCI_STATUS = re.compile(r"Machine Check(?: Exception)?: \S+ Bank \d+: ([0-9a-f]{16})\b")
_UNCORRECTED, _CONTEXT_LOST, _DEFERRED = 1 << 61, 1 << 57, 1 << 44
_RAS = re.compile(r"amdgpu.*?\b([0-9]+) (?:new )?(uncorrectable|correctable|deferred) hardware errors")
_RAS_CODES = {"uncorrectable": "RasUncorrected", "correctable": "RasCorrected", "deferred": "RasContained"}

_UNCORRECTABLE = r"(?:AER|PCIe Bus Error|pcieport).*(?:uncorrect(?:ed|able)|severity=)[ ,]*\(?"
_NICS = r"\b(?:mlx5_core|mlx4_en|bnxt_en|ice|i40e|ixgbe|igb|irdma|efa)\b.*\blink (?:is )?"
PATTERNS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (code, topic, re.compile(text, re.IGNORECASE))
    for code, topic, text in (
        ("GpuLost", "", r"NVRM: .*(?:fallen off the bus|RmInitAdapter failed)"),
        ("GpuLost", "", r"amdgpu.*(?:device (?:is )?lost from bus|fatal error during GPU init)"),
        ("RasFatal", "", r"amdgpu.*(?:ERREVENT_ATHUB_INTERRUPT|exceed.* threshold|GPU is (?:in )?bad|\bRMA\b)"),
        ("GpuResetFailed", "GpuReset", r"amdgpu.*GPU reset(?:\(\d+\))? (?:failed|end with ret = -)"),
        ("GpuResetDone", "GpuReset", r"amdgpu.*GPU reset(?:\(\d+\))? succe"),
        ("GpuReset", "", r"amdgpu.*GPU reset begin"),
        ("RasContained", "", r"amdgpu.*(?:poison|bad pages?.*(?:retired|reserved)|page retirement)"),
        ("GpuTimeout", "", r"amdgpu.*ring \S+ timeout"),
        ("MachineCheck", "", r"Kernel panic - not syncing: .*machine check|\[Hardware Error\]:? ?System Fatal"),
        ("HardwareErrorFatal", "", r"\[Hardware Error\]:\s+event severity: (?:fatal|panic)"),
        ("HardwareErrorRecoverable", "", r"\[Hardware Error\]:\s+event severity: recoverable"),
        ("HardwareErrorCorrected", "", r"\[Hardware Error\]:\s+event severity: corrected"),
        ("HardwareErrorInfo", "", r"\[Hardware Error\]:\s+event severity: info"),
        ("MachineCheckUncorrected", "", r"\[Hardware Error\]: Uncorrected"),
        ("MachineCheckDeferred", "", r"\[Hardware Error\]: Deferred"),
        ("MachineCheckLogged", "", r"\[Hardware Error\]: Machine check events logged"),
        ("MemoryError", "", r"EDAC \S+: [1-9]\d* UE "),
        ("MemoryPageInUse", "", r"Memory failure: .*(?:recovery action .*: (?:failed|ignored)|still referenced)"),
        ("MemoryPageLost", "", r"Memory failure: .*(?:recovery action .*: (?:recovered|delayed)|killing)"),
        ("PcieRecovered", "Pcie", r"(?:AER|DPC): device recovery successful"),
        ("PcieUnrecovered", "Pcie", r"(?:AER|DPC): (?:device recovery failed|can't recover)"),
        ("PcieNonfatal", "", _UNCORRECTABLE + r"non-?fatal"),
        ("PcieFatal", "Pcie", _UNCORRECTABLE + r"fatal|DPC: (?:containment event|unmasked uncorrectable)"),
        ("PcieLinkDown", "", r"pciehp: Slot\(\S+\): (?:Link Down|Card not present)"),
        ("NicDead", "NicHealth", r"mlx5_core.*(?:health compromised|fatal error \d+ detected|failed to recover)"),
        ("NicDead", "NicHealth", r"mlx5_core.*health recovery (?:flow )?(?:failed|aborted)"),
        ("NicDead", "NicHealth", r"bnxt_en.*(?:firmware (?:is )?(?:not respond|unrespons|fatal)|FW reset failed)"),
        ("NicDead", "NicHealth", r"\bice\b.*(?:unrecoverable|rebuild failed)"),
        ("NicRecovered", "NicHealth", r"(?:mlx5_core|bnxt_en|\bice\b).*recovery (?:was )?succe"),
        ("NicHeat", "", r"mlx5_core.*(?:temperature|insufficient power)"),
        ("NicModule", "", r"mlx5_core.*module event\[error\]"),
        ("NicLinkUp", "NicLink", _NICS + r"up\b"),
        ("NicLinkDown", "NicLink", _NICS + r"down\b"),
        ("NicTimeout", "", r"NETDEV WATCHDOG: .*transmit queue \d+ timed out"),
        ("SoftLockup", "", r"watchdog: BUG: soft lockup"),
        ("HungTask", "", r"INFO: task \S+ blocked for more than \d+ seconds"),
    )
)
"""Code, topic (empty: the code) and what a line has; the first that fits counts. Source: the drivers' own messages."""


def message_of(line: str) -> Message | None:
    """What a message of the kernel says about hardware; None: nothing, or that something was corrected."""
    if found := _XID.search(line):
        return _gpu_error("Xid", found)
    if found := _SXID.search(line):
        return None if _SXID_DETAIL.match(found[3].lstrip(", ")) else _gpu_error("SXid", found)
    if found := _RAS.search(line):
        return _about(line, _RAS_CODES[found[2]], "") if int(found[1]) else None
    if found := _MCI_STATUS.search(line):
        status = int(found[1], 16)
        if not status & (_UNCORRECTED | _DEFERRED):
            return None
        lost = "MachineCheck" if status & _CONTEXT_LOST else "MachineCheckUncorrected"
        code = lost if status & _UNCORRECTED else "MachineCheckDeferred"
        return Message(code, "host", code)
    for code, topic, text in PATTERNS:
        if text.search(line):
            return _about(line, code, topic)
    return None


def _gpu_error(family: str, found: re.Match[str]) -> Message:
    address, number, rest = found[1], int(found[2]), found[3]
    code = f"{family}{number}"
    if code == "Xid154":
        action = _ACTION.search(rest)
        word = ACTIONS.get(int(action[1], 16), "Other") if action else ""
        return Message(f"{code}{word}", address, code)
    said = _WORD.search(rest) if family == "SXid" or number in _BY_WORD or code not in TABLE else None
    code += said[1].replace("-", "").capitalize() if said else ""
    return Message(code, address, code)


def _about(line: str, code: str, topic: str) -> Message:
    found = _ADDRESS.search(line)
    return Message(code, found[0] if found else "host", topic or code)
