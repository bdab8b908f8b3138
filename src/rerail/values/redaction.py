"""Redaction of secrets in everything stored, shown or sent: events, outputs, errors, logs, model answers.

Rules of this file:
- A secret is found in every spelling that JSON, URLs and nested quoting give it, in any mix of them.
- A piece of a secret is not recognised: texts are redacted first and cut after (`rerail.context.excerpt`).
- Only texts are changed, so JSON stays JSON of the same shape.
- The redactor holds the secrets, so its own representation shows none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from rerail.i18n import values_of

# Servers without a key get a placeholder word instead ("EMPTY", "ollama"). Redacting that word would mangle answers.
SHORTEST: Final = 8
LONG_LINE: Final = 16  # characters; such a line of a secret of several lines is a secret itself
BLOT: Final = "***"
# Names of settings and headers with values to redact.
SECRET_NAME: Final = re.compile(r"(?i)token|secret|passw|api[-_]?key|authorization|credential|cookie")
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=*-]{8,}")
_HARD: Final = re.compile(r"[A-Za-z0-9]+")  # characters that no encoding changes
_FEW: Final = 4  # of them in a row are too few to search for first


class Scrub:
    """Redacts the secrets it has learnt; each may have a name to show in its place."""

    __slots__ = ("_followers", "_known", "_names", "active")

    def __init__(self, secrets: Iterable[str] | Mapping[str, str] = ()) -> None:
        self._names: dict[str, str] = {}
        self._followers: list[Callable[[list[str]], None]] = []
        self._known: list[tuple[str, bytes, re.Pattern[str], str]] = []
        self.learn(secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, ""))

    def __repr__(self) -> str:
        return f"<scrub of {len(self._known)}>"

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Add secrets to redact: values, each with its name."""
        found = {part: name for secret, name in secrets.items() for part in _parts(secret) if part not in self._names}
        if found:
            self._names.update(found)
            rows = [(_core(one), _core(one).encode(), re.compile(pattern(one)), self._names[one]) for one in found]
            # Longest first: one secret may begin another.
            self._known = sorted([*self._known, *rows], key=lambda row: len(row[2].pattern), reverse=True)
        self.active = bool(self._known)  # it knows a secret
        for tell in self._followers if found else ():
            tell(self._patterns())

    def text(self, text: str) -> str:
        """Return the text without the secrets."""
        clean = text
        for core, _, found, _ in self._known:
            if core in clean:
                clean = found.sub(BLOT, clean)
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
        for _, core, spelt, name in self._known:
            if core in data and spelt.search(data.decode("utf-8", "replace")):
                return name
        return None

    def data(self, data: bytes) -> bytes:
        """Return encoded JSON without the secrets."""
        return msgspec.json.encode(self.value(msgspec.json.decode(data)))

    def follow(self, tell: Callable[[list[str]], None]) -> None:
        """Tell a process beside this one what to redact, now and later: regular expressions, longest first."""
        self._followers.append(tell)
        tell(self._patterns())

    def _patterns(self) -> list[str]:
        return [spelt.pattern for _, _, spelt, _ in self._known]


# -- Spellings --------------------------------------------------------------------------------------------------------


def _parts(secret: str) -> list[str]:
    """Return what is redacted for a secret: the whole, and its long lines, which a reader may show one by one."""
    plain = secret.encode("utf-8", "replace").decode()  # the system may supply undecodable bytes
    lines = [line.strip() for line in plain.splitlines()] if "\n" in plain.strip() else []
    long = [line for line in lines if len(line) >= LONG_LINE and not line.startswith("-----")]
    return [one for one in (plain, plain.strip(), *long) if len(one) >= SHORTEST]


def _core(secret: str) -> str:
    """Return a part of a secret that is the same in every spelling; empty if it has none."""
    longest: str = max(_HARD.findall(secret), key=len, default="")
    return longest if len(longest) >= _FEW else ""


def pattern(secret: str) -> str:
    """Return a regular expression for a secret in every spelling: plain, in JSON or source text, in a URL."""
    return "".join(map(_spelt, secret))


_ESCAPED: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\\": r"\\"}


def _spelt(sign: str) -> str:
    if sign.isascii() and sign.isalnum():
        return sign
    units = sign.encode("utf-16-be", "surrogatepass")
    forms = [
        "".join(f"%{_hex(byte)}" for byte in sign.encode("utf-8", "surrogatepass")),
        "".join(rf"\\+u{_hex(units[at])}{_hex(units[at + 1])}" for at in range(0, len(units), 2)),
    ]
    if ord(sign) < 256:
        forms.append(rf"\\+x{_hex(ord(sign))}")
    if sign == "\\":
        forms.append(r"\\+")
    elif sign in _ESCAPED:
        forms += [re.escape(sign), rf"\\+{_ESCAPED[sign]}"]
    else:  # JSON escapes quotes, and may escape slashes; texts inside texts double the backslashes
        forms.append(rf"\\*{re.escape(sign)}" if sign in "\"'/`" else re.escape(sign))
    if sign == " ":
        forms.append(r"\+")
    return f"(?:{'|'.join(forms)})"


def _hex(byte: int) -> str:
    return "".join(f"[{one.lower()}{one}]" if one.isalpha() else one for one in f"{byte:02X}")
