"""`tonnage-agent` whose simulated devices follow a script beside its settings (`scripted_devices`)."""

import sys
from functools import partial
from pathlib import Path

from nodeagent import __main__ as agent
from tests.agents.scripted_devices import ScriptedDevices

if __name__ == "__main__":
    folder = Path(sys.argv[sys.argv.index("--config") + 1]).parent
    vars(agent)["PretendDevices"] = partial(ScriptedDevices, folder=folder)
    agent.main()
