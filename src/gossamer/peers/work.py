"""What a peer does in a run: its training; and before it, where no one has cut its share, the planning of that.

Planning is step 0 of the protocol between neighbours, and training step t its step t + 1. So an agent that dies while
sites plan rejoins like any other, and all go back to the planning or, if everyone has its share, to a checkpoint.
"""

from collections.abc import Generator
from pathlib import Path
from typing import Protocol

import torch

from gossamer.agents.exchange import Inbox, Phase
from gossamer.agents.planning import plan_site, planned_shapes
from gossamer.agents.share import Share
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, make_private, write_atomically
from gossamer.generators import delegate
from gossamer.peers.checkpoints import Disk, Ledger
from gossamer.peers.metrics import Records
from gossamer.peers.program import begin, make_schedule, tagged
from gossamer.peers.protocol.config import Store
from gossamer.peers.protocol.exchanges import Planned, Program, Slot
from gossamer.peers.protocol.wire import Position, RefusedError
from gossamer.peers.shards.shard import Shard, checkpoints_to_keep, read_shard, write_shard
from gossamer.peers.shards.sites import SiteShard, fingerprint
from gossamer.runs.deployment import host_of_settings, network_for
from gossamer.runs.shares import MANIFEST
from gossamer.runs.tensors import write_tensors


class Work(Protocol):
    """What a member of the network is given to do."""

    @property
    def first(self) -> int:
        """The protocol's step at which training begins."""

    @property
    def keep(self) -> int:
        """Checkpoints of an agent, at most."""

    @property
    def largest(self) -> int:
        """Bytes of the largest message."""

    @property
    def store(self) -> Store: ...

    def program(self, step: int) -> Program: ...

    def schedule(self, position: Position) -> Slot | None: ...


class Training:
    """From a share that was cut."""

    first = 0

    def __init__(self, shard: Shard, kept: Path, records: Records) -> None:
        self._settings, self._kept, self._records = shard.settings, kept, records
        self._host = host_of_settings(shard.share, shard.settings)
        self._schedule = make_schedule(self._host, shard.settings)
        self.keep = shard.keep
        self.largest = self._schedule.largest * shard.settings.torch_dtype.itemsize
        self.store = Disk(kept, shard.keep, self._host.params, self._host.state)

    def program(self, step: int) -> Program:
        yield from begin(self._host, self._settings, self.store, step, self._records.add)
        write_tensors(self._kept / "weights.safetensors", self.store.load(self._settings.steps)[0], PRIVATE)

    def schedule(self, position: Position) -> Slot | None:
        return self._schedule(position)


class PlannedTraining(Ledger):
    """From what a site knows alone; the shard that comes out of the planning lies in the folder `planned`."""

    first = 1

    def __init__(self, shard: SiteShard, kept: Path, records: Records) -> None:
        super().__init__(kept)
        self._shard, self._site, self._records = shard, shard.site, records
        self._slots: list[Slot] = [
            ("site", str(Phase.PLANNING), index, torch.float64, {link.sender: shape for link, shape in shapes.items()})
            for index, shapes in enumerate(planned_shapes(self._site))
        ]
        diameter = max(1, shard.membership.num_agents - 1)  # of the agents, at most
        self.keep = 1 + checkpoints_to_keep(diameter, shard.settings)
        self.largest = _largest(shard)
        self.store = self
        self._training: Training | None = None
        if (self._planned / MANIFEST).is_file():
            self._check_origin()
            self._training = Training(self._read(), kept, records)

    def steps(self) -> list[int]:
        """What can be restored: the planning, and everything after it once it is done."""
        later = [] if self._training is None else self._training.store.steps()
        return [0, *(self.first + step for step in later)]

    def discard(self, diverged: int, begun: int) -> None:
        """Give checkpoints of the training up."""
        if self._training is not None:
            self._training.store.discard(diverged - self.first, max(0, begun - self.first))

    def program(self, step: int) -> Program:
        if step == 0:
            self._forget()
            share, diameter = yield from tagged("site", 0, plan_site(self._site))
            self._training = Training(self._write(share, diameter), self.folder, self._records)
        if self._training is None:
            raise AssertionError("a step after the planning without its outcome")
        yield from _later(self._training.program(max(0, step - self.first)), self.first)

    def schedule(self, position: Position) -> Slot | None:
        step, slot = position
        if step == 0:
            return self._slots[slot] if slot < len(self._slots) else None
        if self._training is None:
            raise RefusedError("early", "this site has not planned yet")
        return self._training.schedule((step - self.first, slot))

    @property
    def _planned(self) -> Path:
        return self.folder / "planned"

    def _check_origin(self) -> None:
        """A plan of other data or settings is not this site's."""
        origin = self._planned / "origin"
        if not origin.is_file() or origin.read_bytes() != fingerprint(self._shard).encode():
            raise GossamerError(
                f"{self.folder} belongs to other data or settings than this site's shard; give the run another name at "
                "every site, or move the folder away to let all agents begin anew"
            )

    def _read(self) -> Shard:
        try:
            return read_shard(self._planned)
        except GossamerError as error:
            raise GossamerError(
                f"the plan in {self._planned} is damaged ({error}); remove that folder, and all agents plan anew"
            ) from None

    def _forget(self) -> None:
        """Before all plan anew: whoever dies meanwhile must not come back with a plan that the others have left."""
        self._training = None
        (self._planned / MANIFEST).unlink(missing_ok=True)

    def _write(self, share: Share, diameter: int) -> Shard:
        shard, settings = self._shard, self._shard.settings
        keep = checkpoints_to_keep(diameter, settings)
        made = Shard(shard.membership, share, settings, keep)
        make_private(self._planned)
        write_atomically(self._planned / "origin", fingerprint(shard).encode(), PRIVATE)
        write_shard(self._planned, made)
        return made


def _later(program: Program, by: int) -> Program:
    """The same program, so many steps later."""

    def shift(planned: Planned) -> Generator[Planned, Inbox, Inbox]:
        plan, step, outbox = planned
        return (yield plan, step + by, outbox)

    return delegate(program, shift)


def _largest(shard: SiteShard) -> int:
    """Bytes that no message exceeds: weights, rows of all border vertices, or what agents tell each other of all."""
    data, site = shard.data, shard.site
    network = network_for(int(data.features.shape[-1]), data.num_outputs, shard.settings)
    border = max((len(site.beyond(z)) for z in site.neighbours), default=0)
    rows = border * max(layer.outputs for layer in network.layers) * (data.batch or 1)
    told = max(shape[0] for shapes in planned_shapes(site) for shape in (*shapes.values(), (1,)))
    compressed = shard.settings.compression.payload(network.shapes(), 8)  # the places of many topk take more than all
    return max(compressed, 8 * max(network.num_parameters, rows, told))
