"""`homarus configure`: one section of the onboarding wizard alone."""

from typing import TYPE_CHECKING

import click

from homarus.cli import completion_values
from homarus.cli.command_group import examples
from homarus.cli.onboard import run_wizard
from homarus.cli.wizard_terminal import TerminalPrompter
from homarus.core.errors import UnknownNameError
from homarus.core.text import closest_names

if TYPE_CHECKING:
    from homarus.gateway.wizard.flow import Section


@click.command("configure")
@examples("homarus configure", "homarus configure channels")
@click.argument("section", required=False, shell_complete=completion_values.wizard_sections)
def command(section: str | None) -> None:
    """Repeat one section of the onboarding.

    SECTION is one of model, workspace, channels, gateway, daemon, health.
    """
    from homarus.cli.wizard_services import make_services
    from homarus.gateway.wizard.answers import WizardAnswers
    from homarus.gateway.wizard.flow import SECTIONS, WizardFlow

    flow = WizardFlow(TerminalPrompter(), make_services("configure"), WizardAnswers())
    chosen: Section | None = next((name for name in SECTIONS if name == section), None)
    if section and chosen is None:
        near = closest_names(section, SECTIONS)
        fix = "" if near else f"one of {', '.join(SECTIONS)}"
        raise UnknownNameError("section", section, near, fix=fix)

    async def run() -> None:
        await flow.configure(chosen or await flow.choose_section())

    run_wizard(run, "The configuration is unchanged.")
