from homarus.policy.access import (
    AllowlistMatch,
    MentionState,
    is_addressed,
    is_unaddressed,
    is_unmentioned_command,
    may_command,
)


def test_is_unaddressed_only_where_mention_is_detectable() -> None:
    assert is_unaddressed(MentionState())
    assert not is_unaddressed(MentionState(detectable=False))
    assert not is_unaddressed(MentionState(required=False))
    assert not is_unaddressed(MentionState(implied=True)) and is_addressed(
        MentionState(implied=True)
    )


def test_is_unmentioned_command_for_other_bot_is_false() -> None:
    assert is_unmentioned_command(MentionState(), is_command=True, may_command=True)
    assert not is_unmentioned_command(
        MentionState(elsewhere=True), is_command=True, may_command=True
    )
    assert not is_unmentioned_command(MentionState(), is_command=True, may_command=False)
    assert not is_unmentioned_command(MentionState(), is_command=False, may_command=True)


def test_may_command_ignores_unset_lists() -> None:
    listed, unset = (
        AllowlistMatch(is_set=True, has_sender=True),
        AllowlistMatch(is_set=False, has_sender=True),
    )
    assert may_command([unset, listed], grouped=True)
    assert not may_command([unset], grouped=True) and not may_command([], grouped=True)


def test_may_command_without_access_groups_follows_default() -> None:
    stranger = AllowlistMatch(is_set=True, has_sender=False)
    assert may_command([stranger], grouped=False)
    assert not may_command([], grouped=False, otherwise="deny")
    assert may_command([], grouped=False, otherwise="configured")
    assert not may_command([stranger], grouped=False, otherwise="configured")
