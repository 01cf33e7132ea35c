"""What an audit leaves in a run directory, and what a report reads of one."""

import json
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer.runs.stored_results import AUDIT_FILE, StoredAudit, StoredSummary, read_stored, write_findings

NEIGHBOUR = {
    "agent": 1,
    "boundary_vertices": 3,
    "alone": 1,
    "in_sums": 2,
    "identifiable_vertices": 1,
    "rank": 4,
    "boundary_labels": 2,
    "labels_alone": 1,
    "weights": "exact",
}
FOUND = {
    "observers": [0],
    "features": 8,
    "steps": 6,
    "attacked_steps": 6,
    "recorded": False,
    "epsilon": None,
    "neighbours": [NEIGHBOUR],
}


def test_findings_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_stored(StoredAudit, tmp_path / AUDIT_FILE) is None
    write_findings(tmp_path, FOUND, ["one", "two"])
    found = read_stored(StoredAudit, tmp_path / AUDIT_FILE)
    assert found is not None
    assert found.findings == ["one", "two"]
    assert found.neighbours[0].in_sums == 2


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [("format", 9, "format version"), ("findings", [1], "findings"), ("observers", [-1], "observers")],
)
def test_damaged_findings_are_refused_by_name(tmp_path: Path, name: str, value: object, complaint: str) -> None:
    write_findings(tmp_path, FOUND, [])
    path = tmp_path / AUDIT_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(GossamerError, match=complaint):
        read_stored(StoredAudit, path)


def test_a_summary_may_lack_everything_and_hold_more(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"later": 1}))
    found = read_stored(StoredSummary, path, versioned=False)
    assert found is not None
    assert found.distributed is None
    assert found.memberships == []
