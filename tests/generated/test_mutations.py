"""The list of mutations: each anchor is still in its file, and what is to notice it exists."""

import ast

import pytest

from tests.mutation.mutations import ROOT, Mutation, mutated, mutations, places

MUTATIONS = mutations()


def ids(mutation: Mutation) -> str:
    return f"{mutation.file}: {mutation.rule}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=ids)
def test_a_mutation_changes_exactly_one_place_into_valid_python(mutation: Mutation) -> None:
    source = (ROOT / mutation.file).read_text(encoding="utf-8")

    assert len(places(mutation, source)) == 1
    assert ast.dump(ast.parse(mutated(mutation, source))) != ast.dump(ast.parse(source))


def test_every_rule_is_listed_once_and_has_tests() -> None:
    named = [ids(each) for each in MUTATIONS]
    tests = {test.partition("::")[0] for each in MUTATIONS for test in each.tests or ("missing",)}

    assert len(set(named)) == len(named)
    assert [test for test in tests if not (ROOT / test).exists()] == []


def test_an_anchor_is_found_whatever_the_layout() -> None:
    mutation = Mutation("r", "f.py", "C.f", "g(a, b) > 1", "True", ("t",))
    source = (
        "class C:\n    def f():\n        return g(\n            a,  # why\n            b,\n        ) > 1\ng(a, b) > 1\n"
    )

    assert mutated(mutation, source) == "class C:\n    def f():\n        return True\ng(a, b) > 1\n"
