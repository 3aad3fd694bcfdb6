"""Tables as code, as bullets, and unchanged."""

from hypothesis import given
from hypothesis import strategies as st

from homarus.channels import markup

TABLE = "| Name | Age |\n|:--|--:|\n| Ann | 30 |\n| Bo | 4 |"


def test_tables_off_returns_text_unchanged() -> None:
    assert markup.convert_tables(TABLE, "off") == TABLE


def test_tables_code_columns_have_width_of_widest_cell() -> None:
    found = markup.convert_tables("a|b\n-|-\n日本|c\nx|`d` **e**", "code")
    assert found == ("```\n| a    | b   |\n| ---- | --- |\n| 日本 | c   |\n| x    | d e |\n```")


def test_tables_text_around_is_unchanged() -> None:
    found = markup.convert_tables(f"  *a*\n\n{TABLE}\n\n```\n{TABLE}\n```\nend", "code")
    assert found.startswith("  *a*\n\n```\n| Name")
    assert found.endswith(f"\n\n```\n{TABLE}\n```\nend")


def test_tables_in_lists_and_quotes_stay_nested() -> None:
    quoted = "> a\n>\n" + "\n".join("> " + line for line in TABLE.split("\n"))
    assert "\n> ```\n> | Name | Age |\n" in markup.convert_tables(quoted, "code")
    listed = "- | A | B |\n  |---|---|\n  | 1 | 2 |\n- next"
    assert markup.convert_tables(listed, "code") == (
        "- ```\n  | A   | B   |\n  | --- | --- |\n  | 1   | 2   |\n  ```\n- next"
    )


def test_tables_cells_beyond_header_are_kept() -> None:
    wide = "|a|b|\n|-|-|\n|c|d|e|"
    assert "e" in markup.convert_tables(wide, "code")
    assert markup.convert_tables(wide, "bullets") == "**c**\n• b: d\n• e"
    assert "<td>e</td>" in markup.render(wide, "matrix")


def test_tables_escaped_bars_and_breaks_in_cells_are_parsed() -> None:
    found = markup.convert_tables("|a|b|\n|-|-|\n|x\\|y|1<br>2|", "bullets")
    assert found == "x|y\n• b: 1 2"


def test_tables_bullet_label_with_markup_is_not_bold_twice() -> None:
    found = markup.convert_tables("|a|b|\n|-|-|\n|**x**|1|\n|`y`|2|", "bullets")
    assert found == "**x**\n• b: 1\n\n`y`\n• b: 2"


def test_tables_header_only_is_rendered() -> None:
    assert markup.convert_tables("|a|b|\n|-|-|", "bullets") == "• a\n• b"


def test_tables_backticks_in_cells_do_not_end_code() -> None:
    found = markup.convert_tables("|a|b|\n|-|-|\n|\\`\\`\\`|c|", "code")
    assert found.startswith("````\n") and found.endswith("\n````")


def test_tables_matrix_renders_html_table() -> None:
    assert markup.render("|a|b|\n|-|-|\n|**c**||", "matrix") == (
        "<table><thead><tr><th>a</th><th>b</th></tr></thead>"
        "<tbody><tr><td><strong>c</strong></td><td></td></tr></tbody></table>"
    )


def test_tables_default_follows_dialect() -> None:
    assert "<pre><code>| Name | Age |\n" in markup.render(TABLE, "telegram")
    assert markup.render(TABLE, "whatsapp").startswith("*Ann*\n• Age: 30")
    assert markup.render(TABLE, "signal").startswith("Ann\n• Age: 30")
    assert markup.render(TABLE, "markdown") == TABLE
    assert markup.render(TABLE, "plain", "off") == TABLE


def test_tables_small_input_has_bounded_output() -> None:
    wide = "|" + "a|" * 300 + "\n|" + "-|" * 300 + "\n" + "|x\n" * 300
    assert len(markup.convert_tables(wide, "code")) < 4 * len(wide)
    long = "|a|b|\n|-|-|\n|" + "z" * 10_000 + "|b|\n" + "|x|y|\n" * 500
    assert len(markup.convert_tables(long, "code")) < 10 * len(long)


ROWS = st.lists(
    st.lists(st.text("ab*_`[]<>|\\ -:", max_size=6), min_size=1, max_size=4), min_size=1, max_size=5
)


@given(ROWS, st.sampled_from(["code", "bullets"]), st.sampled_from(["", "> ", "- ", "  "]))
def test_tables_any_content_is_accepted(
    rows: list[list[str]], tables: markup.Tables, prefix: str
) -> None:
    head = "|".join(f"w{n}" for n in range(len(rows[0])))
    lines = [f"|{head}|", "|" + "-|" * len(rows[0]), *("|" + "|".join(row) + "|" for row in rows)]
    text = "\n".join(prefix + line for line in lines)
    letters = "".join(rows[-1]).count("a")
    assert markup.convert_tables(text, tables).count("a") >= letters
