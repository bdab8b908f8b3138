"""Sentences: durations as people say them, and errors in the reader's language."""

from __future__ import annotations

import pytest

from rerail.i18n import has_command, reason_in, retold, span, tell


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.05, "50 ms"), (0.0994, "99 ms"), (0.0995, "0.1 s"), (99.4, "99.4 s"), (99.5, "1 min 40 s"),
     (3725, "62 min 5 s"), (5999, "99 min 59 s"), (6000, "1 h 40 min"), (90_000, "25 h 0 min")],
)  # fmt: skip
def test_a_duration_as_people_say_it(seconds: float, words: str) -> None:
    """T12: two numbers at most."""
    assert span(seconds) == words


def test_an_error_in_the_readers_language() -> None:
    """T12: made anew where it came from the catalogue; a tool's own words stay, and so does what lacks a part."""
    assert reason_in("en", "TIMEOUT", "english", {"seconds": 3}) == "english"
    assert reason_in("zh", "TIMEOUT", "english", {"seconds": 3.0}) == "超时：3 秒内没有完成"
    assert reason_in("zh", "TIMEOUT", "its own words", {}) == "its own words"
    assert reason_in("zh", "NO_SUCH_CODE", "its own words", {}) == "its own words"
    inside = {"step": "a", "reason": str(tell("reason.notify.no_connection", why="x")), "producer": "a"}
    assert "无法连接" in reason_in("zh", "ARTIFACT_GONE", "english", inside)


def test_sentences_one_after_the_other() -> None:
    """T12: each is told; what is nobody's sentence stays as it is."""
    one, other = str(tell("refuse.plan.steps_missing")), str(tell("reason.notify.no_connection", why="x"))
    both = retold(f"{one}; {other}", "zh")
    assert both == f"{retold(one, 'zh')}；{retold(other, 'zh')}" and one not in both
    assert retold("foreign; words", "zh") == "foreign; words"
    assert retold(f"a ({other}), b (foreign)", "zh") == f"a ({retold(other, 'zh')}), b (foreign)"
    many = "; ".join(["foreign"] * 101)
    assert retold(many, "zh") == many and retold("", "zh") == "" and retold("x" * 9000, "zh") == "x" * 9000


def test_sentences_that_suggest_something_to_type_are_known() -> None:
    """T4: to these, and to no others, the options are added without which a command would not work here."""
    assert has_command("hint.run.see_run") and not has_command("refuse.run.lease_lost")
