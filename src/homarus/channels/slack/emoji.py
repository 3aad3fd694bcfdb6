"""The names that Slack has for common emoji: its reactions are named, not drawn."""

import re
from typing import Final

_NAME: Final = re.compile(r"[a-z0-9_'+-]{1,100}(?:::skin-tone-[2-6])?")
_VARIATION: Final = "\ufe0f"
_TABLE: Final = """
👍 +1  👎 -1  👀 eyes  ❤ heart  🔥 fire  🎉 tada  👏 clap  😁 grin  😂 joy  😀 grinning
😃 smiley  😄 smile  🙂 slightly_smiling_face  😉 wink  😍 heart_eyes  🤔 thinking_face
😢 cry  😭 sob  😱 scream  😡 rage  🤯 exploding_head  🥰 smiling_face_with_3_hearts
😎 sunglasses  😅 sweat_smile  🤣 rolling_on_the_floor_laughing  😊 blush  😮 open_mouth
🙏 pray  👌 ok_hand  💯 100  🚀 rocket  ⚡ zap  ✅ white_check_mark  ❌ x  ⚠ warning
❗ exclamation  ❓ question  ⏳ hourglass_flowing_sand  ⌛ hourglass  🤖 robot_face
👋 wave  💪 muscle  🤝 handshake  🙌 raised_hands  🏆 trophy  ⭐ star  🌟 star2
✨ sparkles  💡 bulb  📌 pushpin  📎 paperclip  📝 memo  🔒 lock  🔑 key  🔔 bell
🐛 bug  🦞 lobster  🦀 crab  🍕 pizza  ☕ coffee  🍺 beer  🎂 birthday  🎁 gift
🌈 rainbow  ☀ sunny  🌙 crescent_moon  🐳 whale  🙈 see_no_evil  🤷 shrug  🤦 face_palm
💩 hankey  👻 ghost  💀 skull  💔 broken_heart  💙 blue_heart  💚 green_heart
💛 yellow_heart  💜 purple_heart  🧠 brain  ✍ writing_hand  👉 point_right
👈 point_left  👆 point_up_2  👇 point_down  🆗 ok  🔄 arrows_counterclockwise
🛠 hammer_and_wrench  🔧 wrench  🔍 mag
"""
_WORDS: Final = _TABLE.split()
_NAMES: Final = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))
_EMOJI: Final = {name: emoji for emoji, name in _NAMES.items()} | {
    "thumbsup": "👍", "thumbsdown": "👎", "thinking": "🤔", "poop": "💩",
}  # fmt: skip


def emoji_name(emoji: str) -> str:
    """Return Slack's name of an emoji, or of a name as people write it (`:eyes:`); "" if none."""
    text = emoji.strip().replace(_VARIATION, "")
    if text in _NAMES:
        return _NAMES[text]
    name = text.strip(":").lower() if text.isascii() else ""
    return name if _NAME.fullmatch(name) else ""


def emoji_sign(name: str) -> str:
    """Return the emoji of one of Slack's names; its name in colons where it is not common."""
    plain = name.partition("::")[0]
    return _EMOJI.get(plain) or (f":{plain}:" if plain else "")
