"""Pages in the form of NVIDIA's dcgm-exporter (internal/pkg/rendermetrics), and an exporter that a test turns."""

from nodeagent.health.dcgm_exporter import EVERY_S, DcgmExporter, PageError, own_gpus
from tests.clock import HandClock

UUID = "GPU-34319582-d595-d1c7-d1d2-179bcfa61660"
BUS = "0000:3b:00"
"""As the kernel writes it."""
XIDS, LATELY, IN_ALL = "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL"
DBE, REASONS = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
LABELS = {
    "gpu": "0",
    "UUID": UUID,
    "pci_bus_id": "00000000:3B:00.0",
    "device": "nvidia0",
    "modelName": "NVIDIA H100 80GB HBM3",
    "Hostname": "n1",
    "DCGM_FI_DRIVER_VERSION": "550.54.15",
    "container": "main",
    "namespace": "team-a",
    "pod": "train-0",
}


def line(metric: str, value: object, **labels: str) -> str:
    """One sample; a label set to nothing is left out."""
    told = ",".join(f'{name}="{text}"' for name, text in {**LABELS, **labels}.items() if text)
    return f"{metric}{{{told}}} {value}"


def page(*lines: str) -> str:
    """A whole answer: metrics of another GPU of the node, and then each of these."""
    other = {"gpu": "1", "UUID": "GPU-c07eb90d-74b0-d3b4-e6ce-f18687564243", "pci_bus_id": "00000000:5D:00.0"}
    told = [
        "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).",
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge",
        line("DCGM_FI_DEV_GPU_TEMP", 61, **other),
        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).",
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge",
        line("DCGM_FI_DEV_POWER_USAGE", "409.692000", **other),
    ]
    for each in lines:
        name = each.partition("{")[0]
        told += [f"# HELP {name} Of DCGM.", f"# TYPE {name} {'counter' if name.endswith('TOTAL') else 'gauge'}", each]
    return "\n".join(told) + "\n"


class Exporter:
    """An exporter whose page a test turns, on a node whose agent reads no device unless it is told of some."""

    def __init__(self, *uuids: str) -> None:
        self.clock, self.page = HandClock(1000.0), page()
        self.down: PageError | None = None
        self.reader = DcgmExporter(self._fetch, own_gpus("n1", lambda: uuids), self.clock)

    def _fetch(self) -> str:
        if self.down is not None:
            raise self.down
        return self.page

    def tell(self, *lines: str, after_s: float = EVERY_S) -> list[str]:
        """What is known by the reading of a page with these lines, this long after the last: `code on subject`."""
        self.clock.now_s += after_s
        self.page, self.down = page(*lines), None
        return self.looked()

    def looked(self) -> list[str]:
        self.reader.look()
        return self.known()

    def known(self) -> list[str]:
        return [f"{each.code} on {each.subject}" for each in self.reader.read(self.clock())]
