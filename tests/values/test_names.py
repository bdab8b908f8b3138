"""Did you mean: the known name that a misspelled one stands for (P5, H6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.calls import calls

from rerail.values.names import meant, nearest, one_off


@pytest.mark.parametrize(
    ("word", "names", "guess"),
    [
        ("titel", ["title", "text"], "title"),
        ("Title", ["title", "TITLE"], "TITLE"),
        ("user-id", ["user_id", "userid2"], "user_id"),
        ("userId", ["user id"], "user id"),
        ("read_flie", ["read_file", "write_file"], "read_file"),
        ("recieve", ["receive"], "receive"),
        ("abc", ["xyz"], None),
        ("a", ["b", "c"], None),
        ("", ["a"], None),
        ("word", [], None),
        ("数据原", ["数据源", "模型"], "数据源"),
        # A tie: the one that begins alike, then by the alphabet; never by the order given.
        ("cat", ["hat", "car", "cab"], "cab"),
        ("cat", ["bat", "car"], "car"),
        ("x" * 99 + "y", ["x" * 100], "x" * 100),
        ("x" * 1000, ["x" * 999], None),
    ],
)
def test_p5_nearest(word: str, names: list[str], guess: str | None) -> None:
    """P5: the nearest known word by case, separators, then edits."""
    assert nearest(word, names) == guess
    assert nearest(word, reversed(names)) == guess


@pytest.mark.parametrize(
    ("word", "name", "same"),
    [
        ("user-id", "user_id", True),
        ("archvie", "archive", True),
        # Two slips are too many for a short word.
        ("acrhvie", "archive", False),
        ("donwlaod", "download", True),
        ("dowm", "down", True),
        ("dwn", "dow", False),
        ("rchive", "archive", False),
        ("archive1", "archive2", False),
        # Without letters, every sign counts: a number, a date.
        (" 12", "12", True),
        ("-12", "12", False),
        ("1-2", "12", False),
    ],
)
def test_h6_a_name_is_taken_for_another_only_where_nothing_else_can_be_meant(word: str, name: str, same: bool) -> None:
    """H6: nobody is asked, so a slip must be plainly one; a name that is as near leaves it open."""
    assert meant(word, [name, "something_else"]) == (name if same else None)
    assert meant("dwon", ["down", "dwoon"]) is None


def test_h6_one_slip_away() -> None:
    """H6: a sign more, less, another, or two swapped; the word itself, nothing and a text are no slips."""
    names = ["12345", "1234", "123456", "12354", "12346", "12", "13355"]
    assert one_off("12345", names) == ["1234", "123456", "12354", "12346"]
    assert one_off("", ["a"]) == [] and one_off("a", ["", "b", "bc"]) == ["", "b"]
    assert one_off("x" * 100, ["x" * 99]) == ["x" * 99] and one_off("x" * 101, ["x" * 100]) == []


def test_p5_ten_times_the_names_are_ten_times_the_work() -> None:
    """P5: ten thousand names are no reason to wait; most are passed over before they are measured."""
    verbs = ("read", "write", "list", "send", "fetch")
    few, many = ([f"tool_{verb}_{n}" for verb in verbs for n in range(count)] for count in (200, 2000))
    cost = [calls(lambda names=names: nearest("tol_raed_1234", names)) for names in (few, many)]
    assert cost[1] < 2 * len(many) and cost[1] < 11 * cost[0]


WORDS = st.text("abcAB_- 1", max_size=7)


def edits(one: str, two: str) -> int:
    """The plain table, as the oracle."""
    table = [[max(i, j) if 0 in (i, j) else 0 for j in range(len(two) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(two) + 1):
            ways = [table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (one[i - 1] != two[j - 1])]
            if i > 1 and j > 1 and one[i - 1] == two[j - 2] and one[i - 2] == two[j - 1]:
                ways.append(table[i - 2][j - 2] + 1)
            table[i][j] = min(ways)
    return table[-1][-1]


def folded(word: str) -> str:
    return "".join(sign for sign in word.casefold() if sign not in "_- ")


@given(WORDS, st.lists(WORDS, max_size=8))
def test_p5_nearest_laws(word: str, names: list[str]) -> None:
    """P5: the word itself if present; else one with the fewest edits within the bound; None if nothing is near."""
    guess = nearest(word, names)
    if word in names:
        assert guess == word
        return
    own = folded(word)
    bound = min(max(1, len(own) // 3), len(own) - 1)
    near = [edits(own, folded(name)) for name in names]
    best = min(near, default=99)
    assert (guess is not None) == (best <= max(bound, 0))
    if guess is not None:
        assert edits(own, folded(guess)) == best
    assert meant(word, names) in (None, guess)
    assert nearest(word, [*reversed(names), *names]) == guess


@given(st.text("abcdef", min_size=8, max_size=30), st.text("abcdef", min_size=8, max_size=30))
def test_p5_distance_law(one: str, two: str) -> None:
    """P5: longer words are measured right too."""
    assert (nearest(one, [two]) is not None) == (edits(one, two) <= min(len(one) // 3, 8))
