"""Generated fleets as files in the format of the published trace."""

import csv
from pathlib import Path

from simulator.openb.generator import Generated, node_name, pod_name
from simulator.openb.trace_reader import MIB


def write_openb_csv(made: Generated, nodes_csv: Path, pods_csv: Path) -> None:
    """Writes the generated fleet as a node list and a pod list in the format of the published trace."""
    with nodes_csv.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("sn", "cpu_milli", "memory_mib", "gpu", "model"))
        rows.writerows(
            (node_name(n), node.cpu_cores * 1000, node.memory_gib * 1024, node.gpus, node.model)
            for n, node in enumerate(made.nodes)
        )
    with pods_csv.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"))
        rows.writerows(
            (pod_name(n), pod.cpu_milli, pod.memory_bytes // MIB, pod.gpus, pod.gpu_milli, "|".join(pod.gpu_types))
            for n, pod in enumerate(made.pods)
        )
