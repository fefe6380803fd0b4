"""`prefold completion`: what a shell needs to complete prefold's commands and options."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

WHERE = {
    "bash": "prefold completion bash > ~/.local/share/bash-completion/completions/prefold",
    "zsh": "prefold completion zsh > ~/.zfunc/_prefold   # a folder of $fpath",
    "fish": "prefold completion fish > ~/.config/fish/completions/prefold.fish",
}


@click.command(epilog="\b\n" + "\n".join(WHERE.values()))
@click.argument("shell", type=click.Choice(list(WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    found = get_completion_class(shell)
    assert found is not None, "click completes the shells that can be chosen"
    root = ctx.find_root()
    name = Path(root.info_name or "prefold").name
    click.echo(found(root.command, {}, name, "_PREFOLD_COMPLETE").source())
