"""Loss of a rack at its smallest size: the first plan after it is as good as a prepared one."""

from itertools import islice

from tests.rigs.rack_loss import measured


def test_the_first_plan_after_a_loss_serves_what_a_prepared_one_would_at_about_its_price() -> None:
    _, *losses = islice(measured(nodes=40, racks=10, count=2, load=0.3, seed=1), 4)

    assert len(losses) == 3
    assert sum(each["stopped"] for each in losses) > 0
    for each in losses:
        assert each["first"]["unserved_share"] <= each["prepared"]["unserved_share"], each
        assert each["first"]["waiting"] <= each["prepared"]["waiting"], each
        assert each["more_usd_in_percent"] <= 3.0, each
