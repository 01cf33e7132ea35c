"""The systemd unit: valid, its command is one of this command line, and its exit codes are the peer's."""

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from gossamer.cli import load_command
from gossamer.commands import peer

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "deploy" / "gossamer-peer@.service"


@pytest.fixture
def service() -> dict[str, str]:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return dict(parser["Service"])


def test_the_unit_is_valid(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on this machine")
    command = tmp_path / "gossamer"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    instance = tmp_path / "gossamer-peer@3.service"
    instance.write_text(UNIT.read_text().replace("/opt/gossamer/bin/gossamer", str(command)))
    done = subprocess.run(
        [analyze, "verify", "--man=no", instance], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    about = [line for line in done.stderr.splitlines() if "gossamer" in line]  # unknown keys are told, and no failure
    assert not about


def test_the_command_and_the_options_of_the_example_are_understood(service: dict[str, str]) -> None:
    example = re.search(r"GOSSAMER_OPTIONS=(.+)", UNIT.read_text())
    assert example is not None
    line = service["ExecStart"].replace("$GOSSAMER_OPTIONS", example[1]).replace("%S", "/var/lib").replace("%i", "3")
    program, name, *arguments = line.split()
    assert program.endswith("/bin/gossamer")
    context = load_command(name).make_context(name, arguments)
    assert context.params["folder"] == Path("/var/lib/gossamer/agent-3")
    assert (context.params["serve"], context.params["give_up"]) == (True, 3600.0)


def test_folders_are_the_agents_own_and_where_other_commands_find_them(service: dict[str, str]) -> None:
    text = UNIT.read_text()
    for line in ("Environment=TMPDIR=%t/gossamer/agent-%i", "Environment=MPLCONFIGDIR=%C/gossamer/agent-%i"):
        assert line in text
    assert service["RuntimeDirectory"] == service["StateDirectory"] == service["CacheDirectory"] == "gossamer/agent-%i"
    assert service["StateDirectoryMode"] == service["RuntimeDirectoryMode"] == "0700"
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == service["PrivateTmp"] == "yes"


def test_exit_codes_are_those_of_the_peer(service: dict[str, str]) -> None:
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == str(peer.WITHOUT_AGENT)
    assert service["SuccessExitStatus"] == str(peer.TERMINATED)
    rows = dict(re.findall(r"^\| (\d+) \| .* \| (starts it again|leaves it) \|$", DEPLOYMENT, re.MULTILINE))
    kept = {0, int(service["RestartPreventExitStatus"]), int(service["SuccessExitStatus"])}
    assert {int(code) for code, what in rows.items() if what == "leaves it"} == kept


DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text()


def test_the_page_shows_where_a_wheel_puts_it() -> None:
    assert f"lib/systemd/system/{UNIT.name}" in DEPLOYMENT
    assert f'"deploy/{UNIT.name}" = "lib/systemd/system/{UNIT.name}"' in (ROOT / "pyproject.toml").read_text()
