"""The command `homarus`: prints the version without imports, else runs `homarus.cli`."""

import sys

from homarus import __version__


def main() -> None:
    """Run the console script."""
    if sys.argv[1:] in (["--version"], ["-V"], ["-v"]):
        sys.stdout.write(f"homarus {__version__}\n")
        return
    from homarus.cli.main import run

    run()


if __name__ == "__main__":
    main()
