"""`homarus`: the version without importing anything, everything else by `homarus.cli`."""

import sys

from homarus import __version__


def main() -> None:
    """The console script."""
    if sys.argv[1:] in (["--version"], ["-V"], ["-v"]):
        sys.stdout.write(f"homarus {__version__}\n")
        return
    from homarus.cli.main import run

    run()


if __name__ == "__main__":
    main()
