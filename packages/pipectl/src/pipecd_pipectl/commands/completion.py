# SPDX-License-Identifier: Apache-2.0
"""`pipectl completion`: the script that lets a shell complete commands, options and names."""

import click

from pipecd_pipectl.completing import VARIABLE
from pipecd_pipectl.completing.shells import SHELLS, make_script
from pipecd_pipectl.output import echo


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print the script that completes commands and names with TAB.

    Names of applications, deployments, pipeds and the like come from the control plane that the
    command itself would ask; while nobody is signed in there, only commands and options are
    completed.

    Put it where the shell looks for such scripts, and open a new shell:

    \b
      mkdir -p ~/.local/share/bash-completion/completions
      pipectl completion bash > ~/.local/share/bash-completion/completions/pipectl

    \b
      pipectl completion zsh > "${fpath[1]}/_pipectl"

    \b
      pipectl completion fish > ~/.config/fish/completions/pipectl.fish

    To try it in this shell alone: source <(pipectl completion bash)
    """
    echo(make_script(ctx.find_root().command, shell, VARIABLE), nl=False)
