"""Folders and files that another user of the machine could have put there, and what is shown to all of them."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest
from tests.cli.conftest import Here, Place, here, place  # noqa: F401

import rerail
from rerail.factory import workspaces_at
from rerail.settings.loading import Settings
from rerail.values.json_values import json_shown
from rerail.workspace import NotOurs, make_private

AS_ROOT = os.getuid() == 0
NOBODY = 65534


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder where every user can write, as a temporary directory."""
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


# -- Work folders -----------------------------------------------------------------------------------------------------


async def test_a_work_folder_is_its_users_own(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T1: without a file of its own, a store's runs work in a folder of this user, which no other can enter."""
    monkeypatch.setattr("tempfile.tempdir", str(public))
    before = os.umask(0)
    try:

        @rerail.tool
        def writes(ctx: rerail.Context) -> str:
            ctx.write_text("note", "private")
            return str(ctx.workspace)

        async with rerail.Engine("memory://", [writes]) as engine:
            result = await engine.run({"steps": [{"id": "a", "tool": "writes"}]})
    finally:
        os.umask(before)
    folder = Path(result.steps["a"].output)
    assert folder.parent == public / f"rerail-work-{os.getuid()}"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700, 0o700]


@pytest.mark.parametrize("trap", ["link", "open", "foreign", "file"])
async def test_a_folder_that_another_user_made_first_is_refused(
    public: Path, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1: its owner could read what tools write. The step fails, says why, and nothing is written."""
    monkeypatch.setattr("tempfile.tempdir", str(public))
    base = workspaces_at("memory://", None)("r").parent
    if trap == "link":
        (public / "theirs").mkdir()
        base.symlink_to(public / "theirs")
    elif trap == "file":
        base.touch()
    else:
        base.mkdir()
        base.chmod(0o777 if trap == "open" else 0o755)
        if trap == "foreign":
            if not AS_ROOT:
                pytest.skip("a folder of another user takes root")
            os.chown(base, NOBODY, NOBODY)

    @rerail.tool
    def writes(ctx: rerail.Context) -> None:
        ctx.write_text("note", "private")

    async with rerail.Engine("memory://", [writes], {"retry": {"backoff_base": 0}}) as engine:
        result = await engine.run({"steps": [{"id": "a", "tool": "writes"}]})
    assert not result.success and "store.workspace" in result.steps["a"].error["message"]
    assert not list(public.rglob("note"))


def test_a_folder_of_ones_own_is_taken_again(public: Path, tmp_path: Path) -> None:
    """T1: and in a private place nothing is asked: a shared workspace may have the permissions it has."""
    make_private(public / "a" / "b")
    make_private(public / "a" / "b")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    make_private(tmp_path / "shared")
    (public / "a").chmod(0o770)
    with pytest.raises(NotOurs, match="chmod 700"):
        make_private(public / "a")


def test_a_store_is_its_users_own_under_any_umask(place: Place) -> None:  # noqa: F811
    """T1: the folder of the default store too."""
    before = os.umask(0)
    try:
        place("run", place.plan({"id": "a", "tool": "ok"}), "--tools", "toolbox.py", code=0)
    finally:
        os.umask(before)
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place.folder / ".rerail").rglob("*")}
    found[".rerail"] = stat.S_IMODE((place.folder / ".rerail").stat().st_mode)
    assert found[".rerail"] == 0o700 and found["runs.db"] == 0o600
    assert not [name for name, mode in found.items() if mode & 0o077]


# -- Settings of others -----------------------------------------------------------------------------------------------

EVIL = """
from pathlib import Path
import rerail

Path(__file__).with_name("ran").touch()

@rerail.tool
def harmless():
    return 1
"""


@pytest.mark.parametrize("how", ["open", "foreign"])
def test_settings_of_a_stranger_run_no_code(
    place: Place,  # noqa: F811
    here: Here,  # noqa: F811
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SECURITY: a `rerail.toml` found upwards that another user could have written is refused, with the way out."""
    inner = place.folder / "inner"
    inner.mkdir()
    (place.folder / "evil.py").write_text(EVIL)
    toml = place.folder / "rerail.toml"
    toml.write_text('[tools]\nmodules = ["evil.py"]\n')
    if how == "open":
        toml.chmod(0o666)
    elif AS_ROOT:
        os.chown(toml, NOBODY, NOBODY)
    else:
        pytest.skip("a file of another user takes root")
    plan = place.plan({"id": "a", "tool": "ok"})
    monkeypatch.chdir(inner)
    for command in (("ls",), ("tools",), ("doctor",), ("check", plan), ("config",), ("run", plan)):
        said = here(*command)
        assert said.code in (1, 2) and "RERAIL_TRUST=" in said.out + said.err, command
    assert not (place.folder / "ran").exists()
    said = here("config")
    trusted = re.search(r"RERAIL_TRUST=(\S+)", said.err)
    assert trusted is not None
    for value in (trusted[1], "*"):
        monkeypatch.setenv("RERAIL_TRUST", value)
        assert here("config").code == 0
    monkeypatch.setenv("RERAIL_TRUST", f"/elsewhere{os.pathsep}")
    assert here("config").code == 2
    toml.chmod(0o644)
    if how == "foreign":
        os.chown(toml, 0, 0)
    assert here("config").code == 0


def test_commands_that_look_import_nothing(place: Place, here: Here) -> None:  # noqa: F811
    """SECURITY: the settings' modules are for commands that call tools, or list them."""
    (place.folder / "evil.py").write_text(EVIL)
    (place.folder / "rerail.toml").write_text('[tools]\nmodules = ["evil.py"]\n')
    done = place("run", place.plan({"id": "a", "tool": "ok"}), "--tools", "toolbox.py", "--json", code=0)
    (place.folder / "ran").unlink()
    run = done.json["run_id"]
    for command in (("ls",), ("show", run), ("logs", run), ("why", run), ("why", run, "a"), ("graph", run)):
        assert here(*command).code == 0
        assert not (place.folder / "ran").exists(), command


# -- Command lines and screens ----------------------------------------------------------------------------------------


def test_a_token_stands_on_no_command_line(here: Here) -> None:  # noqa: F811
    """SECURITY: every user of the machine can read it there."""
    said = here("serve", "--set", "server.token=s3cret-of-the-server")
    assert said.code == 2 and "RERAIL_TOKEN" in said.err


def test_the_browser_gets_a_file_that_leads_on() -> None:
    """SECURITY: `--open` shows the token to nobody: the address is in a file that only this user can read."""
    import contextlib

    from rerail.cli.commands.serve import _doorway

    with contextlib.ExitStack() as stack:
        address = _doorway(stack, "http://127.0.0.1:1/#token=s3cret")
        file = Path(address.removeprefix("file://"))
        assert "s3cret" not in address and '"http://127.0.0.1:1/#token=s3cret"' in file.read_text()
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.exists()


def test_json_shows_no_hidden_characters(place: Place, here: Here) -> None:  # noqa: F811
    """I7: a terminal that prints `--json` obeys nothing in it: C1 controls and those that turn the line are escaped."""
    hidden = "a\x7f\x85\x9b31m\u202e\u2066\u200fz é 名"
    plan = place.plan({"id": "a", "tool": "ok", "args": {"value": hidden}})
    done = place("run", plan, "--tools", "toolbox.py", "--json")
    assert done.json["steps"]["a"]["output"] == hidden
    said = done.out + here("show", done.json["run_id"], "--json").out
    assert not re.search("[\x7f-\x9f\u202e\u2066\u200f]", said) and "é 名" in said
    assert json.loads(json_shown(json.dumps(hidden, ensure_ascii=False).encode())) == hidden
    assert json_shown(b'"\x7f"') == b'"\\u007f"' and json_shown(b'"x"') == b'"x"'


def test_settings_in_code_need_no_trust(tmp_path: Path) -> None:
    """SECURITY: what a program gives is its own."""
    (tmp_path / "rerail.toml").write_text("[run]\nconcurrency = 3\n")
    assert Settings.discover(tmp_path)[0].run.concurrency == 3
