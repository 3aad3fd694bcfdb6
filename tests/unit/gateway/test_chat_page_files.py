"""The chat page's files, without a browser: nothing in them can turn words into code."""

import re
from importlib.resources import files

import pytest

PAGE = files("homarus.gateway").joinpath("static")
FILES = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir()}
SCRIPTS = [name for name in FILES if name.endswith(".js")]


def test_the_page_holds_no_script_and_no_style_of_its_own() -> None:
    html = FILES["index.html"]
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:", html)


def test_everything_the_page_asks_for_is_one_of_its_files() -> None:
    asked = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', FILES["index.html"])
    for name in SCRIPTS:
        asked += [path.removeprefix("./") for path in re.findall(r"from '([^']+)'", FILES[name])]
    assert asked and set(asked) <= FILES.keys()


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_html_or_code_of_text(name: str) -> None:
    doors = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    assert not re.search(doors, FILES[name])


def test_the_address_of_the_page_gives_neither_a_gateway_nor_a_token() -> None:
    together = "".join(FILES[name] for name in SCRIPTS)
    assert "URLSearchParams" not in together and "location.hash" not in together
    assert together.count("location.search") == 1  # where it is taken away
