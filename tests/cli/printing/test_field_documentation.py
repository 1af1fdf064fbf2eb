"""Documentation of fields: from the chart's definitions where they are, else from the models."""

from cli.printing.field_documentation import definitions, field_text, made


def test_the_charts_definitions_say_what_the_models_say() -> None:
    shipped = definitions()

    assert [(each.kind, each.plural, each.short_names, each.schema()) for each in shipped] == [
        (each.kind, each.plural, each.short_names, each.schema()) for each in made()
    ]


def test_a_page_of_an_image_without_the_chart_is_the_same() -> None:
    for path in ("gang", "msvc.spec.slo", "scalingpolicies"):
        assert field_text(path, known=made(), recursive=True) == field_text(path, recursive=True)
