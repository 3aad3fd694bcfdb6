"""From bytes to a checked config."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from homarus.config.load import examine_config, load_config, read_raw
from homarus.config.paths import Paths
from homarus.config.rewrite import serialize
from homarus.core.errors import ConfigError

Put = Callable[..., Path]


def refused(paths: Paths, env: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(paths, env or {})
    return caught.value


def test_load_missing_file_is_an_empty_config(paths: Paths) -> None:
    loaded = load_config(paths, {"A": "1"})
    assert not loaded.exists
    assert (loaded.raw, loaded.source, loaded.warnings) == ({}, "", ())
    assert loaded.config.agents.defaults.timeout_seconds == 600
    assert loaded.env == {"A": "1"}


def test_load_returns_the_hash_of_the_text(paths: Paths, put: Put) -> None:
    text = "// hi\n{ agents: { defaults: { workspace: '~/w', }, } }"
    put(text)
    loaded = load_config(paths, {})
    assert loaded.exists
    assert loaded.config.agents.defaults.workspace == "~/w"
    assert loaded.source == text
    assert loaded.hash == hashlib.sha256(text.encode()).hexdigest()


def test_load_accepts_a_byte_order_mark(paths: Paths, put: Put) -> None:
    put("\ufeff{logging: {level: 'debug'}}")
    assert load_config(paths, {}).config.logging.level == "debug"


def test_load_raw_keeps_variables_and_config_has_values(paths: Paths, put: Put) -> None:
    put("{models: {providers: {x: {apiKey: '${KEY}'}}}}")
    loaded = load_config(paths, {"KEY": "s3"})
    assert loaded.raw["models"]["providers"]["x"]["apiKey"] == "${KEY}"
    assert loaded.config.models.providers["x"].api_key == "s3"
    assert "s3" not in repr(loaded)


def test_env_precedence_is_process_then_file_then_config(paths: Paths, put: Put) -> None:
    put("A=file\nB=file\nbad line\n", ".env")
    put(
        "{env: {vars: {A: 'config', B: 'config', C: 'config'}},"
        " tools: {deny: ['${A}', '${B}', '${C}']}}"
    )
    loaded = load_config(paths, {"A": "process"})
    assert loaded.config.tools.deny == ("process", "file", "config")
    assert {key: loaded.env[key] for key in "ABC"} == {"A": "process", "B": "file", "C": "config"}
    assert loaded.warnings == ("~/.openclaw/.env:3: not NAME=value, skipped",)


def test_load_unset_variable_error_has_its_line(paths: Paths, put: Put) -> None:
    file = put("{\n models: {providers: {x: {\n  apiKey: '${NOPE}'}}}}")
    error = refused(paths)
    assert (error.file, error.line, error.key) == (str(file), 3, "models.providers.x.apiKey")
    assert "NOPE" in error.reason


def test_load_unset_variable_in_choice_gives_one_error(paths: Paths, put: Put) -> None:
    put("{logging: {level: '${LEVEL}'}}")
    assert len(examine_config(paths, {}, "{logging: {level: '${LEVEL}'}}").errors) == 1
    assert load_config(paths, {"LEVEL": "warn"}).config.logging.level == "warn"


def test_load_unknown_key_error_has_line_and_closest(paths: Paths, put: Put) -> None:
    file = put("{\n  agents: {\n    defaults: {\n      workspce: 'x' } } }")
    error = refused(paths)
    assert (error.file, error.line) == (str(file), 4)
    assert error.key == "agents.defaults.workspce"
    assert error.fix == "did you mean workspace?"


def test_load_several_errors_counts_the_others(paths: Paths, put: Put) -> None:
    put("{a1: 1, b1: 2, c1: 3}")
    assert "2 more: homarus config validate" in refused(paths).fix


def test_load_error_in_legacy_section_names_that_section(paths: Paths, put: Put) -> None:
    put("{\n agent: {\n  timeoutSeconds: 'x'},\n agents: {defaults: {workspace: 'y'}}}")
    error = refused(paths)
    assert (error.line, error.key) == (3, "agent.timeoutSeconds")


def test_load_unimplemented_keys_give_one_warning(paths: Paths, put: Put) -> None:
    put("{canvasHost: {enabled: true}, channels: {telegram: {}, zalo: {}}, talk: {}}")
    (warning,) = load_config(paths, {}).warnings
    groups = ("canvasHost (there is no canvas)", "channels.zalo (the channel ", "talk (nothing ")
    assert all(f" {each}" in warning for each in groups)


# — includes —


def test_include_is_replaced_by_file_and_siblings_win(paths: Paths, put: Put) -> None:
    put("{agents: {$include: './a.json5', defaults: {workspace: 'mine'}}}")
    put("{defaults: {workspace: 'theirs', timeoutSeconds: 7}, list: [{id: 'a'}]}", "a.json5")
    loaded = load_config(paths, {})
    assert loaded.config.agents.defaults.workspace == "mine"
    assert loaded.config.agents.defaults.timeout_seconds == 7
    assert loaded.raw["agents"]["list"] == [{"id": "a"}]


def test_include_list_merges_in_order_and_joins_lists(paths: Paths, put: Put) -> None:
    put("{$include: ['a.json', 'sub/b.json'], tools: {deny: ['z']}}")
    put("{tools: {profile: 'full', deny: ['x']}}", "a.json")
    put("{$include: '../c.json', tools: {profile: 'coding', deny: ['y']}}", "sub/b.json")
    put("{logging: {level: 'debug'}}", "c.json")
    assert read_raw(paths) == {
        "tools": {"profile": "coding", "deny": ["x", "y", "z"]},
        "logging": {"level": "debug"},
    }


def test_include_may_be_a_list_or_a_value(paths: Paths, put: Put) -> None:
    put("{agents: {list: {$include: 'l.json'}}}")
    put("[{id: 'a'}]", "l.json")
    assert load_config(paths, {}).config.agents.list[0].id == "a"


def test_include_error_names_the_included_file(paths: Paths, put: Put) -> None:
    put("{agents: {$include: 'a.json5'}}")
    file = put("{\n defaults: {\n  maxConcurrent: 0}}", "a.json5")
    error = refused(paths)
    assert (error.file, error.line) == (str(file), 3)
    put("{\n defaults: {{}}", "a.json5")
    error = refused(paths)
    assert (error.file, error.line) == (str(file), 2)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{a: {$include: 'gone.json'}}", "no file gone.json: openclaw.json → gone.json"),
        ("{$include: 5}", "expected a file name"),
        ("{$include: ['a.json', 5]}", "expected a file name"),
        ("{$include: ''}", "expected a file name"),
        ("{$include: 'openclaw.json'}", "includes itself: openclaw.json → openclaw.json"),
        ("{$include: 'loop.json'}", "includes itself: openclaw.json → loop.json → openclaw.json"),
        ("{a: {$include: 'list.json', b: 1}}", "includes no object"),
        ("{$include: 'list.json'}", "must be one object"),
        ("{$include: '.'}", "is a directory"),
        ("{$include: 'a\\u0000.json'}", "NUL"),
    ],
)
def test_include_invalid_raises_config_error(
    paths: Paths, put: Put, config: str, says: str
) -> None:
    put("{}", "a.json")
    put("[1]", "list.json")
    put("{$include: './openclaw.json'}", "loop.json")
    put(config)
    assert says in str(refused(paths))


def test_include_error_has_key_and_line(paths: Paths, put: Put) -> None:
    file = put("{\n agents: {\n  $include: 'gone.json'}}")
    error = refused(paths)
    assert (error.file, error.line, error.key) == (str(file), 3, "agents.$include")


def test_include_depth_is_limited_to_ten(paths: Paths, put: Put) -> None:
    put("{$include: '1.json'}")
    for number in range(1, 10):
        put(f"{{$include: '{number + 1}.json'}}", f"{number}.json")
    put("{logging: {level: 'debug'}}", "10.json")
    assert load_config(paths, {}).config.logging.level == "debug"
    put("{$include: '11.json'}", "10.json")
    put("{}", "11.json")
    assert "more than 10 includes deep" in refused(paths).reason


def test_include_total_size_is_limited(paths: Paths, put: Put) -> None:
    put("{$include: ['1.json']}")
    for number in range(1, 9):
        names = ", ".join([f"'{number + 1}.json'"] * 20)
        put(f"{{$include: [{names}], x: '{'y' * 100_000}'}}", f"{number}.json")
    put("{}", "9.json")
    assert "too large together" in refused(paths).reason


def test_include_nesting_depth_is_limited(paths: Paths, put: Put) -> None:
    put("{a:" * 90 + "{$include: '1.json'}" + "}" * 90)
    put("{a:" * 90 + "1" + "}" * 90, "1.json")
    assert "deeper than 100" in refused(paths).reason


def test_include_of_linked_file_raises_config_error(paths: Paths, put: Put) -> None:
    outside = put("{logging: {level: 'debug'}}", "../elsewhere.json")
    put("{$include: 'a.json'}")
    (paths.state / "a.json").symlink_to(outside)
    assert "is a link" in str(refused(paths))
    (paths.state / "a.json").unlink()
    os.link(outside, paths.state / "a.json")
    assert "is a link, or has another name elsewhere" in str(refused(paths))
    outside.unlink()
    assert load_config(paths, {}).config.logging.level == "debug"


# — hostile files —


def test_load_directory_raises_config_error(paths: Paths) -> None:
    paths.config.mkdir()
    assert "is a directory" in str(refused(paths))


def test_load_named_pipe_does_not_block(paths: Paths) -> None:
    os.mkfifo(paths.config)
    assert "not a file" in str(refused(paths))


def test_load_dangling_link_raises_config_error(paths: Paths) -> None:
    paths.config.symlink_to(paths.state / "gone")
    assert "points to nothing" in str(refused(paths))


def test_load_link_loop_raises_config_error(paths: Paths) -> None:
    paths.config.symlink_to(paths.config)
    assert "cannot be read" in str(refused(paths))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_load_unreadable_file_raises_config_error(paths: Paths, put: Put) -> None:
    put("{}").chmod(0)
    assert "cannot be read: Permission denied" in str(refused(paths))


def test_load_huge_file_raises_config_error(paths: Paths) -> None:
    with paths.config.open("wb") as file:
        file.truncate(100 << 20)
    assert "larger than a config can be" in str(refused(paths))


def test_load_invalid_utf8_error_has_its_line(paths: Paths) -> None:
    paths.config.write_bytes(b"{\n a: '\xff'}")
    error = refused(paths)
    assert error.line == 2
    assert "UTF-8" in error.reason


@pytest.mark.parametrize("text", ["", "[]", "5", "null", "{a:1,a:2}", "{a: NaN}", "[" * 99999])
def test_load_non_object_raises_config_error(paths: Paths, put: Put, text: str) -> None:
    put(text)
    error = refused(paths)
    assert error.file == str(paths.config)
    assert error.line == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["agents", "agent", "models", "tools", "env", "channels", "$include", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(-9, 9) | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["defaults", "list", "id", "providers", "vars", "x", "model"]),
                    inner,
                    max_size=3,
                )
            ),
        ),
        max_size=4,
    )
)
def test_load_any_tree_is_accepted_or_config_error(paths: Paths, tree: dict[str, object]) -> None:
    with suppress(ConfigError):
        examined = examine_config(paths, {}, serialize(tree))
        assert (examined.config is None) == bool(examined.errors)
