"""--log-level decides what is logged on standard error."""

import logging
import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from gossamer.cli import COMMANDS, app
from gossamer.commands.logs import configure


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    logger = logging.getLogger("gossamer")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.level, logger.propagate, logger.handlers[:] = before


def test_lines_have_a_time_and_a_level_and_come_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure("debug")
    configure("warning")
    log = logging.getLogger("gossamer.somewhere")
    log.info("too little")
    log.warning("step %d", 7)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:,]+ WARNING gossamer.somewhere: step 7\n", capsys.readouterr().err)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("keys", "docs", "new")])
def test_commands_that_run_something_have_a_log(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--log-level", "loud"])
    assert done.exit_code == 2
    assert "'loud' is not one of 'debug', 'info', 'warning', 'error'" in " ".join(done.stderr.replace("│", " ").split())
