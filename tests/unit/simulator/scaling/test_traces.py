from pathlib import Path

import numpy as np
import pytest

from cluster.errors import ConfigError
from simulator.scaling.traces import generated_trace, read_trace, value_columns


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_row_that_lacks_and_a_blank_value_are_gaps_and_zero_is_a_load(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "t_s,requests\n0,5\n60,\n120,0\n240,7\n"))
    assert (trace.step_s, trace.start_s) == (60.0, 0.0)
    np.testing.assert_array_equal(trace.values, [5, np.nan, 0, np.nan, 7])


def test_rows_may_be_out_of_order_and_the_last_of_two_at_one_instant_counts(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "minute,requests\n2,30\n0,10\n1,20\n1,25\n"))
    np.testing.assert_array_equal(trace.values, [10, 25, 30])


def test_dates_are_utc(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "timestamp,value\n1970-01-02 00:00:00,1\n1970-01-02 00:05:00,2\n"))
    assert (trace.step_s, trace.start_s) == (300.0, 86_400.0)


def test_a_column_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, "t_s,requests,input_tokens\n0,1,100\n10,2,200\n")
    assert value_columns(path) == ("requests", "input_tokens")
    assert read_trace(path, "input_tokens").values.tolist() == [100, 200]
    with pytest.raises(ConfigError, match="output_tokens"):
        read_trace(path, "output_tokens")


def test_every_mistake_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_trace(written(tmp_path, "t_s,requests\n0,x\nnoon,2\n20,-3\n"))
    assert len(caught.value.mistakes) == 3


def test_one_wrong_instant_does_not_fill_the_memory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps"):
        read_trace(written(tmp_path, "t_s,requests\n0,1\n1,1\n2,1\n90000000000,1\n"))


def test_days_are_counted_from_the_start_of_the_trace() -> None:
    trace = generated_trace(seed=1, days=3)
    second = trace.days(1, 1)
    assert second.start_s == 86_400.0
    np.testing.assert_array_equal(second.values, trace.values[1440:2880])


def test_the_same_seed_generates_the_same_trace_and_another_one_another() -> None:
    first = generated_trace(seed=1, days=2).values
    np.testing.assert_array_equal(first, generated_trace(seed=1, days=2).values)
    assert not np.array_equal(first, generated_trace(seed=2, days=2).values)


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "step_s", "points", "gaps"),
    [
        ("azure_llm_2023_code_10s.csv", 10.0, 344, 0),
        ("fisher_5containers_600s.csv", 600.0, 4464, 0),
        ("nab_elb_request_count_300s.csv", 300.0, 4040, 8),
        ("nab_nyc_taxi_1800s.csv", 1800.0, 10_320, 0),
        ("nasa_http_1995_july_60s.csv", 60.0, 44_639, 0),
        ("servegen_m-mid_week1_600s.csv", 600.0, 1008, 21),
        ("servegen_m-small_60s_resampled.csv", 60.0, 20_160, 370),
    ],
)
def test_the_public_traces_are_read(public_data: Path, file: str, step_s: float, points: int, gaps: int) -> None:
    trace = read_trace(public_data / "demand" / file)
    assert (trace.step_s, len(trace.values), int(np.isnan(trace.values).sum())) == (step_s, points, gaps)


def test_a_file_that_is_missing_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read_trace(tmp_path / "none.csv")

    assert str(raised.value) == f"{tmp_path}/none.csv: cannot be read: No such file or directory"
