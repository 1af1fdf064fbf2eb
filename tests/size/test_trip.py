"""One plain pod's trip from its watch event to its Binding enters few files and functions, as its reader does."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.size.trip import entered_by_one_pod

FILES = 57
FUNCTIONS = 350


def test_a_pods_trip_through_the_operator_is_short() -> None:
    # In a process of its own: threads that other tests left behind would be traced as well.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        entered = alone.submit(entered_by_one_pod).result()
    files = sorted({file for file, _ in entered})

    assert len(files) <= FILES, "\n".join(files)
    assert len(entered) <= FUNCTIONS, "\n".join(f"{file}: {function}" for file, function in sorted(entered))
