"""`gossamer keys`: a key pair for one agent."""

from pathlib import Path
from typing import Annotated

import typer

from gossamer.commands.common import err, told_plainly
from gossamer.files import write_atomically
from gossamer.runtime.crew import write_secret
from gossamer.runtime.sockets import new_keys

EXAMPLES = """[bold]Examples[/]

gossamer keys

gossamer keys --out site-3
"""


@told_plainly
def keys(
    out: Annotated[Path, typer.Option(help="Folder for key.secret and key.public.")] = Path("keys"),
) -> None:
    """Make a key pair: the public key goes to whoever cuts the shards, the secret one stays on this machine.

    Prints the public key. Put key.secret into the agent's shard; only its owner may read it.
    """
    public, secret = new_keys()
    out.mkdir(parents=True, exist_ok=True)
    write_secret(out / "key.secret", secret)
    write_atomically(out / "key.public", (public + "\n").encode())
    print(public)
    err.print(f"written: {out}/key.secret (keep it), {out}/key.public (give it away)", highlight=False)
