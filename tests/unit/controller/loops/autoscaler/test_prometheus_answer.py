import msgspec
import pytest

from controller.loops.autoscaler.prometheus import Series, SourceError, series_in


def _answer(kind: str, result: object, **more: object) -> bytes:
    return msgspec.json.encode({"status": "success", "data": {"resultType": kind, "result": result}, **more})


def test_a_vector_has_one_point_per_series() -> None:
    body = _answer("vector", [{"metric": {"le": "10"}, "value": [1000.5, "3"]}])

    assert series_in(body) == (Series({"le": "10"}, ((1000.5, 3.0),)),)


def test_a_matrix_has_the_points_of_each_series() -> None:
    body = _answer("matrix", [{"metric": {}, "values": [[1000, "1"], [1060, "2.5"]]}])

    assert series_in(body) == (Series({}, ((1000.0, 1.0), (1060.0, 2.5))),)


def test_a_scalar_is_one_series() -> None:
    assert series_in(_answer("scalar", [1000, "7"])) == (Series({}, ((1000.0, 7.0),)),)


@pytest.mark.parametrize("nothing", ["NaN", "+Inf", "-Inf"])
def test_what_is_not_finite_is_missing_and_not_zero(nothing: str) -> None:
    values = [[1000, "1"], [1060, nothing], [1120, "2"]]

    assert series_in(_answer("matrix", [{"metric": {}, "values": values}]))[0].points == ((1000, 1), (1120, 2))
    assert series_in(_answer("vector", [{"metric": {}, "value": [1000, nothing]}]))[0].points == ()


def test_an_empty_answer_has_no_series() -> None:
    assert series_in(_answer("vector", [])) == ()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', "QueryRefused"),
        (_answer("vector", [], warnings=["store eu-1 is missing"]), "PartialAnswer"),
        (_answer("string", [1000, "text"]), "AnswerMalformed"),
        (_answer("vector", [{"metric": {}, "value": [1000, "many"]}]), "AnswerMalformed"),
        (b"<html>login</html>", "AnswerMalformed"),
        (b"", "AnswerMalformed"),
        (b'{"status":"success"}', "QueryRefused"),
    ],
)
def test_what_is_no_complete_answer_is_an_error(body: bytes, code: str) -> None:
    with pytest.raises(SourceError) as caught:
        series_in(body)

    assert caught.value.code == code
