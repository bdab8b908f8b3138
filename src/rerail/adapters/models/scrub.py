"""Keys are kept out of what leaves: answers, errors, anything that is stored or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

# Servers that need no key get a word instead ("EMPTY", "ollama"). Blotting that out would mangle answers.
_SHORTEST: Final = 8
_BLOT: Final = "***"
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=*-]{8,}")


class Scrub:
    """Blots out the keys that it is told of. It holds them, so it shows nothing of itself."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: one key may begin with another.
        self._secrets = sorted({one for one in secrets if len(one) >= _SHORTEST}, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<scrub of {len(self._secrets)}>"

    def text(self, text: str) -> str:
        """The text without the keys."""
        for secret in self._secrets:
            text = text.replace(secret, _BLOT)
        return text

    def message(self, text: str) -> str:
        """An error's text without the keys, and without any other credentials that a server sends back."""
        return _BEARER.sub(rf"\1 {_BLOT}", self.text(text))

    def value(self, value: Any) -> Any:
        """JSON without the keys, names of members included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(one) for name, one in value.items()}
        return [self.value(one) for one in value] if isinstance(value, list) else value
