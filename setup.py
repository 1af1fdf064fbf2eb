"""Folders outside the packages that a wheel also holds, because commands hand them out or build from them."""

from pathlib import Path
from shutil import copytree

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = {
    "examples": "cli/shipped/examples",
    "docs/cluster-walk": "cli/shipped/cluster-walk",
    "helm/tonnage": "cli/shipped/chart",
    "deploy/controlplane": "simulator/controlplane/modules",
}


class BuildWithShipped(build_py):
    """Builds the packages, and copies the folders that are there: an image is built without them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source, target in SHIPPED.items():
            if Path(source).is_dir():
                copytree(source, Path(self.build_lib, target), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithShipped})
