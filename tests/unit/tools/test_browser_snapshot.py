"""Snapshots of pages: parsed, reduced, cut and listed."""

import pytest

from homarus.tools.browser.snapshot import (
    SnapshotOptions,
    format_snapshot,
    labelled_boxes,
    list_nodes,
    parse_snapshot,
)

PAGE = """\
- generic [active] [ref=e1] [box=0,0,800,600]:
  - heading "Shop" [level=1] [ref=e2] [box=0,0,800,30]
  - generic [ref=e3] [box=0,30,800,100]:
    - list [ref=e4] [box=0,30,800,100]:
      - listitem [ref=e5] [box=0,30,800,20]:
        - link "Buy \\"now\\" [ref=e99]" [ref=e6] [cursor=pointer] [box=10,30,50,20]:
          - /url: /buy
  - textbox "Name" [ref=e7] [box=0,200,100,20]: "Ada [ref=e98]"
  - iframe [ref=e8] [box=100,300,300,150]:
    - 'button "a: b" [ref=f1e2] [box=5,5,40,20]'
  - generic [ref=e9] [cursor=pointer] [box=0,500,10,10]: menu"""


def shown(**options: object) -> str:
    return format_snapshot(parse_snapshot(PAGE), SnapshotOptions(**options)).text  # type: ignore[arg-type]  # options by name


def test_snapshot_without_options_is_as_the_page_without_boxes() -> None:
    text = shown()
    assert "[box=" not in text and text.count("\n") == PAGE.count("\n")
    assert '        - link "Buy \\"now\\" [ref=e99]" [ref=e6] [cursor=pointer]:' in text


def test_snapshot_name_that_looks_like_a_ref_is_none() -> None:
    nodes, _ = list_nodes(parse_snapshot(PAGE), SnapshotOptions(), 100)
    refs = [node["ref"] for node in nodes if isinstance(node, dict)]
    assert refs == ["e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "f1e2", "e9"]
    link = next(node for node in nodes if isinstance(node, dict) and node["ref"] == "e6")
    assert link == {"ref": "e6", "role": "link", "name": 'Buy "now" [ref=e99]', "depth": 4}


def test_snapshot_interactive_is_a_flat_list() -> None:
    lines = shown(interactive=True).splitlines()
    assert [line.rpartition("[ref=")[2][:4] for line in lines if "e7" not in line] == [
        "e6] ",
        "f1e2",
        "e9] ",
    ]
    assert all(line.startswith("- ") for line in lines)


def test_snapshot_compact_leaves_out_bare_containers() -> None:
    text = shown(compact=True)
    assert "list [ref=e4]" not in text and '- heading "Shop"' in text.splitlines()[0]
    assert "  - link" in text


def test_snapshot_depth_leaves_out_what_is_deeper() -> None:
    assert [line.strip().split(" ")[1] for line in shown(depth=1).splitlines()] == [
        "generic", "heading", "generic", "textbox", "iframe", "generic",
    ]  # fmt: skip


@pytest.mark.parametrize("max_chars", [10, 100, 300])
def test_snapshot_that_is_long_is_cut_at_a_line(max_chars: int) -> None:
    found = format_snapshot(parse_snapshot(PAGE), SnapshotOptions(max_chars=max_chars))
    assert found.is_cut and "more lines left out" in found.text
    assert len(found.text.rpartition("\n")[0]) <= max_chars


def test_snapshot_nodes_have_a_limit() -> None:
    nodes, is_cut = list_nodes(parse_snapshot(PAGE), SnapshotOptions(), 3)
    assert len(nodes) == 3 and is_cut


def test_labels_in_a_frame_are_moved_by_the_frame() -> None:
    boxes = dict(labelled_boxes(parse_snapshot(PAGE)))
    assert boxes["f1e2"] == (105, 305, 40, 20) and boxes["e6"] == (10, 30, 50, 20)
    assert "e2" not in boxes


def test_snapshot_of_a_deep_page_is_parsed() -> None:
    deep = "\n".join(f"{'  ' * i}- generic [ref=e{i}]:" for i in range(3_000))
    roots = parse_snapshot(deep)
    assert format_snapshot(roots, SnapshotOptions(max_chars=10**8)).lines == 3_000
    assert list(labelled_boxes(roots)) == []
