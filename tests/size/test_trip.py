"""One plain pod's trip from its watch event to its Binding enters few files and functions, as its reader does."""

from tests.size.trip import entered_by_one_pod

FILES = 56
FUNCTIONS = 350


def test_a_pods_trip_through_the_operator_is_short() -> None:
    entered = entered_by_one_pod()
    files = sorted({file for file, _ in entered})

    assert len(files) <= FILES, files
    assert len(entered) <= FUNCTIONS, sorted(entered)
