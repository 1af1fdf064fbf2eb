"""Generated reference pages are up to date."""

from pathlib import Path

from tests.generated.manifests_reference import page_with, reference

PAGE = Path(__file__).parents[2] / "docs" / "manifests.md"


def test_the_reference_of_manifests_says_what_the_models_say() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == page_with(page, reference()), "the kinds changed: run `make crds`"
