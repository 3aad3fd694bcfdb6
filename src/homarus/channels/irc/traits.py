"""The facts about IRC that do not depend on an account."""

from typing import Final

from homarus.core.channel_traits import ChannelTraits

TRAITS: Final = ChannelTraits(
    title="IRC",
    dialect="irc",
    has_caseless_ids=True,
    group_id_prefixes=("#", "&", "+", "!"),
    has_named_rooms=True,
    block_min_chars=300,
    secret_variables=("IRC_PASSWORD", "IRC_NICKSERV_PASSWORD"),
    message_hints=(
        "On IRC a target is #channel or a nick.",
        "IRC shows lines without markup, and floods are refused: write little, and no tables.",
    ),
)
