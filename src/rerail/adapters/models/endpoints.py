"""Where a model is: whose it is, at which address, and which variable holds its key.

Rules of this file:
- A key goes to the one it was meant for. A name with a provider of its own takes neither the address nor the key of
  the model it stands beside.
- Nothing here reads a key except `keys`, and nothing keeps one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from rerail.errors import SettingsError
from rerail.i18n import tell

# The providers, and the variables that hold their keys. Most are there to be named in messages and kept out of them.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "alibaba": ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "azure": ("AZURE_OPENAI_API_KEY",),
    "azure-responses": ("AZURE_OPENAI_API_KEY",),
    "bedrock": ("AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK", "AWS_SESSION_TOKEN"),
    "bedrock-mantle": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("CO_API_KEY",),
    "crusoe": ("CRUSOE_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks": ("FIREWORKS_API_KEY",),
    "github": ("GITHUB_API_KEY",),
    "github-copilot": ("GITHUB_COPILOT_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "google-cloud": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "heroku": ("HEROKU_INFERENCE_KEY",),
    "huggingface": ("HF_TOKEN",),
    "litellm": ("LITELLM_API_KEY",),
    "meta": ("META_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshotai": ("MOONSHOTAI_API_KEY",),
    "nebius": ("NEBIUS_API_KEY",),
    "ollama": ("OLLAMA_API_KEY",),
    "openai-chat": ("OPENAI_API_KEY",),
    "openai-chatgpt": ("OPENAI_API_KEY",),
    "openai-codex": ("OPENAI_API_KEY",),
    "openai-decisions": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "ovhcloud": ("OVHCLOUD_API_KEY",),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "snowflake": ("SNOWFLAKE_TOKEN",),
    "system-one": ("SYSTEM_ONE_API_KEY",),
    "together": ("TOGETHER_API_KEY",),
    "typesafe": ("TYPESAFE_API_KEY",),
    "vercel": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    "vllm": ("VLLM_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "zai": ("ZAI_API_KEY",),
}
_GATEWAY: Final = "gateway/"
_GATEWAY_KEYS: Final = ("PYDANTIC_AI_GATEWAY_API_KEY", "PAIG_API_KEY")
# What everybody writes, and the one protocol that all compatible servers speak.
_ALIASES: Final = {"openai": "openai-chat"}
# Also the name of a model that many people have on their own server: `mistral:7b` there is no provider.
_FAMILIES: Final = frozenset({"mistral"})

PROVIDERS: Final = frozenset({*_KEYS, *_ALIASES})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model as the user names it: `provider:model`, or any name that the server at `base_url` knows."""

    name: str
    base_url: str | None = None
    key_env: str | None = None

    @property
    def provider(self) -> str:
        """Whose model it is; empty for a server that is known by its address alone."""
        return self._parts[0]

    @property
    def model(self) -> str:
        """The name that the provider knows."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        prefix, colon, rest = self.name.partition(":")
        known = prefix in PROVIDERS or prefix.startswith(_GATEWAY)
        if not colon or (self.base_url and (not known or prefix in _FAMILIES)):
            # `qwen3:4b` is one name, and what it means is the server's business.
            return "", self.name
        return _ALIASES.get(prefix, prefix), rest

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that may hold its key, the one to name first."""
        if self.key_env:
            return (self.key_env,)
        return _GATEWAY_KEYS if self.provider.startswith(_GATEWAY) else _KEYS.get(self.provider, ())

    @property
    def place(self) -> str:
        """Where it is, for people: never with a password or a query."""
        if not self.base_url:
            return self.provider
        url = urlsplit(self.base_url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}".rstrip("/")

    def beside(self, name: str) -> Endpoint:
        """Another model by its name: at the same place unless the name says whose it is."""
        other = Endpoint(name, self.base_url, self.key_env)
        if other.provider == self.provider:
            return other
        if not other.provider:
            return Endpoint(f"{self.provider}:{name}", self.base_url, self.key_env)
        return Endpoint(name)

    def keys(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """What its variables hold now."""
        return tuple(environ[name] for name in self.variables if environ.get(name))

    def checked(self) -> Endpoint:
        """Itself, if the name can mean something."""
        if not self.model:
            raise SettingsError(tell("refuse.mind.no_model_named", name=self.name))
        if not self.provider and not self.base_url:
            example = f"openai:{self.name}"
            raise SettingsError(tell("refuse.mind.no_provider", name=self.name, example=example))
        return self
