"""Files of secrets: private, whole, of the right agents, never shown; a run with them resumes to the same bits."""

import itertools
import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

import gossamer
from gossamer.agents.salts import SECRET_BYTES
from gossamer.errors import GossamerError
from gossamer.runs.secret_files import SECRETS_FILE, make_secrets, read_secrets, take_own_secret, write_secrets
from gossamer.runs.stored_settings import read_stored_settings
from gossamer.runs.tensors import read_tensors

SHORT: dict[str, Any] = {"agents": 3, "hidden": 4, "steps": 6, "evaluate_every": 2, "checkpoint_every": 2,
                         "baselines": False, "boundary_bits": 8}  # fmt: skip


def test_secrets_are_written_privately_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / SECRETS_FILE
    secrets = make_secrets(range(12))
    assert {len(secret) for secret in secrets.by_agent.values()} == {SECRET_BYTES}
    assert len(set(secrets.by_agent.values())) == 12
    assert make_secrets(range(12)) != secrets
    write_secrets(path, secrets)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secrets(path, range(12)) == secrets


def test_an_agent_keeps_the_secret_of_its_first_start(tmp_path: Path) -> None:
    first = take_own_secret(tmp_path, 4)
    assert take_own_secret(tmp_path, 4) == first
    with pytest.raises(GossamerError, match="should hold the secrets of agent 3, found those of 1"):
        take_own_secret(tmp_path, 3)


def test_a_file_that_does_not_fit_is_told_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / SECRETS_FILE
    secret = "ab" * 31 + "xy"
    for content, message in (
        ({"format": 1, "secrets": {"0": secret, "1": secret}}, "should have 64 hexadecimal digits"),
        ({"format": 1, "secrets": {"0": secret}}, "secrets of agents 0 to 1, found those of 1"),
        ({"format": 1, "secrets": [secret]}, "secrets of agents 0 to 1, found none"),
        ({"format": 9, "secrets": {"0": secret}}, "format version 1, found 9"),
    ):
        path.write_text(json.dumps(content))
        path.chmod(0o600)
        with pytest.raises(GossamerError, match=message) as told:
            read_secrets(path, range(2))
        assert "abab" not in str(told.value)
    path.chmod(0o644)
    with pytest.raises(GossamerError, match="can be read by others; do: chmod 600"):
        read_secrets(path, range(2))
    with pytest.raises(GossamerError, match=r"cannot read the secrets .*gossamer launch writes them"):
        read_secrets(tmp_path / "nowhere", range(2))


def test_a_run_with_secrets_resumes_to_the_same_bits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = make_secrets(range(3))
    write_secrets(tmp_path / SECRETS_FILE, secrets)
    graph = gossamer.load("digits")
    whole = gossamer.train(graph, secrets=tmp_path / SECRETS_FILE, **SHORT)
    calls = itertools.count()
    out = tmp_path / "run"
    gossamer.train(graph, secrets=tmp_path / SECRETS_FILE, out=out, should_stop=lambda: next(calls) >= 3, **SHORT)
    assert stat.S_IMODE((out / SECRETS_FILE).stat().st_mode) == 0o600
    resumed = gossamer.resume(out, graph=graph)
    public = gossamer.train(graph, **SHORT)
    for name, part in whole.run.host.params.items():
        assert torch.equal(resumed.run.host.params[name], part)
        assert not torch.equal(public.run.host.params[name], part)
    assert read_tensors(out / "weights.safetensors").keys() == whole.run.host.params.keys()
    for path in out.iterdir():
        shown = path.read_bytes() + repr(resumed.run).encode() + caplog.text.encode()
        for secret in secrets.by_agent.values():
            assert path.name == SECRETS_FILE or (secret not in shown and secret.hex().encode() not in shown)


def test_secrets_and_public_randomness_exclude_each_other(tmp_path: Path) -> None:
    write_secrets(tmp_path / SECRETS_FILE, make_secrets(range(3)))
    with pytest.raises(GossamerError, match="give one or the other"):
        gossamer.train("digits", secrets=tmp_path / SECRETS_FILE, public_randomness=True, **SHORT)


def test_settings_from_before_there_were_secrets_go_on_without() -> None:
    assert read_stored_settings({"agents": 3}, "shard.json").public_randomness
    assert not read_stored_settings(gossamer.Settings().model_dump(), "shard.json").public_randomness


def test_a_run_that_has_lost_its_secrets_is_not_resumed(tmp_path: Path) -> None:
    write_secrets(tmp_path / SECRETS_FILE, make_secrets(range(3)))
    gossamer.train("digits", out=tmp_path / "run", secrets=tmp_path / SECRETS_FILE, **SHORT)
    (tmp_path / "run" / SECRETS_FILE).unlink()
    with pytest.raises(GossamerError, match="cannot read the secrets"):
        gossamer.resume(tmp_path / "run", steps=8)


def test_a_private_run_that_has_lost_its_secret_does_not_go_on(tmp_path: Path) -> None:
    take_own_secret(tmp_path, 4, private=True)
    (tmp_path / "secrets.json").unlink()
    take_own_secret(tmp_path, 4, private=True)  # nothing was released yet
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "checkpoint-0.safetensors").touch()
    (tmp_path / "secrets.json").unlink()
    with pytest.raises(GossamerError, match="would spend more than the budget"):
        take_own_secret(tmp_path, 4, private=True)
    assert not (tmp_path / "secrets.json").exists()
