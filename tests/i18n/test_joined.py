"""Sentences that are put together, however many there are (T12)."""

from __future__ import annotations

from rerail.i18n import MAX_JOINED, one_by_one, retold, tell


def test_t12_of_very_many_sentences_the_first_are_said() -> None:
    """T12: in any language, and how many more there are; a thousand nested ones would end the run."""
    one = tell("reason.file.empty")
    said = one_by_one([one] * 1000)
    assert said.count(str(one)) == MAX_JOINED and said.endswith(f"… (+{1000 - MAX_JOINED})")
    assert retold(said, "zh").count(retold(one, "zh")) == MAX_JOINED
    assert one_by_one([]) == "" and one_by_one(["a"]) == "a"
