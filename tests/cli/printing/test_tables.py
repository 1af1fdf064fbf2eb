"""Tables on a terminal: text is wrapped, names are not."""

import pytest

from cli.printing.tables import fitted, table

NAME = "default/code-completion-a100-0"
ROWS = [(NAME, "a100-2", "0,1", "least cost under tonnage, and enough words that eighty columns cannot hold them all")]
COLUMNS = ("PLACED", "NODE", "DEVICES", "WHY")


def test_a_name_stays_whole_at_80_columns_while_text_is_wrapped() -> None:
    lines = table(COLUMNS, ROWS, width=80).splitlines()

    assert any(NAME in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert "enough words" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("width", [5, 20, 40])
def test_a_terminal_too_narrow_for_the_names_breaks_none(width: int) -> None:
    text = table(COLUMNS, ROWS, width=width)

    assert NAME in text
    assert "a100-2" in text


def test_only_columns_of_several_words_are_narrowed() -> None:
    assert fitted(("NAME", "WHY"), [("n" * 30, "some words here")], 40) == [30, 10]
    assert fitted(("NAME", "WHY"), [("n" * 30, "some words here")], 100) == [30, 15]
