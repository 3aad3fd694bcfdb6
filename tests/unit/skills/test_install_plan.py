"""Installs of skills: the exact command or download, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import UserError
from homarus.skills.install_plan import choose_installs, find_install
from tests.unit.skills.install_builders import BREW, machine, write_install_skill

APT = {"id": "apt", "kind": "apt", "package": "prog", "bins": ["prog"]}
NODE = {"id": "node", "kind": "node", "package": "@me/prog@1.2.0", "bins": ["prog"]}
GO = {"id": "go", "kind": "go", "module": "example.com/me/prog/cmd", "bins": ["prog"]}
UV = {"id": "uv", "kind": "uv", "package": "prog[extra]==1.0", "bins": ["prog"]}
DOWNLOAD = {
    "id": "download",
    "kind": "download",
    "url": "https://a.example/v1/prog.tar.gz?x=1#y",
    "stripComponents": 1,
    "targetDir": "runtime",
}


@pytest.mark.parametrize(
    ("install", "argv"),
    [
        (BREW, "brew install prog"),
        ({**BREW, "formula": "me/tap/prog@2"}, "brew install me/tap/prog@2"),
        (APT, "sudo -n apt-get install -y --no-install-recommends prog"),
        (NODE, "npm install --global --ignore-scripts @me/prog@1.2.0"),
        (GO, "go install example.com/me/prog/cmd@latest"),
        ({**GO, "module": "example.com/x@v1.2"}, "go install example.com/x@v1.2"),
        (UV, "uv tool install 'prog[extra]==1.0'"),
    ],
)
def test_install_of_a_kind_has_its_exact_command(tmp_path: Path, install: Any, argv: str) -> None:
    skill = write_install_skill(tmp_path, install)
    plan = find_install(skill, install["id"], machine())
    assert plan.command == argv and f"command: {argv}" in plan.describe()


def test_install_as_root_needs_no_sudo(tmp_path: Path) -> None:
    plan = find_install(write_install_skill(tmp_path, APT), "apt", machine(is_root=True))
    assert plan.argv[0] == "apt-get"


@pytest.mark.parametrize(
    ("manager", "start"),
    [("pnpm", "pnpm add --global"), ("yarn", "yarn global add"), ("bun", "bun add --global")],
)
def test_install_uses_the_configured_node_manager(tmp_path: Path, manager: str, start: str) -> None:
    skill = write_install_skill(tmp_path, NODE)
    plan = find_install(skill, "node", machine(nodeManager=manager))
    assert plan.command == f"{start} --ignore-scripts @me/prog@1.2.0"


@pytest.mark.parametrize(
    ("install", "key"),
    [(BREW, "formula"), (APT, "package"), (NODE, "package"), (GO, "module"), (UV, "package")],
)
@pytest.mark.parametrize(
    "name",
    [
        "", "-y", "--find-links=x", "--", "a b", "a;id", "$(id)", "`id`", "a\nb",
        "https://evil.example/x.tgz", "git+https://evil.example/x", "../x", "./x", "/etc/x",
        "a/../b", "file:x", "a|b", "a&b", "a>b", "x@file:../y", "x@https://evil.example", "x @ y",
        "~/x", "a\u200bb", "\u0430pt", "a" * 300, "user@host:x", "npm:x", "github:me/x",
        "x==1 --pre",
    ],
)  # fmt: skip
def test_install_name_that_is_no_name_is_refused(
    tmp_path: Path, install: Any, key: str, name: str
) -> None:
    skill = write_install_skill(tmp_path, {**install, key: name})
    with pytest.raises(UserError, match="refused"):
        find_install(skill, install["id"], machine())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"url": "http://a.example/x.zip"}, "https:// alone"),
        ({"url": "ftp://a.example/x.zip"}, "only http"),
        ({"url": "https://user@a.example/x.zip"}, "user name"),
        ({"url": "https://a.example/%2e%2e"}, "file name"),
        ({"url": "https://a.example/a%2Fb%00.zip"}, "file name"),
        ({"targetDir": "../x"}, "targetDir"),
        ({"targetDir": "/etc"}, "outside"),
        ({"targetDir": "~/.ssh"}, "outside"),
        ({"targetDir": "/state/tools/helper/../../x"}, "outside"),
        ({"targetDir": "/state/tools/helper-2"}, "outside"),
        ({"sha256": "abc"}, "sha256"),
        ({"stripComponents": 11}, "stripComponents"),
        ({"archive": "rar"}, "not one of zip"),
        ({"url": "https://a.example/prog", "extract": True}, "no archive"),
    ],
)
def test_download_that_leaves_its_folder_is_refused(
    tmp_path: Path, changes: Any, problem: str
) -> None:
    skill = write_install_skill(tmp_path, {**DOWNLOAD, **changes})
    with pytest.raises(UserError, match=problem):
        find_install(skill, "download", machine())


def test_download_is_shown_whole(tmp_path: Path) -> None:
    skill = write_install_skill(tmp_path, {**DOWNLOAD, "sha256": "A" * 64})
    plan = find_install(skill, "download", machine())
    assert plan.describe()[-4:] == [
        "download: https://a.example/v1/prog.tar.gz?x=1",
        "folder: /state/tools/helper/runtime",
        "unpack: tar.gz, without the first 1 folders of each name",
        f"sha256: {'a' * 64}",
    ]
    other = find_install(write_install_skill(tmp_path, DOWNLOAD), "download", machine())
    assert "sha256: none: the skill does not say what the file must be" in other.describe()
    assert plan.digest != other.digest


def test_download_folder_of_the_skill_may_be_written_in_full(tmp_path: Path) -> None:
    folder = "/state/tools/helper/models"
    skill = write_install_skill(tmp_path, {**DOWNLOAD, "targetDir": folder})
    plan = find_install(skill, "download", machine())
    assert plan.download and str(plan.download.folder) == folder


def choose(tmp_path: Path, *installs: Any, **facts: Any) -> list[str]:
    skill = write_install_skill(tmp_path, *installs)
    found = choose_installs(skill, ["prog"], machine(**facts))
    return [each.install_id for each in found]


def test_install_is_chosen_by_preference_and_programs(tmp_path: Path) -> None:
    every = (GO, BREW, APT, NODE, UV, {**DOWNLOAD, "bins": ["prog"]})
    assert choose(tmp_path, *every) == ["brew"]
    assert choose(tmp_path, *every, preferBrew=False) == ["uv"]
    assert choose(tmp_path, *every, programs={"npm", "go"}) == ["node"]
    assert choose(tmp_path, *every, programs={"apt-get", "go"}) == ["apt"]
    assert choose(tmp_path, *every, programs={"apt-get", "go"}, platform="darwin") == ["go"]
    assert choose(tmp_path, *every, programs=()) == ["download"]
    mac = {**BREW, "os": ["darwin"]}
    assert choose(tmp_path, mac, GO) == ["go"]


def test_install_that_no_program_can_make_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="brew needs brew, which is not on the PATH"):
        choose(tmp_path, BREW, programs=())
    with pytest.raises(UserError, match="does not say how"):
        choose(tmp_path)


def test_installs_for_several_programs_are_chosen_once(tmp_path: Path) -> None:
    both = {**BREW, "bins": ["prog", "other"]}
    third = {**UV, "bins": ["third"]}
    skill = write_install_skill(tmp_path, both, third, bins=("prog", "other", "third"))
    found = choose_installs(skill, ["prog", "other", "third"], machine())
    assert [each.install_id for each in found] == ["brew", "uv"]


def test_installs_without_missing_programs_are_the_downloads(tmp_path: Path) -> None:
    skill = write_install_skill(tmp_path, BREW, DOWNLOAD)
    assert [each.install_id for each in choose_installs(skill, (), machine())] == ["download"]


def test_install_id_that_is_unknown_names_the_others(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        find_install(write_install_skill(tmp_path, BREW, UV), "x", machine())
    assert "brew, uv" in caught.value.fix
