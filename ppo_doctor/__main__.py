"""The entry point: answers `--version` without importing anything heavy, hands everything else to the CLI."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        from ppo_doctor import __version__

        sys.stdout.write(f"ppo-doctor {__version__}\n")
        return
    from ppo_doctor.cli import run

    sys.exit(run())


if __name__ == "__main__":
    main()
