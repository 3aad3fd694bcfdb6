"""Describe hooks for programs: the payloads of `homarus hooks … --json`, with OpenClaw's keys."""

from homarus.agent.internal_hooks.catalog import FoundHooks
from homarus.agent.internal_hooks.hook import HookTier
from homarus.agent.internal_hooks.hook_status import HookStatus
from homarus.core.message import Json
from homarus.skills.requirements import Requirements


def encode_hooks(found: FoundHooks, *, only_ready: bool = False) -> dict[str, Json]:
    """Return what `hooks list --json` prints."""
    return {
        "workspaceDir": str(found.workspace),
        "managedHooksDir": str(found.managed),
        "hooks": [encode_hook(each) for each in found.hooks if each.is_ready or not only_ready],
        "problems": encode_problems(found),
    }


def encode_hook(status: HookStatus) -> dict[str, Json]:
    """Return what is known of a hook."""
    hook = status.hook
    payload: dict[str, Json] = {
        "name": hook.name,
        "description": hook.description,
        "eligible": status.is_ready,
        "disabled": status.state == "disabled",
        "state": status.state,
        "source": hook.tier.source,
        "bundled": hook.tier is HookTier.BUNDLED,
        "events": list(hook.events),
        "hookKey": hook.key,
        "filePath": str(hook.file),
        "baseDir": str(hook.folder),
        "handlerPath": str(hook.handler),
        "always": bool(hook.metadata.always),
        "requirements": encode_needs(
            Requirements(
                hook.requires.bins,
                hook.requires.any_bins,
                hook.requires.env,
                hook.requires.config,
                hook.metadata.os,
            )
        ),
        "missing": encode_needs(status.missing),
        "reasons": [
            {"state": each.state, "message": each.message, "fix": each.fix}
            for each in status.reasons
        ],
        "notes": list(status.notes),
    }
    optional = {
        "emoji": hook.metadata.emoji,
        "homepage": hook.metadata.homepage,
        "digest": status.files.digest if status.files else "",
    }
    return payload | {key: text for key, text in optional.items() if text}


def encode_needs(found: Requirements) -> dict[str, Json]:
    """Return requirements by OpenClaw's names of their kinds."""
    return {
        "bins": list(found.bins),
        "anyBins": list(found.any_bins),
        "env": list(found.env),
        "config": list(found.config),
        "os": list(found.os),
    }


def encode_problems(found: FoundHooks) -> list[Json]:
    """Return the files and folders that are not used as hooks, each with the reason."""
    return [
        {
            "path": str(problem.path),
            "source": problem.tier.source,
            "message": problem.message,
            "fix": problem.fix,
        }
        for problem in found.problems
    ]
