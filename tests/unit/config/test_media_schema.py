"""The section `tools.media`: what is obeyed, and what is named as without an effect."""

from typing import Any

from homarus.config.check import check_config
from homarus.config.ignored_settings import reason_without_effect


def test_media_section_of_openclaw_is_accepted_and_its_rest_is_named() -> None:
    entry: dict[str, Any] = {
        "provider": "openai", "model": "m", "capabilities": ["image", "audio"], "type": "cli",
        "command": "whisper", "args": ["x"], "deepgram": {"punctuate": True}, "maxChars": 5,
    }  # fmt: skip
    scope = {"default": "deny", "rules": [{"action": "allow", "match": {"chatType": "dm"}}]}
    media = {
        "models": [entry],
        "concurrency": 3,
        "image": {"enabled": True, "scope": scope, "attachments": {"prefer": "path"}},
        "video": {"enabled": True},
    }
    chosen = {"imageModel": {"primary": "a/b", "fallbacks": ["c/d"]}}
    checked = check_config({"agents": {"defaults": chosen}, "tools": {"media": media}})
    assert checked.problems == () and checked.config
    assert checked.config.agents.defaults.image_model.fallbacks == ("c/d",)
    assert checked.config.tools.media.models[0].max_chars == 5
    assert checked.unbuilt and all(map(reason_without_effect, checked.unbuilt)), checked.unbuilt
    assert "tools.media.video" in checked.unbuilt


def test_media_section_with_a_wrong_value_names_its_place() -> None:
    media = {"image": {"attachments": {"mode": "some"}}, "concurrency": 0}
    problems = check_config({"tools": {"media": media}}).problems
    assert {problem.path[:4] for problem in problems} == {
        ("tools", "media", "image", "attachments"),
        ("tools", "media", "concurrency"),
    }
