"""Files of `gossamer topology`: a certificate or a sweep as JSON and CSV, with its picture."""

from dataclasses import asdict
from pathlib import Path

from gossamer.files import write_atomically
from gossamer.report.agent_graph import draw_sweep, draw_topology
from gossamer.report.csv_tables import write_csv
from gossamer.runs.documents import to_json
from gossamer.runs.new_folders import create
from gossamer.runs.topologies import CertifiedTopology
from gossamer.topology import Sweep


def save_topology(folder: Path, made: CertifiedTopology) -> None:
    """Write topology.json and topology.png into a new folder."""
    create(folder)
    write_atomically(folder / "topology.json", (to_json(made.to_dict()) + "\n").encode())
    draw_topology(
        folder / "topology.png", made.certificate, made.shared_edges, title=made.name, relays=bool(made.routes.paths)
    )


def save_sweep(folder: Path, sweep: Sweep) -> None:
    """Write sweep.json, sweep.csv and sweep.png into a new folder."""
    create(folder)
    write_atomically(folder / "sweep.json", (to_json(sweep.to_dict(), indent=2) + "\n").encode())
    write_csv(folder / "sweep.csv", [asdict(point) for point in sweep.points])
    draw_sweep(folder / "sweep.png", sweep)
