"""Model endpoints: provider, address, and the variable of the key.

Rules of this file:
- A key goes only to its own provider. A name with its own provider takes neither address nor key of the model beside
  it.
- Only `keys` reads a key, and no object keeps one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from rerail.errors import SettingsError
from rerail.i18n import tell

_BY_NAME: Final = (  # the variable is NAME_API_KEY
    "anthropic cerebras crusoe deepseek fireworks github github-copilot groq litellm meta mistral moonshotai nebius "
    "ollama openrouter ovhcloud sambanova system-one together typesafe vllm xai zai"
)
# The providers, and the variables that hold their keys. Most are listed for messages and for redaction.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (f"{name.upper().replace('-', '_')}_API_KEY",) for name in _BY_NAME.split()},
    "alibaba": ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
    "azure": ("AZURE_OPENAI_API_KEY",),
    "azure-responses": ("AZURE_OPENAI_API_KEY",),
    "bedrock": ("AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK", "AWS_SESSION_TOKEN"),
    "bedrock-mantle": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "cohere": ("CO_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "google-cloud": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "heroku": ("HEROKU_INFERENCE_KEY",),
    "huggingface": ("HF_TOKEN",),
    "openai-chat": ("OPENAI_API_KEY",),
    "openai-chatgpt": ("OPENAI_API_KEY",),
    "openai-codex": ("OPENAI_API_KEY",),
    "openai-decisions": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
    "snowflake": ("SNOWFLAKE_TOKEN",),
    "vercel": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
}
_GATEWAY: Final = "gateway/"
_GATEWAY_KEYS: Final = ("PYDANTIC_AI_GATEWAY_API_KEY", "PAIG_API_KEY")
# The usual prefix, and the one protocol that all compatible servers speak.
_ALIASES: Final = {"openai": "openai-chat"}
# Also the name of a model that is common on local servers: `mistral:7b` there is no provider.
_FAMILIES: Final = frozenset({"mistral"})

PROVIDERS: Final = frozenset({*_KEYS, *_ALIASES})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model as configured: `provider:model`, or any name that the server at `base_url` knows."""

    name: str
    base_url: str | None = None
    key_env: str | None = None

    @property
    def provider(self) -> str:
        """Return the provider; empty for a server that is known by its address alone."""
        return self._parts[0]

    @property
    def model(self) -> str:
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        prefix, colon, rest = self.name.partition(":")
        known = prefix in PROVIDERS or prefix.startswith(_GATEWAY)
        if not colon or (self.base_url and (not known or prefix in _FAMILIES)):
            # `qwen3:4b` is one name, and only the server interprets it.
            return "", self.name
        return _ALIASES.get(prefix, prefix), rest

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that may hold its key, the preferred one first."""
        if self.key_env:
            return (self.key_env,)
        return _GATEWAY_KEYS if self.provider.startswith(_GATEWAY) else _KEYS.get(self.provider, ())

    @property
    def place(self) -> str:
        """Return the address for display: never with a password or a query."""
        if not self.base_url:
            return self.provider
        url = urlsplit(self.base_url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}".rstrip("/")

    def beside(self, name: str) -> Endpoint:
        """Return another model by its name: at the same place unless the name has a provider."""
        other = Endpoint(name, self.base_url, self.key_env)
        if other.provider == self.provider:
            return other
        if not other.provider:
            return Endpoint(f"{self.provider}:{name}", self.base_url, self.key_env)
        return Endpoint(name)

    def keys(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(environ[name] for name in self.variables if environ.get(name))

    def checked(self) -> Endpoint:
        if not self.model:
            raise SettingsError(tell("refuse.mind.no_model_named", name=self.name))
        if not self.provider and not self.base_url:
            example = f"openai:{self.name}"
            raise SettingsError(tell("refuse.mind.no_provider", name=self.name, example=example))
        return self
