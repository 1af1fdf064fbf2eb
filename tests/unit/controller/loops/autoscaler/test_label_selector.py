import pytest

from controller.loops.autoscaler.external_metrics import BadSelectorError, selector_from

CHAT = {"policy": "chat", "target": "llama"}


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("", True),
        ("policy=chat", True),
        ("policy==chat", True),
        ("policy = chat , target!=other", True),
        ("policy=other", False),
        ("policy!=chat", False),
        ("missing!=chat", True),
        ("policy in (chat,other)", True),
        ("policy in (other)", False),
        ("policy notin (chat, other)", False),
        ("missing notin (chat)", True),
        ("policy", True),
        ("missing", False),
        ("!missing", True),
        ("!policy", False),
        ("policy in (a,chat),target=llama", True),
        ("policy=", False),
    ],
)
def test_a_selector_selects_as_in_kubernetes(text: str, is_selected: bool) -> None:
    assert selector_from(text)(CHAT) is is_selected


@pytest.mark.parametrize("text", ["policy=chat,", "=chat", "policy in chat", "policy in (", "a b", "policy>1", "ä=b"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(BadSelectorError):
        selector_from(text)
