"""What sentences of events were made of is stored beside them, and readers choose the language (T12, I1)."""

from __future__ import annotations

import msgspec
import pytest

from rerail.codes import Category
from rerail.i18n import Told, retold, tell
from rerail.kernel import events as ev
from rerail.kernel.codec import LONGEST_TEXT, decode, encode
from rerail.values.redaction import Scrub

MISFIT = tell("schema.at", place="a.b", message=tell("schema.required.argument", name='"to"'))


def stored(event: ev.Event) -> dict[str, object]:
    """The event as plain data."""
    plain: dict[str, object] = msgspec.json.decode(encode(event))
    return plain


@pytest.mark.parametrize(
    "event",
    [
        ev.Declined("repair", "a", MISFIT),
        ev.PlanRejected("m", ("foreign", MISFIT), tell("mind.plan_invalid")),
        ev.RetryBegin(1, "me", ("a.b",), ("a.b",), 1, {"a.b": MISFIT}),
        ev.StepFailed("a", 1, ev.Error("ARGS_INVALID", Category.PARAMETER, "x", data={"faults": [MISFIT, 1]})),
        ev.Waiting(({"for": "x", "why": MISFIT},)),
    ],
)
def test_a_sentence_comes_back_with_its_key_and_values(event: ev.Event) -> None:
    """T12: from fields, lists, objects and what is inside of them; the event is the same, and its words are."""
    back = decode(encode(event))
    assert back == event and encode(back) == encode(event)
    assert str(MISFIT).encode() in encode(event).replace(b'\\"', b'"')
    told = [value for value in flat(back) if isinstance(value, Told)]
    assert len(told) == len([value for value in flat(event) if isinstance(value, Told)]) > 0
    assert retold(MISFIT, "zh") in [retold(one, "zh") for one in told]


def flat(value: object) -> list[object]:
    """Everything inside of an event."""
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for part in value for one in flat(part)] if isinstance(value, list | tuple) else [value]


def test_an_event_without_sentences_is_stored_as_ever() -> None:
    """I1: nothing is added; and no event has a field of that name."""
    event = ev.Declined("repair", "a", "its own words")
    assert stored(event) == {"type": "declined", "question": "repair", "step": "a", "reason": "its own words"}
    assert not [kind for kind in ev.Event.__args__ if "texts" in kind.__struct_fields__]


def test_a_reader_that_does_not_know_it_finds_the_sentence() -> None:
    """I1: the words are where they always were."""
    plain = stored(ev.Declined("repair", "a", MISFIT))
    assert plain.pop("texts") == [
        {
            "at": ["reason"],
            "key": "schema.at",
            "values": {"place": "a.b", "message": {"key": "schema.required.argument", "values": {"name": '"to"'}}},
        }
    ]
    assert plain == {"type": "declined", "question": "repair", "step": "a", "reason": str(MISFIT)}


@pytest.mark.parametrize(
    "texts",
    [
        b'"texts":[{"at":["reason"],"key":"no.such.key"}]',
        b'"texts":[{"at":["reason"],"key":"schema.at","values":{"place":"x"}}]',
        b'"texts":[{"at":["nowhere"],"key":"reason.nobody","values":{}}]',
        b'"texts":[{"at":["reason","deeper"],"key":"reason.nobody","values":{}}]',
        b'"texts":[{"at":["late"],"key":"reason.nobody","values":{}}]',
        b'"texts":[{"at":[0],"key":"reason.nobody","values":{}}]',
        b'"texts":[{"key":"reason.nobody","values":{}}]',
        b'"texts":["reason.nobody"]',
        b'"texts":[{"at":["reason"],"key":"reason.nobody"}]',
        b'"texts":[{"at":[{}],"key":"reason.nobody","values":{}}]',
        b'"texts":[{"at":"reason","key":"reason.nobody","values":{}}]',
        b'"texts":[{"at":5,"key":"reason.nobody","values":{}}]',
        b'"texts":[]',
    ],
)
def test_what_does_not_fit_is_passed_over(texts: bytes) -> None:
    """I1: another version's keys and places, and what was tampered with: the words stay."""
    event = decode(b'{"type":"declined","question":"repair","reason":"as it was",' + texts + b"}")
    assert event == ev.Declined("repair", reason="as it was") and not any(isinstance(one, Told) for one in flat(event))


@pytest.mark.parametrize("at", [b'["faults",7]', b'["faults",-1]', b'["faults","0"]'])
def test_a_place_that_a_list_does_not_have_is_passed_over(at: bytes) -> None:
    """I1: as above."""
    data = (
        b'{"type":"plan_rejected","by":"m","faults":["x"],"texts":[{"at":'
        + at
        + b',"key":"reason.nobody","values":{}}]}'
    )
    assert decode(data) == ev.PlanRejected("m", ("x",))


def test_words_of_an_earlier_version_stay_and_are_translated() -> None:
    """T12: English as it was said; another language as it is said today."""
    event = decode(
        b'{"type":"declined","question":"x","reason":"once","texts":[{"at":["reason"],"key":"reason.nobody","values":{}}]}'
    )
    assert isinstance(event, ev.Declined) and event.reason == "once"
    assert retold(event.reason, "en") == "once" and retold(event.reason, "zh") == retold(tell("reason.nobody"), "zh")


def test_what_is_too_long_is_left_out() -> None:
    """I1: the words are kept in any case, and other sentences with what they were made of."""
    long = tell("reason.file.not_json", reason="x" * LONGEST_TEXT)
    assert "texts" not in stored(ev.Declined("repair", "a", long))
    assert decode(encode(ev.Declined("repair", "a", long))) == ev.Declined("repair", "a", str(long))
    both = decode(encode(ev.PlanRejected("m", (long, MISFIT))))
    assert [type(fault) for fault in flat(both)[1:3]] == [str, Told]


def test_what_cannot_be_written_stops_nothing() -> None:
    """I1: a sentence quotes what is no text; its value is replaced."""
    told = tell("reason.no_tool", tool="\ud800")
    back = decode(encode(ev.Declined("repair", "a", told)))
    assert isinstance(back, ev.Declined) and back.reason == told and "?" in retold(back.reason, "zh")


def test_secrets_are_blotted_out_of_what_a_sentence_was_made_of() -> None:
    """M4: the sentence, its values, and the sentences inside of it."""
    scrub = Scrub({"hunter2hunter2": "KEY"})
    inner = tell("reason.notify.no_connection", why="at hunter2hunter2")
    data = encode(ev.Declined("repair", "a", tell("text.about", label="hunter2hunter2", said=inner)))
    assert scrub.found(data) == "KEY" and data.count(b"hunter2hunter2") == 4
    clean = scrub.data(data)
    event = decode(clean)
    assert b"hunter2" not in clean and isinstance(event, ev.Declined)
    assert event.reason == "***: no connection (at ***)" and retold(event.reason, "zh").count("***") == 2


def test_a_text_that_is_shown_loses_its_values_if_one_is_secret() -> None:
    """M4: its words may be clean while what they were cut from is not."""
    scrub = Scrub({"hunter2hunter2": "KEY"})
    told = tell("reason.notify.no_connection", why="x")
    assert scrub.message(told) is told and scrub.text(told) is told
    for value in ("hunter2hunter2", "Bearer abcdefgh12345"):
        hidden = tell("text.about", label=value, said=told).worded("clean")
        clean = scrub.message(hidden)
        assert clean == "clean" and type(clean) is str
        shown = scrub.message(tell("text.about", label=value, said=told))
        assert "***" in shown and value not in shown and type(shown) is str
