"""What the chart ships of others is what they are now."""

from deploy.chart_files import SOURCES, copies, present


def test_the_chart_holds_the_crds_dashboards_and_alerts_of_this_version() -> None:
    assert present() == copies(), "CRDs, dashboards or alerts changed: run `make chart`"


def test_the_chart_leaves_none_of_them_out() -> None:
    assert {path.parent for path in copies()} == set(SOURCES)
