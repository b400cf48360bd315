"""`launch clean`: remove local runs."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from launcher.commands.card import Command
from launcher.commands.options import argument, flag, moment_of, one_of, option
from launcher.console import counted, human_bytes, say
from launcher.errors import RefusedError, StoppedError


class Clean(Command):
    """Remove local runs, with their outputs and checkpoints.

    Remove the local runs NAME below ./.launch, or all that have ended: logs, outputs, checkpoints and what --keep has kept in
    folders. Runs that have not ended stay. The images of --keep and ./.launch/.warm-pool stay, too.
    """

    example = "clean --before 7d --yes"

    names: tuple[str, ...] = argument(
        nargs=-1, metavar="[NAME]...", shell_complete=one_of("launcher.local.runs:run_names")
    )
    before: datetime | None = option(type=moment_of, metavar="AGE", help="Only runs that began longer ago: 12h, 7d.")
    yes: bool = flag(help="Remove them without a question.")

    def run(self) -> int:
        from launcher.local.providers.directories import remove_tree
        from launcher.local.runs import local_run, local_runs, mount_below

        found = [local_run(name) for name in self.names] if self.names else local_runs()
        chosen = [each for each in found if self.before is None or each["CreationTime"] < self.before]
        running = [each["TrainingJobName"] for each in chosen if each["TrainingJobStatus"] == "InProgress"]
        if self.names and running:
            raise RefusedError(f"{running[0]} has not ended; stop it with Ctrl-C first")
        ended = [each for each in chosen if each["TrainingJobName"] not in running]
        if ended and not self.yes:
            self._ask(ended)
        failed: list[str] = []
        for each in ended:
            folder = Path(each["Folder"])
            try:
                if (mount := mount_below(folder)) is not None:
                    failed.append(
                        f"{mount} is still mounted; unmount it with `fusermount3 -u {mount}`, and clean again"
                    )
                else:
                    remove_tree(folder, failed.append)
            except RecursionError:  # Python follows nested folders by recursion.
                failed.append(f"{folder}: the job has nested folders too deeply; remove it with `rm -rf {folder}`")
        removed = [each["TrainingJobName"] for each in ended if not Path(each["Folder"]).exists()]
        if self.as_json:
            self.print_json(removed)
        for text in failed:
            say(f"warning: {text}", "yellow")
        if not self.as_json:
            say(f"{counted(len(removed), 'run')} removed" if ended else "no local runs to remove in ./.launch")
        return RefusedError.exit_code if failed else 0

    def _ask(self, runs: list[dict[str, Any]]) -> None:
        """Show what would be removed, and ask. Raises StoppedError on no, and RefusedError without a terminal."""
        total = 0
        for each in runs:
            size = 0
            with suppress(RecursionError):  # Only the size is lost.
                size = sum(path.lstat().st_size for path in Path(each["Folder"]).rglob("*") if not path.is_dir())
            total += size
            say(f"{each['TrainingJobName']}  {each['TrainingJobStatus']}  {human_bytes(size)}")
        if not sys.stdin.isatty():
            raise RefusedError("there is no terminal to ask on; --yes removes these runs")
        if not click.confirm(f"Remove {counted(len(runs), 'run')} ({human_bytes(total)})?", err=True):
            raise StoppedError("nothing was removed")
