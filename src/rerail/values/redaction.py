"""Redaction of secrets in everything stored, shown or sent: events, outputs, errors, logs, model answers.

Rules of this file:
- A secret is redacted in its plain form, in its JSON form inside a text, and in its URL form.
- Only texts are changed, so JSON stays JSON of the same shape.
- The redactor holds the secrets, so its own representation shows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from rerail.i18n import values_of

# Servers without a key get a placeholder word instead ("EMPTY", "ollama"). Redacting that word would mangle answers.
SHORTEST: Final = 8
BLOT: Final = "***"
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=*-]{8,}")


class Scrub:
    """Redacts the secrets it has learnt; each may have a name to show in its place."""

    __slots__ = ("_encoded", "_forms", "_names", "active")

    def __init__(self, secrets: Iterable[str] | Mapping[str, str] = ()) -> None:
        self._names: dict[str, str] = {}
        self._forms: list[str] = []
        self._encoded: list[bytes] = []
        self.learn(secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, ""))

    def __repr__(self) -> str:
        return f"<scrub of {len(self._forms)}>"

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Add secrets to redact: values, each with its name."""
        known = {secret: name for secret, name in secrets.items() if len(secret) >= SHORTEST}
        self._names.update({form: name for secret, name in known.items() for form in _forms(secret)})
        self._forms = sorted(self._names, key=len, reverse=True)  # longest first: one may be a prefix
        self.active = bool(self._forms)  # it knows a secret
        self._encoded = [msgspec.json.encode(form)[1:-1] for form in self._forms]

    def text(self, text: str) -> str:
        """Return the text without the secrets."""
        clean = text
        for form in self._forms:
            clean = clean.replace(form, BLOT)
        return text if clean == text else clean  # a catalogue message stays translatable

    def message(self, text: str) -> str:
        """Return an error's text without the secrets, and without other credentials that a server sends back."""
        clean = _BEARER.sub(rf"\1 {BLOT}", self.text(text))
        return text if clean == text and all(self._is_clean(part) for part in values_of(text)) else str(clean)

    def _is_clean(self, part: str) -> bool:
        return not _BEARER.search(part) and self.text(part) == part

    def value(self, value: Any) -> Any:
        """Return JSON without the secrets, in names of members too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(one) for name, one in value.items()}
        return [self.value(one) for one in value] if isinstance(value, list) else value

    def found(self, data: bytes) -> str | None:
        """Return the name of a secret in encoded JSON, if there is one."""
        for form, encoded in zip(self._forms, self._encoded, strict=True):
            if encoded in data:
                return self._names[form]
        return None

    def data(self, data: bytes) -> bytes:
        """Return encoded JSON without the secrets."""
        return msgspec.json.encode(self.value(msgspec.json.decode(data)))


def _forms(secret: str) -> set[str]:
    """Return the forms of a secret: plain, in JSON that is itself a text, in a URL."""
    secret = secret.encode("utf-8", "replace").decode()  # the system may supply undecodable bytes
    addressed = {"".join(_percent(byte, kept) for byte in secret.encode()) for kept in ("", "/")}
    return {secret, msgspec.json.encode(secret)[1:-1].decode(), *addressed}


def _percent(byte: int, kept: str) -> str:
    sign = chr(byte)
    return sign if byte < 128 and (sign.isalnum() or sign in f"_.-~{kept}") else f"%{byte:02X}"
