"""One model per role behind one port."""

from __future__ import annotations

from collections.abc import Mapping

from rerail.i18n import tell
from rerail.ports import Model, ModelFailed, Prompt, Reply


class RoleModels:
    """Hands each question to the model of its role."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = dict(models)

    def __repr__(self) -> str:
        return f"<models {', '.join(f'{role}: {model!r}' for role, model in self._models.items())}>"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that somebody is there for."""
        return tuple(self._models)

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask the model of the prompt's role."""
        model = self._models.get(prompt.role)
        if model is None:
            hint = tell("model.set_name", role=prompt.role)
            raise ModelFailed(tell("model.no_role", role=prompt.role, hint=hint), transient=False)
        return await model.complete(prompt)
