"""The page of a real run: an agent's process is killed, its mark turns red; it comes back, and so does its colour."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from report.conftest import OpenPage
from report.expectations import expect

pytestmark = pytest.mark.slow
LIMIT = 120_000  # milliseconds for anything that is waited for
COMMAND = (
    "-m gossamer launch digits --assignment uniform --topology complete --no-baselines --hidden 16 --agents 3 "
    "--checkpoint-every 10 --evaluate-every 5 --evict-after 4 --steps 1000000 --script script.toml --out run "
    "--page 127.0.0.1:0"
)
SCRIPT = """
[[event]]
at = 20
kill = 2

[[event]]
at = 40
restart = 2
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The page of a launch whose agent 2 is killed, and started again once the others have gone on without it."""
    (tmp_path / "script.toml").write_text(SCRIPT)
    command = [sys.executable, *COMMAND.split()]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    try:
        said = ""
        while (found := re.search(r"http://\S+", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        reader = threading.Thread(target=process.stderr.read, daemon=True)  # so that the launch never waits for us
        reader.start()
        yield found[0]
        assert process.poll() is None, "the launch ended by itself"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()
        process.stderr.close()


def test_a_killed_peer_turns_red_and_its_return_green(url: str, open_page: OpenPage) -> None:
    page = open_page(url, errors_allowed=("ERR_",))
    marks = [page.locator(f'.mark[data-agent="{agent}"]') for agent in range(3)]
    expect(marks[2]).to_have_attribute("data-state", "missing", timeout=LIMIT)
    red = "rgb(193, 18, 31)"
    expect(marks[2].locator(".diamond")).to_have_css("fill", red)
    expect(marks[2].locator(".diamond")).to_be_visible()
    assert "missing" not in [mark.get_attribute("data-state") for mark in marks[:2]]
    curve = page.locator("#score-chart .lines path")
    before = int(curve.get_attribute("data-points") or 0)
    expect(marks[2]).to_have_attribute("data-state", "training", timeout=LIMIT)
    expect(marks[2].locator(".diamond")).to_be_hidden()
    expect(marks[2].locator(".disc")).to_be_visible()
    page.wait_for_function(
        "before => Number(document.querySelector('#score-chart .lines path').dataset.points) > before", arg=before
    )
    for change in ("\u2212 2", "+ 2"):
        expect(page.locator("#memberships tbody tr", has_text=change).first).to_be_visible(timeout=LIMIT)
    page.locator("#log").get_by_text("agent 2 is missing").first.wait_for()
