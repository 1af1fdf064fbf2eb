"""`-o`: names of output formats."""

import click
import pytest

from cli.printing.object_output import TextChoice


def test_the_earlier_name_of_the_text_format_still_works() -> None:
    choice = TextChoice(["text", "name"])

    assert [choice.convert(value, None, None) for value in ("text", "words", "name")] == ["text", "text", "name"]


def test_the_earlier_name_is_not_offered() -> None:
    with pytest.raises(click.BadParameter, match="'text', 'name'"):
        TextChoice(["text", "name"]).convert("wide", None, None)
