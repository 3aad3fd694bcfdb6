"""The table of categories with an entry point; the report lists the others as missing."""

from tests.attacks import (
    allowlists,
    approvals,
    archives,
    commands,
    fetches,
    frames,
    groups,
    injections,
    keys,
    logs,
    paths,
    patterns,
    restrictions,
    sandboxes,
    senders,
    settings,
    takeovers,
    webhooks,
)
from tests.attacks import origins as doors
from tests.attacks.cases import World

WORLDS: dict[str, World] = {
    "approvals": approvals.world,
    "exec_allowlist": allowlists.world,
    "path_traversal": paths.world,
    "ws_origin_host_auth": doors.world,
    "frames_json": frames.world,
    "session_key": keys.world,
    "redaction_log": logs.world,
    "identity_policy": senders.world,
    "webhook_signature": webhooks.world,
    "prompt_injection": injections.world,
    "client_settings": settings.world,
    "exec_environment": commands.environment_world,
    "exec_question": commands.question_world,
    "group_chats": groups.world,
    "gateway_takeover": takeovers.world,
    "restrictive_settings": restrictions.world,
    "ssrf": fetches.world,
    "regex_dos": patterns.world,
    "sandbox": sandboxes.world,
    "zip_slip": archives.world,
}
