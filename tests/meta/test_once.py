"""What was made once is not made again, and neither is what could not be made."""

import pytest

from fixtures.errors import InputError
from fixtures.once import once


def test_made_once_for_each_argument():
    """The second call gets the first one's result."""
    calls = []
    make = once(lambda name, size=1: calls.append((name, size)) or object())
    assert make("a") is make("a")
    assert make("a", size=2) is not make("a")
    assert calls == [("a", 1), ("a", 2)]


def test_suite_error_is_remembered():
    """A hub that does not answer is asked once, whatever the number of tests that need it."""
    calls = []

    def ask() -> None:
        calls.append(1)
        raise InputError("no answer")

    asked = once(ask)
    for _ in range(3):
        with pytest.raises(InputError, match="no answer"):
            asked()
    assert len(calls) == 1


def test_other_errors_are_not():
    """Out of memory, or a keyboard interrupt, may pass: it is tried again."""
    answers = iter([RuntimeError("busy"), "result"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    asked = once(ask)
    with pytest.raises(RuntimeError):
        asked()
    assert asked() == "result"
