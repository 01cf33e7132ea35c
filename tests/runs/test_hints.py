"""Hints know the words of other libraries, and there is none rather than an absurd one."""

import re

import pytest

from gossamer.errors import GossamerError
from gossamer.runs.hints import REMARKS, SYNONYMS, make_hint
from gossamer.runs.settings import Settings, make_settings

KNOWN = tuple(Settings.model_fields)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("lr", "step_size"),
        ("learning_rate", "step_size"),
        ("epochs", "steps"),
        ("num_epochs", "steps"),
        ("max_iter", "steps"),
        ("n_clients", "agents"),
        ("num_agents", "agents"),
        ("clients", "agents"),
        ("optimizer", "update"),
        ("hidden_channels", "hidden"),
        ("hidden_dim", "hidden"),
        ("p", "dropout"),
        ("drop", "dropout"),
        ("batch_size", "batch"),
        ("metric", "score"),
        ("scoring", "score"),
        ("monitor", "score"),
        ("class_weight", "class_weights"),
        ("pos_weight", "class_weights"),
        ("problem_type", "task"),
        ("LR", "step_size"),
        ("agent", "agents"),
        ("topologie", "topology"),
        ("step-sise", "step_size"),
        ("compare", "baselines"),
    ],
)
def test_another_word_for_a_setting(name: str, setting: str) -> None:
    assert make_hint(name, KNOWN) == f"did you mean {setting!r}?"
    with pytest.raises(GossamerError, match=f"unknown setting '{name}'; did you mean '{setting}'"):
        make_settings({name: 1})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num_layers", "'hidden' holds the widths"),
        ("device", "'threads'"),
        ("gpu", "on the CPU"),
        ("sample_weight", "come with the data"),
        ("test_size", "masks come with the data"),
        ("mask", "masks come with the data"),
    ],
)
def test_what_there_is_instead(name: str, text: str) -> None:
    with pytest.raises(GossamerError, match=f"unknown setting '{name}'; .*{text}"):
        make_settings({name: 1})


@pytest.mark.parametrize("name", ["zzz", "verbose", "scheduler", "callbacks", "help", "", "--", "targets"])
def test_none_rather_than_an_absurd_one(name: str) -> None:
    assert make_hint(name, KNOWN) == ""


def test_no_hint_at_what_a_command_has_not() -> None:
    assert make_hint("lr", ("agents", "gap")) == make_hint("device", ("agents", "gap")) == ""


def test_every_hint_is_at_a_setting() -> None:
    named = {setting for remark in REMARKS.values() for setting in re.findall(r"{(\w+)}", remark)}
    assert {*SYNONYMS, *named} - {"out"} <= set(KNOWN)
    words = [word for words in SYNONYMS.values() for word in words.split()]
    assert len({*words, *REMARKS}) == len(words) + len(REMARKS)
    assert not set(words) & set(KNOWN)
