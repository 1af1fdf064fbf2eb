"""Column generation: what is chosen is feasible, and its bound lies below every solution."""

import math

from hypothesis import given, settings

from placement.mix.columns import ColumnPool, choose, generate
from placement.mix.feasibility import is_feasible
from placement.mix.milp import no_prices, relaxed_prices
from placement.mix.optimizer import answer_mix, first_unserved
from placement.mix.problem import MixAnswer, MixQuestion
from tests.builders.mix import ample
from tests.properties.test_mix import MANY, questions


@settings(MANY, max_examples=25)
@given(questions(needs=3))
def test_columns_chosen_together_are_feasible_and_no_solution_is_below_their_bound(asked: MixQuestion) -> None:
    if first_unserved(asked) is not None:  # such a service has no problem
        return
    pool = ColumnPool(asked, no_prices(asked))
    for _ in range(2):
        pool.prices = relaxed_prices(pool.question, pool.priced, ample()) or pool.prices
        generate(pool, ample(), 0.0)
    chosen = choose(pool, ample(), 0.0)
    answer = answer_mix(asked, ample())

    mixes = tuple(column.mix for column in chosen if column is not None)
    if len(mixes) == len(asked.needs):
        assert is_feasible(asked, mixes)
        assert isinstance(answer, MixAnswer)
    if isinstance(answer, MixAnswer):
        objective = answer.certificate.objective
        assert pool.bound(range(len(asked.needs))) <= objective + 1e-6 * max(1.0, objective)
    else:
        assert not math.isnan(pool.bound(range(len(asked.needs))))
