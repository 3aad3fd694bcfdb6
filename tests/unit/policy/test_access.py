from homarus.policy.access import Mention, Roll, is_addressed, is_order, is_passed_over, may_command


def test_is_unaddressed_only_where_mention_is_detectable() -> None:
    assert is_passed_over(Mention())
    assert not is_passed_over(Mention(detectable=False))
    assert not is_passed_over(Mention(required=False))
    assert not is_passed_over(Mention(implied=True)) and is_addressed(Mention(implied=True))


def test_is_unmentioned_command_for_other_bot_is_false() -> None:
    assert is_order(Mention(), is_command=True, may_command=True)
    assert not is_order(Mention(elsewhere=True), is_command=True, may_command=True)
    assert not is_order(Mention(), is_command=True, may_command=False)
    assert not is_order(Mention(), is_command=False, may_command=True)


def test_may_command_ignores_unset_lists() -> None:
    listed, unset = Roll(is_set=True, has_sender=True), Roll(is_set=False, has_sender=True)
    assert may_command([unset, listed], grouped=True)
    assert not may_command([unset], grouped=True) and not may_command([], grouped=True)


def test_may_command_without_access_groups_follows_default() -> None:
    stranger = Roll(is_set=True, has_sender=False)
    assert may_command([stranger], grouped=False)
    assert not may_command([], grouped=False, otherwise="deny")
    assert may_command([], grouped=False, otherwise="configured")
    assert not may_command([stranger], grouped=False, otherwise="configured")
