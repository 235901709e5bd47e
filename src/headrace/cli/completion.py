"""`headrace completion`: tab completion for shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

EPILOG = """\b
Examples:
  eval "$(headrace completion bash)"            (in ~/.bashrc)
  eval "$(headrace completion zsh)"             (in ~/.zshrc)
  headrace completion fish > ~/.config/fish/completions/headrace.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete headrace commands."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(context.find_root().command, {}, "headrace", "_HEADRACE_COMPLETE").source())
