"""Whose model it is, at which address, with which key; and that keys go nowhere else (SPEC M1, M4)."""

from __future__ import annotations

import pytest
from pydantic_ai.exceptions import ModelHTTPError, ModelQuotaExceededError
from pydantic_ai.models import known_model_names

from rerail.adapters.models.endpoints import PROVIDERS, Endpoint
from rerail.adapters.models.pydantic_ai import failure_of
from rerail.errors import SettingsError
from rerail.factory import make_model
from rerail.settings.loading import Settings
from rerail.values.redaction import Scrub

LOCAL = "http://localhost:11434/v1"


@pytest.mark.parametrize(
    ("endpoint", "provider", "model"),
    [
        (Endpoint("openai:gpt-5"), "openai-chat", "gpt-5"),
        (Endpoint("openai-responses:gpt-5"), "openai-responses", "gpt-5"),
        (Endpoint("anthropic:claude"), "anthropic", "claude"),
        (Endpoint("gateway/openai:gpt-5"), "gateway/openai", "gpt-5"),
        (Endpoint("bedrock:a.b-v1:0"), "bedrock", "a.b-v1:0"),
        (Endpoint("newcomer:x"), "newcomer", "x"),
        (Endpoint("qwen3", LOCAL), "", "qwen3"),
        (Endpoint("qwen3:4b", LOCAL), "", "qwen3:4b"),
        (Endpoint("hf.co/a/b:Q4", LOCAL), "", "hf.co/a/b:Q4"),
        (Endpoint("mistral:7b", LOCAL), "", "mistral:7b"),
        (Endpoint("mistral:mistral-small"), "mistral", "mistral-small"),
        (Endpoint("openai:gpt-5", LOCAL), "openai-chat", "gpt-5"),
        (Endpoint("ollama:qwen3:4b", LOCAL), "ollama", "qwen3:4b"),
    ],
)
def test_a_name_says_whose_model_it_is(endpoint: Endpoint, provider: str, model: str) -> None:
    """M1: at an address, only a provider's prefix is one; the rest of the name is the server's business."""
    assert (endpoint.provider, endpoint.model) == (provider, model)
    assert endpoint.checked() is endpoint


def test_every_provider_of_pydantic_ai_is_known() -> None:
    """M1: or its prefix would be taken for a part of the name at an address."""
    theirs = {name.partition(":")[0] for name in known_model_names() if not name.startswith(("gateway/", "test"))}
    assert len(theirs) > 10
    assert theirs <= PROVIDERS


@pytest.mark.parametrize(
    ("first", "name", "second"),
    [
        (Endpoint("qwen3:4b", LOCAL, "K"), "llama3:8b", Endpoint("llama3:8b", LOCAL, "K")),
        (Endpoint("qwen3:4b", LOCAL, "K"), "mistral:7b", Endpoint("mistral:7b", LOCAL, "K")),
        (Endpoint("qwen3:4b", LOCAL, "K"), "openai:gpt-5", Endpoint("openai:gpt-5")),
        (Endpoint("openai:gpt-5", None, "K"), "gpt-5-mini", Endpoint("openai-chat:gpt-5-mini", None, "K")),
        (Endpoint("openai:gpt-5", LOCAL, "K"), "openai:mini", Endpoint("openai:mini", LOCAL, "K")),
        (Endpoint("openai:gpt-5", LOCAL, "K"), "anthropic:claude", Endpoint("anthropic:claude")),
    ],
)
def test_a_name_beside_another_stays_there_unless_it_has_a_provider(
    first: Endpoint, name: str, second: Endpoint
) -> None:
    """M4: and takes along neither address nor key to another provider."""
    assert first.beside(name) == second


def test_the_variable_of_a_key() -> None:
    """M1: the one that is named, else the provider's usual one."""
    environ = {"OPENAI_API_KEY": "a", "MINE": "b"}
    assert Endpoint("openai:x").keys(environ) == ("a",)
    assert Endpoint("openai:x", None, "MINE").keys(environ) == ("b",)
    assert Endpoint("x", LOCAL).keys(environ) == ()


@pytest.mark.parametrize("name", ["", "gpt-5", "openai:"])
def test_a_name_that_means_nothing(name: str) -> None:
    """SPEC 11: is refused."""
    with pytest.raises(SettingsError):
        Endpoint(name).checked()


@pytest.mark.parametrize(
    ("model", "role", "shown"),
    [
        ({"name": "a", "base_url": LOCAL, "fallback": "small"}, {}, "<model a, else small>"),
        ({"name": "a", "base_url": LOCAL, "fallback": "small"}, {"fallback": "tiny"}, "<model a, else tiny>"),
        ({"name": "openai:a", "fallback": "b"}, {"name": "xai:c"}, "<model xai:c, else openai-chat:b>"),
        ({"name": "openai:a"}, {"name": "xai:c", "fallback": "d"}, "<model xai:c, else xai:d>"),
        ({"base_url": LOCAL}, {"name": "qwen3"}, "<model qwen3>"),
    ],
)  # fmt: skip
def test_a_fallback_stands_beside_the_model_it_was_written_beside(model: object, role: object, shown: str) -> None:
    """SPEC 11: the common one beside the common model, a role's own beside the role's."""
    made = make_model(Settings.load({"model": {**model, "plan": role}}))  # type: ignore[dict-item]
    assert f"plan: {shown}" in repr(made)


def test_used_up_quota_is_no_rate_limit() -> None:
    """M1: both come with 429, and waiting helps against one of them."""
    error = ModelHTTPError.for_category(ModelQuotaExceededError, status_code=429, model_name="m", body={"detail": "no"})
    failed = failure_of(error, Endpoint("openai:m"))
    assert not failed.transient
    assert "quota or credit is used up" in failed.message and "(no)" in failed.message


def test_scrubbing_knows_the_longer_key_from_the_shorter() -> None:
    """M4: what remains of a key would still tell of it; a word that stands in for a key is none."""
    scrub = Scrub(["secret-1", "secret-1-and-more", "EMPTY"])
    assert scrub.text("a secret-1-and-more, secret-1, EMPTY") == "a ***, ***, EMPTY"
    assert scrub.message("Authorization: Basic YWRhOmh1bnRlcjI=") == "Authorization: Basic ***"
    assert "secret" not in repr(scrub)
