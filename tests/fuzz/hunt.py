"""Look for input that breaks a target, guided by what of our code each input reaches (needs atheris; `make fuzz`).

    python -m tests.fuzz.hunt TARGET FOLDER [options of libFuzzer]

FOLDER gets what was found. Inputs are cut and joined as bytes and, where they are JSON, changed as values: a member
more, a member less, another kind of value in its place, and the words that the targets know.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import atheris
import msgspec

with atheris.instrument_imports(include=["rerail"]):
    from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
WORDS = """
    id tool args needs step when steps tasks objective title stage critical timeout retries effect alternatives
    fallback value produces confirm check schema non_empty keys verify expect trust_output priority resources
    follow_up aiName dependsOn depends_on dependencies taskId condition metadata maxRetries parameters topic
    description type path properties items anyOf oneOf allOf not if then else $ref $defs definitions enum const
    pattern patternProperties additionalProperties prefixItems contains minContains maxContains uniqueItems minimum
    maximum exclusiveMinimum multipleOf minLength maxItems required dependentRequired propertyNames default object
    array string integer number boolean null plan reason category root_cause recoverable suggestion confidence action
    complete missing failed_steps unsatisfactory transient_error parameter_error tool_error adjust success failure
    done once read repeatable #/$defs/a #/definitions/b # 0 s p after t u text pay ${s.n} ${0} $${ (a|a)*$ ^a+$ [ {
    error errors status ok
""".split()  # noqa: SIM905 - a list of two hundred quotes says no more
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, 2**64, -(2**63), 10**40, 1.5, 1e308, -0.0, "", "\x00", "\ud7ff", "￿", [], {},
    [[]], [{}], {"": None}, "a" * 300,
)  # fmt: skip


def _mutated(data: bytes, most: int, seed: int) -> bytes:
    dice = random.Random(seed)
    if dice.random() < 0.6:
        try:
            value = msgspec.json.decode(data)
            for _ in range(dice.randint(1, 4)):
                value = _changed(value, dice)
            made = msgspec.json.encode(value)
            if len(made) <= most:
                return made
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError, RecursionError, OverflowError):
            pass
    return bytes(atheris.Mutate(data, most))


def _changed(value: Any, dice: random.Random) -> Any:
    """The value with one place in it changed."""
    if isinstance(value, list) and value and dice.random() < 0.75:
        at = dice.randrange(len(value))
        return [*value[:at], _changed(value[at], dice), *value[at + 1 :]]
    if isinstance(value, dict) and value and dice.random() < 0.75:
        name = dice.choice(list(value))
        return {**value, name: _changed(value[name], dice)}
    match dice.randrange(6):
        case 0:
            return _any(dice)
        case 1 if isinstance(value, dict):
            return {**value, dice.choice(WORDS): _any(dice)}
        case 1 | 2 if isinstance(value, list):
            return [*value, _any(dice)] if dice.random() < 0.7 else value * 2
        case 2 if isinstance(value, dict) and value:
            gone = dice.choice(list(value))
            return {name: one for name, one in value.items() if name != gone}
        case 3:
            return [value]
        case 4:
            return {dice.choice(WORDS): value}
        case _:
            return value + dice.choice(WORDS) if isinstance(value, str) else _any(dice)


def _any(dice: random.Random) -> Any:
    if dice.random() < 0.5:
        return dice.choice(WORDS)
    if dice.random() < 0.3:
        return {dice.choice(WORDS): dice.choice(ODD), dice.choice(WORDS): dice.choice(WORDS)}
    return dice.choice(ODD)


def main() -> None:
    """Hunt, until libFuzzer's options say that it is enough."""
    name, folder, *rest = sys.argv[1:]
    found = Path(folder) / name
    found.mkdir(parents=True, exist_ok=True)
    kept = CORPUS / name
    limits = ["-timeout=5", "-rss_limit_mb=2048", "-max_len=4096", f"-artifact_prefix={folder}/{name}-"]
    places = [str(found), *([str(kept)] if kept.is_dir() else [])]
    atheris.Setup(
        [sys.argv[0], *limits, *rest, *places], TARGETS[name], custom_mutator=_mutated, enable_python_coverage=True
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
