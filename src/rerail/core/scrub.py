"""Secrets are kept out of what leaves: events, outputs, errors, logs, answers of models; anything stored or shown.

Rules of this file:
- A secret is blotted out as it is, as JSON writes it inside a text, and as an address holds it.
- Values of other kinds than text are left alone, so what was JSON stays JSON of the same shape.
- It holds the secrets, so it shows nothing of itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from rerail.i18n import values_of

# Servers that need no key get a word instead ("EMPTY", "ollama"). Blotting that out would mangle answers.
SHORTEST: Final = 8
BLOT: Final = "***"
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=*-]{8,}")


class Scrub:
    """Blots out the secrets that it is told of; each may have a name, to say which one it was."""

    __slots__ = ("_encoded", "_forms", "_names")

    def __init__(self, secrets: Iterable[str] | Mapping[str, str] = ()) -> None:
        self._names: dict[str, str] = {}
        self._forms: list[str] = []
        self._encoded: list[bytes] = []
        self.learn(secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, ""))

    def __repr__(self) -> str:
        return f"<scrub of {len(self._forms)}>"

    def __bool__(self) -> bool:
        return bool(self._forms)

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Blot these out too: values, each with its name."""
        known = {secret: name for secret, name in secrets.items() if len(secret) >= SHORTEST}
        self._names.update({form: name for secret, name in known.items() for form in _forms(secret)})
        self._forms = sorted(self._names, key=len, reverse=True)  # the longest first: one may begin with another
        self._encoded = [msgspec.json.encode(form)[1:-1] for form in self._forms]

    def text(self, text: str) -> str:
        """The text without the secrets."""
        clean = text
        for form in self._forms:
            clean = clean.replace(form, BLOT)
        return text if clean == text else clean  # a sentence of the catalogue stays one

    def message(self, text: str) -> str:
        """An error's text without the secrets, and without any other credentials that a server sends back."""
        clean = _BEARER.sub(rf"\1 {BLOT}", self.text(text))
        return text if clean == text and all(self._is_clean(part) for part in values_of(text)) else str(clean)

    def _is_clean(self, part: str) -> bool:
        return not _BEARER.search(part) and self.text(part) == part

    def value(self, value: Any) -> Any:
        """JSON without the secrets, names of members included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(one) for name, one in value.items()}
        return [self.value(one) for one in value] if isinstance(value, list) else value

    def found(self, data: bytes) -> str | None:
        """The name of a secret that encoded JSON holds, if it holds one."""
        for form, encoded in zip(self._forms, self._encoded, strict=True):
            if encoded in data:
                return self._names[form]
        return None

    def data(self, data: bytes) -> bytes:
        """Encoded JSON without the secrets."""
        return msgspec.json.encode(self.value(msgspec.json.decode(data)))


def _forms(secret: str) -> set[str]:
    """How it may be written: as it is, in JSON that is itself a text, in an address."""
    secret = secret.encode("utf-8", "replace").decode()  # the system may hand out what is no text
    addressed = {"".join(_percent(byte, kept) for byte in secret.encode()) for kept in ("", "/")}
    return {secret, msgspec.json.encode(secret)[1:-1].decode(), *addressed}


def _percent(byte: int, kept: str) -> str:
    sign = chr(byte)
    return sign if byte < 128 and (sign.isalnum() or sign in f"_.-~{kept}") else f"%{byte:02X}"
