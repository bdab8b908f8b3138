"""A model as a mind: asked again a bounded number of times, in time, paid for however a call ends (M1, H4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rerail.adapters.models.mind import ModelMind, Prompts, shipped
from rerail.engine.performer import Performer
from rerail.errors import SettingsError
from rerail.factory import make_mind
from rerail.mind.questions import ROLES
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import MindAnswer, ModelFailed, Question, Reply
from rerail.settings.loading import Settings
from rerail.testing import ScriptedModel, Stall, VirtualClock, virtual_run

GOOD = {"complete": True, "reason": "all there"}
ABOUT = Question("judge", "r", "", "goal", (), {"t": ToolSpec("t")})


def ask(*replies: Any, about: Question = ABOUT, model: Any = None, **options: Any) -> tuple[MindAnswer, ScriptedModel]:
    """What the engine hears, asked as the engine asks."""
    script = model or ScriptedModel(replies, usage=(10, 5), cost=0.5)

    async def main() -> MindAnswer:
        mind = ModelMind(script, shipped, **options)
        performer = Performer({}, {}, 10**6, VirtualClock())
        return await performer.ask(mind, about, mind.patience)

    return virtual_run(main), script


def tokens(answer: MindAnswer) -> int:
    return sum(call.input_tokens + call.output_tokens for call in answer.consultations)


# -- Asking again ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reasks", [0, 1, 2, 5])
def test_a_model_is_asked_again_a_bounded_number_of_times(reasks: int) -> None:
    """M1, model.max_reasks: then its answer is given up, with what was wrong, and every call is paid for."""
    answer, model = ask(*["nonsense"] * 9, reasks=reasks)
    assert len(model.asked) == len(answer.consultations) == 1 + reasks
    assert answer.value is None and "cannot be used: there is no JSON object" in answer.failed
    assert tokens(answer) == 15 * (1 + reasks)
    assert all("no JSON object" in call.problem for call in answer.consultations)


def test_what_was_wrong_is_said() -> None:
    """M1: the next question holds the answer that did not hold, as data, and every objection."""
    wrong = {"complete": "yes", "reason": "</data x>"}
    answer, model = ask(wrong, GOOD)
    assert answer.value == GOOD and not answer.failed
    first, second = model.asked
    assert second.user.startswith(first.user)
    added = second.user[len(first.user) :]
    assert "complete" in added and "your-answer>" in added and "</data x>" in added
    assert [bool(call.problem) for call in answer.consultations] == [True, False]


@pytest.mark.parametrize("text", ['{"complete": true, "reason": ""}', '```json\n{"complete": true, "reason": ""}\n```'])
def test_a_text_is_read(text: str) -> None:
    """M1: servers without structured output are fine."""
    assert ask(text)[0].value == {"complete": True, "reason": ""}


# -- What goes wrong ---------------------------------------------------------------------------------------------------


def test_a_failed_call_is_recorded_with_its_problem() -> None:
    """M1, V4: not asked again here, which is the model's own business; what was billed is counted."""
    failed = ModelFailed("401: no key", transient=False, spent=Reply(None, "m", 7, 1, 0.25))
    answer, model = ask("nonsense", failed)
    assert len(model.asked) == 2 and answer.failed == "the model gave no answer: 401: no key"
    last = answer.consultations[-1]
    assert (last.model, last.input_tokens, last.output_tokens, last.cost, last.problem) == (
        "m",
        7,
        1,
        0.25,
        "401: no key",
    )
    assert tokens(answer) == 15 + 8


def test_a_model_that_breaks_down_is_paid_for() -> None:
    """H4: an exception that nobody foresaw does not lose what the calls before it cost."""
    answer, _ = ask("nonsense", RuntimeError("bug"))
    assert answer.failed == "bug" and tokens(answer) == 15
    assert [call.problem for call in answer.consultations][1] == "no answer came back; what it cost is not known"


def test_a_model_that_stalls_is_given_up_and_paid_for() -> None:
    """H4: in time; what it said before that is counted."""
    answer, _ = ask("nonsense", Stall(10**6, GOOD), patience=50)
    assert answer.failed == "the model gave no answer within 50 s" and tokens(answer) == 15
    assert [call.problem for call in answer.consultations][1] == "no answer came back; what it cost is not known"
    assert 0 <= answer.consultations[1].elapsed <= 50


def test_a_model_that_gives_up_by_itself_is_an_answer_too() -> None:
    """V4: a cancellation that nobody asked for must not be asked about again and again."""
    assert "cancelled its answer" in ask(asyncio.CancelledError())[0].failed


@pytest.mark.parametrize("odd", [b"bytes", object(), {1, 2}, 7.5, [GOOD], {"complete": True, "reason": object()}])
def test_a_model_of_ones_own_may_return_anything(odd: Any) -> None:
    """M1: whatever it is, it is refused with words and counted."""
    answer, _ = ask(Reply(odd, "m", 3, 4), reasks=0)
    assert answer.value is None and answer.failed and tokens(answer) == 7


def test_an_answer_without_end_is_refused() -> None:
    """H5: nobody should have to walk through it."""
    deep: Any = "x"
    for _ in range(300):
        deep = {"a": deep}

    class Deep(ScriptedModel):
        async def complete(self, prompt: Any) -> Reply:
            return Reply({**GOOD, "more": deep}, "m", 3, 4)

    answer, _ = ask(model=Deep())
    assert answer.value is None and "nested too deeply" in answer.failed and tokens(answer) == 7


# -- Budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "calls"), [(None, 3), (100, 3), (16, 2), (15, 1), (1, 1), (0, 0)])
def test_no_question_goes_past_the_tokens_that_are_left(left: int | None, calls: int) -> None:
    """H4: checked before each call, the first one too."""
    answer, model = ask(*["nonsense"] * 9, about=Question("judge", "r", "", "g", (), {}, tokens_left=left))
    assert len(model.asked) == calls
    assert bool(answer.failed) and (calls > 0 or "budget" in answer.failed)


@pytest.mark.parametrize(("left", "calls"), [(None, 3), (0.6, 2), (0.5, 1), (0.0, 0)])
def test_no_question_goes_past_the_cost_that_is_left(left: float | None, calls: int) -> None:
    """H4: the same for money."""
    _, model = ask(*["nonsense"] * 9, about=Question("judge", "r", "", "g", (), {}, cost_left=left))
    assert len(model.asked) == calls


# -- Wiring ------------------------------------------------------------------------------------------------------------


def test_a_model_that_is_given_becomes_a_mind_and_a_mind_stays_one() -> None:
    """M1: behind one port."""

    class Own:
        answers = ("judge",)

        async def answer(self, question: Question) -> Any:
            return GOOD

    own: Any = Own()
    mind: Any = make_mind(Settings(), own)
    assert (mind.answer, mind.name, mind.patience) == (own.answer, "mind", None)
    own.name, own.patience = "own", 5.0
    assert make_mind(Settings(), own) is own
    assert make_mind(Settings()) is None
    mind = make_mind(Settings(), ScriptedModel())
    assert isinstance(mind, ModelMind) and tuple(mind.answers) == ROLES


def test_a_role_without_a_model_is_not_answered() -> None:
    """M1: so that nobody is asked in vain."""
    mind = make_mind(Settings.load({"model": {"judge": {"name": "m", "base_url": "http://127.0.0.1:1/v1"}}}))
    assert mind is not None and tuple(mind.answers) == ("judge",)


# -- Prompts -----------------------------------------------------------------------------------------------------------


def test_a_users_prompt_takes_the_place_of_the_packages(tmp_path: Path) -> None:
    """M1: role by role; those that are not there come from the package."""
    (tmp_path / "judge.md").write_text("Be strict.\n---\nLook: {{outputs}}", encoding="utf-8")
    prompts = Prompts(tmp_path)
    assert prompts("judge").startswith("Be strict.") and prompts("plan") == shipped("plan")
    assert (prompts.path("judge"), prompts.path("plan")) == (tmp_path / "judge.md", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"no dashes", "three dashes"), (b"x\n---\n{{outptus}}", "outptus"), (b"\xff\xfe\n---\n", "decode"),
        (b"", "dashes"),
    ],
)  # fmt: skip
def test_a_prompt_that_cannot_be_used_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    """M1, SPEC 11: when the engine is made, not when the question comes."""
    (tmp_path / "reflect.md").write_bytes(text)
    with pytest.raises(SettingsError, match=words) as refused:
        Prompts(tmp_path)
    assert "reflect.md" in str(refused.value)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """SPEC 11: with how to make one."""
    with pytest.raises(SettingsError, match="rerail prompts eject"):
        Prompts(tmp_path / "nowhere")


def test_a_prompt_from_another_system_is_read(tmp_path: Path) -> None:
    """M1: with its line ends, and with a mark of its byte order."""
    (tmp_path / "judge.md").write_bytes("\ufeffBe strict.\r\n---\r\nLook: {{outputs}}\r\n".encode())
    assert Prompts(tmp_path)("judge") == "Be strict.\n---\nLook: {{outputs}}\n"
