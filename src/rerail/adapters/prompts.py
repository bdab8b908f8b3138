"""Prompts as files: those that come with the package, and those that a user put in their place (M1)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from rerail.errors import SettingsError
from rerail.i18n import tell
from rerail.mind.questions import QUESTIONS, ROLES
from rerail.mind.words import BadTemplate
from rerail.ports import Question


def shipped(role: str) -> str:
    """The prompt that comes with the package."""
    return resources.files("rerail.mind").joinpath("prompts", f"{role}.md").read_text(encoding="utf-8")


class Prompts:
    """The prompt of each role: the user's file if the folder has one, else the package's own."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        if folder is not None and not folder.is_dir():
            raise SettingsError(tell("refuse.mind.no_prompts", folder=str(folder)))
        self._texts = {role: self._read(role) for role in ROLES}

    def _read(self, role: str) -> str:
        path = self.path(role)
        if path is None:
            return shipped(role)
        try:
            text = path.read_text(encoding="utf-8-sig")  # editors leave marks
            QUESTIONS[role].ask(Question(role, "", "", "", (), {}), text, 10_000)
        except (OSError, UnicodeDecodeError, BadTemplate) as error:
            raise SettingsError(tell("refuse.mind.prompt_unusable", path=str(path), error=error)) from None
        return text

    def path(self, role: str) -> Path | None:
        """Where a user's own prompt is, if there is one."""
        path = self._folder / f"{role}.md" if self._folder is not None else None
        return path if path is not None and path.is_file() else None

    def __call__(self, role: str) -> str:
        """The prompt of a role."""
        return self._texts[role]
