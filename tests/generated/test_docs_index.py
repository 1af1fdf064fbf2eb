"""Docs: one index names every page once, and the manifests of the how-to pages are read as the pages say."""

import re
from pathlib import Path

import pytest

from cli.inputs.planning import Planning, planned
from controller.api import scaling_policy
from controller.objects.manifests import read_manifests

DOCS = Path(__file__).parents[2] / "docs"
KINDS = ["Tutorials", "How-to", "Reference", "Explanation"]
EXAMPLES = DOCS.parent / "examples"


def test_every_page_is_in_the_index_once_under_one_of_four_kinds() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    named = sorted(name for name in re.findall(r"^\| \[[^]]*\]\(([^)]+)\)", index, re.MULTILINE) if ".." not in name)
    pages = (page.relative_to(DOCS) for page in DOCS.rglob("*.md"))
    wanted = {"decisions/" if page.parts[0] == "decisions" else str(page) for page in pages} - {"README.md"}

    assert re.findall(r"^## (.+)$", index, re.MULTILINE) == KINDS
    assert named == sorted(wanted)


@pytest.mark.parametrize(("page", "members"), [("with-kueue", 4), ("with-kuberay", 5)])
def test_the_manifest_of_a_page_starts_whole_or_not_at_all(page: str, members: int, tmp_path: Path) -> None:
    assert starts(page, tmp_path, "suspend: true", "suspend: false") == members
    assert starts(page, tmp_path, "suspend: true", "suspend: false", "gpu: 8", "gpu: 9") == 0


def test_a_job_that_kueue_holds_back_holds_nothing(tmp_path: Path) -> None:
    assert starts("with-kueue", tmp_path) == 0


def starts(page: str, folder: Path, *changes: str) -> int:
    """Pods of the page's manifest that start on the examples' fleet. changes: pairs of a text and its replacement."""
    manifest = Path(written(page, folder))
    text = manifest.read_text(encoding="utf-8")
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        text = text.replace(old, new)
    manifest.write_text(text, encoding="utf-8")
    fleet = (str(EXAMPLES / "nodes.yaml"), str(EXAMPLES / "gpu-types.yaml"))
    return len(planned([*fleet, str(manifest)], Planning()).plan.actions)


def test_the_policy_beside_an_hpa_is_valid_and_changes_nothing(tmp_path: Path) -> None:
    (policy,) = read_manifests([written("with-an-hpa", tmp_path)]).by_kind[scaling_policy.KIND]

    assert policy.object.spec.mode == "Recommend"


def written(page: str, folder: Path) -> str:
    """File with the manifest of a how-to page."""
    (manifest,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "how-to" / f"{page}.md").read_text("utf-8"), re.DOTALL)
    (folder / "page.yaml").write_text(manifest, encoding="utf-8")
    return str(folder / "page.yaml")
