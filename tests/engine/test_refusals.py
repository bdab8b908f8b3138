"""Refusals cross from process to process, and are told in the reader's language there (T7, T12)."""

from __future__ import annotations

import msgspec
import pytest

from rerail.engine.refusals import encode_answer, raise_answer
from rerail.errors import PlanError, Refused
from rerail.i18n import retold, tell
from rerail.plan.step import Fault


def test_a_refusal_is_told_in_the_readers_language_elsewhere() -> None:
    """T12: the sentence and its hint; English as it was said there."""
    refused = Refused(tell("refuse.run.no_such_run", run="r1"), "NO_RUN", hint=tell("hint.run.see_run", run="r1"))
    with pytest.raises(Refused) as found:
        raise_answer(encode_answer(refused))
    assert (found.value.message, found.value.code, found.value.hint) == (refused.message, "NO_RUN", refused.hint)
    assert found.value.message_in("zh") == refused.message_in("zh") != refused.message
    assert retold(found.value.hint, "zh") == retold(refused.hint, "zh")


def test_faults_of_a_change_are_told_in_the_readers_language_elsewhere() -> None:
    """T12: each of them."""
    refused = PlanError(tell("refuse.run.change_refused"), [Fault("X", tell("refuse.plan.steps_missing"), "a")])
    with pytest.raises(PlanError) as found:
        raise_answer(encode_answer(refused))
    assert found.value.faults == refused.faults and found.value.message_in("zh") == refused.message_in("zh")


def test_an_answer_of_another_version_is_told_as_it_is() -> None:
    """T7: without keys, or with keys that are not known here."""
    for texts in ({}, {"texts": {"message": {"key": "no.such.key", "values": {}}}}, {"texts": None}):
        data = msgspec.json.encode({"error": {"code": "X", "message": "as it was", "hint": "", **texts}})
        with pytest.raises(Refused) as found:
            raise_answer(data)
        assert found.value.message_in("zh") == "as it was"
    raise_answer(encode_answer(None))
