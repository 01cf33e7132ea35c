"""Files of secrets, which decide dropout masks, quantisation noise and the noise of private runs where agents are apart
(agents/salts, agents/secret_streams).

secrets.json    format, and `secrets`: agent number -> 64 hexadecimal digits (0600)

A launch has one with the secrets of all agents, so that its owner can simulate it; a peer has one with its own.
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from gossamer.agents.salts import SECRET_BYTES, Secrets
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, check_private, write_atomically
from gossamer.runs.documents import FORMAT, check_format, read_json, to_json

SECRETS_FILE = "secrets.json"
MAX_SECRETS_BYTES = 1 << 24
_logger = logging.getLogger(__name__)
SECRET_TEXT = re.compile(rf"[0-9a-f]{{{2 * SECRET_BYTES}}}")


def make_secrets(agents: Iterable[int]) -> Secrets:
    """New secrets from the system's random numbers."""
    return Secrets({agent: os.urandom(SECRET_BYTES) for agent in agents})


def write_secrets(path: Path, secrets: Secrets) -> None:
    """Write a file that its owner alone can read."""
    texts = {str(agent): secret.hex() for agent, secret in secrets.by_agent.items()}
    write_atomically(path, (to_json({"format": FORMAT, "secrets": texts}, indent=2) + "\n").encode(), PRIVATE)


def read_secrets(path: Path, agents: Sequence[int]) -> Secrets:
    """The secrets of these agents from a file that has them and no others. Errors show nothing of them."""
    try:
        content = read_json(path, MAX_SECRETS_BYTES)
    except OSError as error:
        raise GossamerError(f"cannot read the secrets {path}: {error.strerror}; gossamer launch writes them") from None
    check_private(path)
    check_format(content, path)
    texts = content.get("secrets")
    expected = {str(agent) for agent in agents}
    if not isinstance(texts, dict) or set(texts) != expected:
        span = f"agents 0 to {len(agents) - 1}" if len(agents) > 1 else f"agent {agents[0]}"
        found = f"those of {len(texts)}" if isinstance(texts, dict) else "none"
        raise GossamerError(f"{path} should hold the secrets of {span}, found {found}; give the file of this run")
    if not all(isinstance(text, str) and SECRET_TEXT.fullmatch(text) for text in texts.values()):
        raise GossamerError(f"{path}: a secret should have {2 * SECRET_BYTES} hexadecimal digits; copy the file again")
    return Secrets({agent: bytes.fromhex(texts[str(agent)]) for agent in agents})


def take_own_secret(folder: Path, agent: int, private: bool = False) -> Secrets:
    """The secret of a peer's agent in the folder of its run: made at the first start, the same after every other.

    A run that has lost it goes on with a new one, and a warning in the log. A `private` one is refused: the steps since
    its last checkpoint would be released a second time, with other noise.
    """
    path = folder / SECRETS_FILE
    if not path.exists():
        begun = any(folder.rglob("checkpoint-*.safetensors"))  # also those of stages, in folders of their own
        if begun and private:
            raise GossamerError(
                f"{folder} has checkpoints of a private run and no {SECRETS_FILE}, which decides its noise: going on "
                "would spend more than the budget. Put the file back, or let all agents begin anew under another run "
                "name"
            )
        if begun:
            _logger.warning(
                "agent %d has checkpoints and no %s: it makes a new secret. The run goes on with other dropout masks "
                "and quantisation noise, and cannot be simulated to the same bits; put the file back and start again "
                "to avoid this",
                agent,
                SECRETS_FILE,
            )
        write_secrets(path, make_secrets([agent]))
    return read_secrets(path, [agent])
