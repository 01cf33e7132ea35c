"""`gossamer keys`: a key pair for one agent."""

from pathlib import Path
from typing import Annotated

import typer

from gossamer.commands.common import err, report_errors

EXAMPLES = """[bold]Examples[/]

gossamer keys

gossamer keys --out site-3

gossamer keys --secret site-3/key.secret
"""


@report_errors
def keys(
    out: Annotated[Path, typer.Option(help="Folder for key.secret and key.public.")] = Path("keys"),
    secret: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Make none: print the public key of this secret one.", show_default=False),
    ] = None,
) -> None:
    """Make a key pair: the public key goes to whoever cuts the shards, the secret one stays on this machine.

    Prints the public key, for encryption and signatures. Put key.secret into the agent's shard; only its owner may
    read it.
    """
    from gossamer.files import write_atomically
    from gossamer.peers.network.keys import derive_agent_key, make_agent_keys, read_key, write_secret

    if secret is not None:
        print(derive_agent_key(read_key(secret)))
        return
    public, made = make_agent_keys()
    out.mkdir(parents=True, exist_ok=True)
    write_secret(out / "key.secret", made)
    write_atomically(out / "key.public", (public + "\n").encode())
    print(public)
    err.print(f"written: {out}/key.secret (keep it), {out}/key.public (give it away)", highlight=False)
