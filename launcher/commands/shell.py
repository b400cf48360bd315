"""`launch shell SPEC`: a shell where the job would run on this machine."""

from __future__ import annotations

import launcher
from launcher.commands.card import Command
from launcher.commands.effects.local import Local
from launcher.commands.options import SPEC, SpecOptions, option


class Shell(SpecOptions, Command):
    """Open a shell where a job would run on this machine.

    Open a shell in a host of SPEC's job, with its channels, code, requirements and variables, for trying a script: in the
    Python that runs `launch`, or with --local docker or podman in the image. Without a terminal, it reads commands from standard
    input. When the shell ends, everything that was made for it is removed, and its exit code is that of the command.
    """

    example = "shell job.yaml --channel train=./images"
    exit_codes = (0, 2, 3)
    effects = (Local,)

    spec: str = SPEC
    name: str | None = option(help="The job's full name, instead of the spec's.")
    host: str = option(metavar="HOST", default="algo-1", help="The host, such as algo-2; algo-1 by default.")

    def run(self) -> int:
        assert isinstance(self.effect, Local)
        options = self.effect.options(shell=self.host)
        return launcher.run_local(self.plan(self.spec, self.name), options=options).exit_code
