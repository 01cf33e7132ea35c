"""Recorded messages of an agent: what an audit reads of them, in memory and on disk.

recorded/messages-N.safetensors    of the steps from N on, up to the next file's (0600, with a checksum)
    span                           [2]: the first step, and the one after the last whose training is recorded
    received.train.3.forward.0.2   plan, step, phase, exchange, and the agent at the other end of the link; also `sent`
    own.3.layer.0.weight           the agent's own weights before a step, where consensus shows it no others
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from gossamer.agents import Inbox, Link, Outbox
from gossamer.agents.consensus.plain import PlainMethod
from gossamer.agents.exchange import Phase, join_parts
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, make_private
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_file, write_tensors

TRAINING, EVALUATING = "train", "full"  # which plan a message belongs to
RECORD_FOLDER = "recorded"  # in the folder of an agent's run
RECORD_REMEDY = "remove its folder, and the audit simulates the run"
FILE_NAME = re.compile(r"messages-(0|[1-9][0-9]{0,15})\.safetensors")
MESSAGE_NAME = re.compile(
    r"(received|sent)\.(train|full)\.([0-9]{1,16})\.(forward|backward|consensus)\.([0-9]{1,6})\.([0-9]{1,9})"
)
OWN_NAME = re.compile(r"own\.([0-9]{1,16})\.([a-z0-9._]+)")


@dataclass(frozen=True)
class RecordedMessage:
    """One message: at which step, of which plan and exchange, over which link."""

    plan: str
    step: int
    phase: Phase
    index: int
    link: Link
    content: Tensor


@dataclass
class Recording:
    """Messages that the curious agents received and sent, and their own weights before each step."""

    received: list[RecordedMessage] = field(default_factory=list)
    sent: list[RecordedMessage] = field(default_factory=list)
    own: dict[tuple[int, int], dict[str, Tensor]] = field(default_factory=dict)  # by agent and step
    steps: int = 0  # of training, from 0 on

    def note(self, plan: str, step: int, outbox: Outbox, inbox: Inbox) -> None:
        """Keep copies: the memory of messages is used again."""
        where = plan, step, outbox.phase, outbox.index
        self.received += [RecordedMessage(*where, link, inbox[link].clone()) for link in outbox.expected]
        self.sent += [RecordedMessage(*where, link, join_parts(m).clone()) for link, m in outbox.messages.items()]

    def select(self, plan: str, phase: Phase, index: int) -> dict[int, dict[Link, Tensor]]:
        """Received messages of one exchange by step and link; of a long batch axis the first part."""
        found: dict[int, dict[Link, Tensor]] = {}
        for one in self.received:
            if (one.plan, one.phase, one.index) == (plan, phase, index):
                found.setdefault(one.step, {}).setdefault(one.link, one.content)
        return found

    def join(self, other: "Recording") -> "Recording":
        """This recording and that of another agent, for the steps that both have."""
        steps = min(self.steps, other.steps)
        sent, received = self.sent + other.sent, self.received + other.received
        return Recording(received, sent, self.own | other.own, steps).limit(steps)

    def limit(self, steps: int) -> "Recording":
        """The same without what came after so many steps of training and the evaluation behind them."""

        def is_early(one: RecordedMessage) -> bool:
            return one.step < steps or (one.step == steps and one.plan == EVALUATING)

        return replace(
            self,
            received=[one for one in self.received if is_early(one)],
            sent=[one for one in self.sent if is_early(one)],
            own={(agent, step): part for (agent, step), part in self.own.items() if step <= steps},
            steps=min(steps, self.steps),
        )


def shows_weights(settings: Settings) -> bool:
    """Return whether consensus shows an agent the weights of its neighbours as they are."""
    return isinstance(settings.consensus_method, PlainMethod)


def is_audited(settings: Settings, plan: str, step: int, outbox: Outbox) -> bool:
    """Return whether an attack reads these messages; the rest would fill memory and disks."""
    if outbox.phase is Phase.CONSENSUS:
        return shows_weights(settings) and (step == 0 or outbox.index == (1 if settings.tracks else 0))
    return (outbox.phase is Phase.BACKWARD and step == 0) or (outbox.phase is Phase.FORWARD and outbox.index == 0)


def name_message(direction: str, plan: str, step: int, outbox: Outbox, other: int) -> str:
    """Name of a message's array; `other` is the agent at the other end of the link."""
    return f"{direction}.{plan}.{step}.{outbox.phase}.{outbox.index}.{other}"


def write_messages(folder: Path, run: str, agent: int, first: int, end: int, messages: dict[str, Tensor]) -> int:
    """Write the messages of an agent's steps `first` to `end` (excluded), and return the size of the file."""
    make_private(folder)
    path = folder / f"messages-{first}.safetensors"
    write_tensors(path, messages | {"span": torch.tensor([first, end])}, PRIVATE, run=run, agent=str(agent))
    return path.stat().st_size


def list_message_files(folder: Path) -> dict[int, Path]:
    """Files of recorded messages by their first step, ascending."""
    names = ((FILE_NAME.fullmatch(path.name), path) for path in (folder.iterdir() if folder.is_dir() else ()))
    return dict(sorted((int(name[1]), path) for name, path in names if name is not None))


def read_recording(folder: Path, run: str, agent: int) -> Recording:
    """The messages that an agent has recorded in a folder, from step 0 to the first step that is missing.

    Where two files hold a step, which happens after a recovery, the later file counts.
    """
    arrays: dict[str, Tensor] = {}
    end = 0
    for first, path in list_message_files(folder).items():
        found, about = read_file(path)
        if (about.get("run"), about.get("agent")) != (run, str(agent)):
            raise GossamerError(
                f"{path} should hold messages of agent {agent} in the run {run}, found those of agent "
                f"{about.get('agent')} in {about.get('run')!a}; {RECORD_REMEDY}"
            )
        span = found.pop("span", torch.empty(0)).tolist()
        if len(span) != 2 or span[0] != first or span[1] < first:
            raise GossamerError(f"{path} is damaged: its span should begin at step {first}; {RECORD_REMEDY}")
        if first > end:
            break
        arrays |= found
        end = span[1]
    if not arrays:
        raise GossamerError(
            f"{folder} holds no messages of step 0: agent {agent} was started with --record when the run had begun; "
            + RECORD_REMEDY
        )
    recording = Recording(steps=end)
    for name, content in arrays.items():
        _add(recording, agent, name, content, folder)
    return recording


def _add(recording: Recording, agent: int, name: str, content: Tensor, folder: Path) -> None:
    own, message = OWN_NAME.fullmatch(name), MESSAGE_NAME.fullmatch(name)
    if content.is_floating_point() and not bool(content.isfinite().all()):
        raise GossamerError(f"{folder}: {name} holds NaN or infinite numbers; {RECORD_REMEDY}")
    if own is not None:
        recording.own.setdefault((agent, int(own[1])), {})[own[2]] = content
    elif message is None:
        raise GossamerError(f"{folder} is damaged: unknown array {name[:80]!a}; {RECORD_REMEDY}")
    else:
        direction, plan, step, phase, index, other = message.groups()
        ends = (int(other), agent) if direction == "received" else (agent, int(other))
        one = RecordedMessage(plan, int(step), Phase(phase), int(index), Link(*ends), content)
        (recording.received if direction == "received" else recording.sent).append(one)
