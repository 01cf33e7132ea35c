"""Reports of runs: every section, whatever the run is called, in few bytes, the same each time."""

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report.html.made_runs import HOSTILE, lengthen, reproduce_fake, train_labels, train_small, train_values

from gossamer.auditing import AuditOptions, audit_run
from gossamer.errors import GossamerError
from gossamer.machine import as_size
from gossamer.reporting import write_report

SECTIONS = ["Summary", "Curves", "Agents", "Topology's certificate", "Messages", "Settings", "How to reproduce"]


class Reader(HTMLParser):
    """Text, tags and addresses of a page; the text of scripts and styles apart."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.data: list[str] = []
        self._inside = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag if tag in ("script", "style") else ""
        if tag == "script" and ("type", "application/json") in attrs:
            self._inside = "data"
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset")]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "data":
            self.data.append(data)
        elif not self._inside:
            self.text += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_small(tmp_path_factory.mktemp("runs") / "one")


def check_alone(page: Reader) -> None:
    """Nothing is loaded, and no text of a run is markup."""
    assert not [one for one in page.addresses if not one.startswith(("#", "data:"))]
    assert not page.handlers
    assert page.tags.count("script") == 1 + len(page.data)
    for text in page.data:
        json.loads(text)


def test_a_classification_has_all_sections_and_its_numbers(run: Path) -> None:
    written = write_report(run)
    page = Reader(written.path)
    check_alone(page)
    assert written.path == run / "report.html"
    assert set(SECTIONS) | {"Confusion matrix"} == set(written.sections)
    summary = json.loads((run / "run.json").read_text())["summary"]
    for model in ("distributed", "centralised", "graphless"):
        assert f"{100 * summary[model]['test']['accuracy']:.1f}\N{NO-BREAK SPACE}%" in page.text
    assert not re.search(r"\d%", page.text)
    assert "Loss over the steps: drawn where scripts may run" in page.text
    assert "3 agents and 3 links" in page.text
    assert f"{summary['messages']['paper']['rows']:,}" in page.text
    assert "gossamer train digits --agents 3 --hidden 8 --steps 6 --evaluate-every 2" in page.text
    assert "points higher than" in page.text or "points lower than" in page.text or "the same as" in page.text


def test_the_confusion_matrix_has_every_test_vertex_once(run: Path) -> None:
    text = write_report(run).path.read_text()
    table = text[text.index("Test vertices: rows are actual classes") :].partition("</table>")[0]
    counts = [int(found) for found in re.findall(r"% of the row\">(\d+)<", table)]
    assert len(counts) == 100
    right = sum(counts[11 * c] for c in range(10))
    accuracy = json.loads((run / "run.json").read_text())["summary"]["distributed"]["test"]["accuracy"]
    assert right / sum(counts) == pytest.approx(accuracy)


def test_bytes_of_agents_add_up_to_those_of_the_run(run: Path) -> None:
    from gossamer.report.html.agents_part import count_traffic
    from gossamer.report.html.facts import read_run_facts

    facts = read_run_facts(run)
    out, back, degree = count_traffic(facts, 3)
    assert facts.messages is not None
    assert sum(out.values()) == sum(back.values()) == facts.messages.total_bytes
    assert all(degree[k] for k in range(3))


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    first = write_report(run, out=tmp_path / "a" / "first.html").path.read_bytes()
    assert write_report(run, out=tmp_path / "a" / "first.html").path.read_bytes() == first


def test_real_values_have_errors_in_place_of_confusions(tmp_path: Path) -> None:
    folder = train_values(tmp_path / "values")
    written = write_report(folder)
    page = Reader(written.path)
    check_alone(page)
    assert "Errors" in written.sections
    assert "mean absolute" in page.text
    assert not re.search(r"(^|[^\w.])-\d", "".join(re.findall(r"<td[^>]*>([^<]*)</td>", written.path.read_text())))
    assert any('"marks":true' in text for text in page.data)


def test_several_labels_a_vertex_are_counted(tmp_path: Path) -> None:
    written = write_report(train_labels(tmp_path / "labelled"))
    page = Reader(written.path)
    check_alone(page)
    assert "Labels" in written.sections
    assert HOSTILE in page.text
    table = written.path.read_text().partition("Test vertices with each label</caption>")[2].partition("</table>")[0]
    counts = [int(found) for found in re.findall(r"<td class=\"n\">(\d+)</td>", table)]
    assert [sum(counts[:4]), sum(counts[4:])] == [13, 13]


def test_without_the_data_set_the_page_says_what_is_missing(tmp_path: Path) -> None:
    folder = train_values(tmp_path / "values")
    (tmp_path / "line.npz").unlink()
    written = write_report(folder)
    text = Reader(written.path).text
    assert "Predictions" in written.sections
    assert text.count("could not be loaded when this page was written") == 2
    assert "Agents' scores and labels are missing" in text


def test_an_audit_is_found(run: Path) -> None:
    audit_run(run, AuditOptions(curious=[1], attack=False))
    written = write_report(run)
    text = Reader(written.path).text
    content = (run / "run.json").read_text()
    longer = json.loads(content)
    longer["settings"]["steps"] = 9
    (run / "run.json").write_text(json.dumps(longer))
    assert "Audited at step 6 of 9" in Reader(write_report(run).path).text
    (run / "run.json").write_text(content)
    (run / "audit.json").unlink()
    assert "What the audit found" in written.sections
    assert "Algebra: over 6 steps" in text
    assert "Audited at step" not in text
    assert f"gossamer audit {run} --observer 1 --no-attack" in text
    assert "up to rounding" in text
    assert "What the audit found" not in write_report(run).sections


def test_hostile_names_are_text(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=alert(2)>"
    shutil.copytree(run, folder)
    content = json.loads((folder / "run.json").read_text())
    content["data"] |= {"name": HOSTILE, "class_names": [f"{HOSTILE}{c}" for c in range(10)]}
    content["settings"]["dataset"] = HOSTILE
    content["versions"]["numpy"] = HOSTILE
    (folder / "run.json").write_text(json.dumps(content))
    for others in ([], [folder, run]):
        page = Reader(write_report(folder, others, tmp_path / "page.html").path)
        check_alone(page)
        assert HOSTILE in page.text
        assert folder.name in page.text
        assert "img" not in page.tags


def test_a_run_that_goes_on_is_reported_as_such(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "going on"
    shutil.copytree(run, folder)
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**content, "complete": False, "step": 4, "summary": {}}))
    (folder / "weights.safetensors").unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:-1]) + lines[-1][:20])  # cut off as it is written
    text = Reader(write_report(folder).path).text
    assert "Not finished: 4 of 6 steps" in text
    assert "gossamer train --resume" in text
    assert "holds no weights yet" in text


def test_agents_that_stayed_keep_their_numbers(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(run, folder)
    content = json.loads((folder / "run.json").read_text())
    content["summary"]["memberships"] = [
        {"number": 0, "members": [0, 1, 2, 5], "from_step": 0, "seconds": 1.0, "stopped": 0.0},
        {"number": 1, "members": [0, 2, 5], "from_step": None, "seconds": None, "stopped": None},
    ]
    (folder / "run.json").write_text(json.dumps(content))
    written = write_report(folder)
    assert "Memberships and timeline" in written.sections
    page = Reader(written.path)
    spec = next(json.loads(text) for text in page.data if '"links"' in text)
    assert [one["agent"] for one in spec["agents"]] == [0, 2, 5]
    assert {end for one in spec["links"] for end in one["ends"]} == {0, 2, 5}


def test_bytes_are_those_of_a_step_of_the_last_membership_where_agents_left(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "left"
    shutil.copytree(run, folder)
    content = json.loads((folder / "run.json").read_text())
    messages, steps = content["summary"]["messages"], content["settings"]["steps"]
    whole, forward = as_size(messages["total_bytes"]), as_size(steps * messages["forward"]["bytes"])
    before = Reader(write_report(folder).path).text
    assert whole in before
    assert forward in before
    assert "sent in all" in before
    content["summary"]["memberships"] = [
        {"number": 0, "members": [0, 1, 2, 5], "from_step": 0, "seconds": 1.0, "stopped": 0.0},
        {"number": 1, "members": [0, 2, 5], "from_step": 4, "seconds": 2.0, "stopped": 0.5},
    ]
    content["data"]["fingerprint"] = ""
    (folder / "run.json").write_text(json.dumps(content))
    certificate = json.loads((folder / "topology.json").read_text())
    (folder / "topology.json").write_text(json.dumps({**certificate, "gap": None}))
    text = Reader(write_report(folder).path).text
    for absent in (whole, forward, "sent in all", f"{steps} steps", "measured before the first step"):
        assert absent not in text
    assert "Messages of a step of the last membership by phase" in text
    assert "its bytes of a step of the last membership" in text
    assert "of the last membership, as measured before its first step" in text
    assert "asked for at most 0.5" in text
    assert "digits, 4, later 3 agents" in text
    assert "agents4Number of agents" in text
    assert "not stored: vertices left or joined with their agents" in text
    compared = Reader(write_report(folder, [run], tmp_path / "compared.html").path).text
    assert whole in compared
    assert compared.count(whole) == 1


def test_counts_without_the_tracker_say_so(run: Path, tmp_path: Path) -> None:
    text = Reader(write_report(run).path).text
    assert "float32, no tracker" in text
    assert "bytes of a consensus round, without trackers" in text
    alone = train_small(tmp_path / "alone", update="gd", track=False, baselines=False)
    text = Reader(write_report(alone).path).text
    assert "tracker" not in text.partition("How to reproduce")[0].partition("Settings that differ")[0]
    assert "plain float32" in text


def test_links_of_agents_that_there_are_not_are_named(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "strange"
    shutil.copytree(run, folder)
    content = json.loads((folder / "topology.json").read_text())
    (folder / "topology.json").write_text(json.dumps({**content, "added_links": [[0, 7]]}))
    assert "found one of agent 7" in Reader(write_report(folder).path).text


def test_a_damaged_file_is_named_and_the_rest_reported(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(run, folder)
    (folder / "topology.json").write_text("{}")
    (folder / "metrics.jsonl").write_text('{"step": -1}\n')
    text = Reader(write_report(folder).path).text
    assert "topology.json is damaged" in text
    assert "metrics.jsonl" in text


@pytest.mark.slow
def test_twenty_agents_and_ten_thousand_evaluations_stay_small(tmp_path: Path) -> None:
    short = train_small(tmp_path / "short", agents=20, steps=2, evaluate_every=1)
    folder = lengthen(short, tmp_path / "long", 10_000)
    written = write_report(folder)
    assert written.size == written.path.stat().st_size < 1_000_000
    points = [
        one["points"]
        for text in Reader(written.path).data
        for series in json.loads(text).get("choices", {}).values()
        for one in series
    ]
    assert all(len(one) <= 480 for one in points)
    assert all(one[0][0] == 0 and one[-1][0] == 9_999 for one in points)


def test_runs_side_by_side(run: Path, tmp_path: Path) -> None:
    other = train_small(tmp_path / "one", agents=2, baselines=False)
    written = write_report(run, [other], tmp_path / "both.html")
    page = Reader(written.path)
    check_alone(page)
    assert written.sections[0] == "Comparison"
    assert "one (1)" in page.text
    assert "one (2)" in page.text
    table = written.path.read_text().partition("Settings and versions in which they differ")[2].partition("</table>")[0]
    assert set(re.findall(r'<th scope="row">([\w ]+)</th>', table)) == {"agents", "baselines"}


def test_runs_of_other_data_stand_apart(run: Path, tmp_path: Path) -> None:
    values = train_values(tmp_path / "values")
    page = Reader(write_report(run, [values], tmp_path / "both.html").path)
    assert "their scores do not compare" in page.text
    assert "test, against" not in page.text.partition("Summary")[2].partition("Settings and versions")[0]


def test_a_reproduction(tmp_path: Path, run: Path) -> None:
    folder = reproduce_fake(tmp_path / "reproduction")
    written = write_report(folder)
    page = Reader(written.path)
    check_alone(page)
    assert written.sections == ["Verdicts", "Fig. 2, sparsity of C", "Fig. 6, rarer consensus", "How to reproduce"]
    assert page.tags.count("img") == 2
    assert page.text.count("17.5 %") == 2
    assert "not confirmed" in page.text
    assert "Not reproduced in this folder: Fig. 3" in page.text
    assert write_report(folder / "fig2").sections == ["Verdicts", "Fig. 2, sparsity of C", "How to reproduce"]
    with pytest.raises(GossamerError, match="--compare takes run directories"):
        write_report(folder, [run])


def find_commands(path: Path) -> list[str]:
    """Command lines of a page."""
    blocks = re.findall(r"<pre><code>(.*?)</code></pre>", path.read_text(), re.DOTALL)
    return [line for block in blocks for line in html.unescape(block).splitlines()]


def test_a_reproduction_says_how_it_was_made(tmp_path: Path) -> None:
    quick = write_report(reproduce_fake(tmp_path / "rep", quick=True, seeds=3))
    assert find_commands(quick.path) == [
        "gossamer reproduce fig2 --quick --seeds 3 --out rep-again",
        "gossamer reproduce fig6 --quick --seeds 3 --out rep-again",
        f"gossamer report {tmp_path / 'rep'}",
    ]
    text = Reader(quick.path).text
    assert "; quick, with fewer steps and points" in text
    assert "Fig. 3 and Table I, accuracy and loss; Fig. 4, few links; Fig. 5" in text
    part = write_report(tmp_path / "rep" / "fig6")
    assert find_commands(part.path)[0] == "gossamer reproduce fig6 --quick --seeds 3 --out fig6-again"
    full = write_report(reproduce_fake(tmp_path / "full", quick=False, seeds=10))
    assert find_commands(full.path)[0] == "gossamer reproduce fig2 --out full-again"
    old = write_report(reproduce_fake(tmp_path / "old"))
    assert "Add --quick if it was made with it" in Reader(old.path).text
    assert "quick, with fewer" not in Reader(old.path).text


def test_the_command_of_a_page_is_its_own(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run, "-run")
    page = write_report(Path("-run"), [run], Path("page.html"), with_predictions=False).path
    assert find_commands(page)[-1] == f"gossamer report ./-run --compare {run} --out page.html --no-predictions"
    assert find_commands(write_report(run).path)[-1] == f"gossamer report {run}"


def test_one_agent_has_no_ranks_and_threads_are_named(tmp_path: Path) -> None:
    alone = train_small(tmp_path / "alone", agents=1, steps=2, threads=1)
    page = write_report(alone, with_predictions=False).path
    trained, _ = find_commands(page)
    assert trained.startswith("gossamer train digits --agents 1 ")
    assert "--threads 1" in trained
    assert "On two ranks" not in Reader(page).text
    assert "up to rounding" not in Reader(page).text


def test_mistakes_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="is not a run directory"):
        write_report(tmp_path)
    with pytest.raises(GossamerError, match="is a folder; --out takes the file"):
        write_report(run, out=tmp_path)
    with pytest.raises(GossamerError, match=r"expected a file that ends in \.html, such as .*run\.html"):
        write_report(run, out=run / "run.json")
    assert (run / "run.json").read_text().startswith("{")
    (tmp_path / "file").write_text("")
    with pytest.raises(GossamerError, match="give another file with --out"):
        write_report(run, out=tmp_path / "file" / "report.html")


@pytest.mark.parametrize(("lost_edges", "kept"), [("relay", "100"), ("drop", None)])
def test_relayed_edges_are_in_the_certificate(tmp_path: Path, lost_edges: str, kept: str | None) -> None:
    folder = train_small(tmp_path / "line", topology="line", lost_edges=lost_edges, agents=4)
    summary = json.loads((folder / "run.json").read_text())["summary"]
    text = " ".join(Reader(write_report(folder).path).text.replace("\N{NO-BREAK SPACE}", " ").split())
    shares = (100 * summary["edges_kept"], 100 * summary["edges_relayed"])
    assert (shares[0] == 100, shares[1] > 0) == (kept is not None, kept is not None)
    assert re.search(
        rf"data edges kept\s*{shares[0]:.1f} %\s*data edges relayed over agents between\s*{shares[1]:.1f} %", text
    )
