"""The names that settings take are those of the tables, and of what is added to a table from outside."""

from typing import get_args

import pytest

from gossamer import choices
from gossamer.agents.row_codecs import ROW_CODECS
from gossamer.agents.rules import UPDATE_RULES
from gossamer.agents.scores import SCORES
from gossamer.assignment import ASSIGNMENTS
from gossamer.choices import Choices
from gossamer.commands.options import PANELS
from gossamer.data import DATASETS
from gossamer.data.tasks import Task
from gossamer.errors import GossamerError
from gossamer.model.layers import ACTIVATIONS, LAYERS
from gossamer.model.shift import SHIFTS
from gossamer.runs.presets import PRESETS
from gossamer.runs.settings import Settings, make_settings
from gossamer.topology import MISSING_ROWS, MIXING_WEIGHTS, TOPOLOGIES

TABLES = {
    "DATASET_NAMES": tuple(DATASETS),
    "ASSIGNMENT_NAMES": tuple(ASSIGNMENTS),
    "TOPOLOGY_NAMES": tuple(TOPOLOGIES),
    "MIXING_NAMES": tuple(MIXING_WEIGHTS),
    "LAYER_NAMES": tuple(LAYERS),
    "ACTIVATION_NAMES": tuple(ACTIVATIONS),
    "SHIFT_NAMES": ("auto", *SHIFTS),
    "UPDATE_NAMES": tuple(UPDATE_RULES),
    "ROW_CODEC_NAMES": ("none", *ROW_CODECS),
    "PRESET_NAMES": tuple(PRESETS),
    "SCORE_NAMES": ("auto", *SCORES),
}
ALL = {name: value for name, value in vars(choices).items() if isinstance(value, Choices)}


def test_every_list_of_names_is_compared() -> None:
    assert set(ALL) == {
        *TABLES,
        "AGGREGATE_NAMES",
        "COMPRESSION_FORMS",
        "BOUNDARY_BITS",
        "CLASS_WEIGHT_NAMES",
        "CONSENSUS_NAMES",
        "DECAY_NAMES",
        "DTYPE_NAMES",
        "JUMP_NAMES",
        "KEEP_NAMES",
        "LOST_EDGES_NAMES",
        "MEASURE_NAMES",
        "MISSING_NAMES",
        "NORM_NAMES",
        "PRIVACY_FORMS",
        "SEQUENCE_FORMS",
        "TASK_NAMES",
    }


@pytest.mark.parametrize("name", TABLES)
def test_names_are_those_of_the_table(name: str) -> None:
    assert tuple(ALL[name].remarks) == TABLES[name]
    assert ALL[name].names == TABLES[name]  # the table is where `module` and `table` say, and adds nothing


def test_every_other_choice_is_understood() -> None:
    for form in choices.COMPRESSION_FORMS.names:
        make_settings({"compress": form.replace("RANK", "2").replace("SHARE", "0.1")})
    for bits in choices.BOUNDARY_BITS.names:
        assert (make_settings({"boundary_bits": bits}).row_codec is None) == (bits == 0)
        assert make_settings({"boundary_bits": bits}).row_codec == ROW_CODECS.get(f"quantised-{bits}")
    for name in choices.DECAY_NAMES.names:
        assert make_settings({"decay_layers": name}).decay_layers == name
    for name in choices.MEASURE_NAMES.names:
        assert make_settings({"measure": name}).measure == name
    assert choices.MISSING_NAMES.names == MISSING_ROWS
    for form in choices.SEQUENCE_FORMS.names:
        filled = form.replace("P[,TOPOLOGY]", "0.1,ring")
        assert make_settings({"topology": filled}).topology == filled
    for name in choices.KEEP_NAMES.names:
        assert make_settings({"keep": name}).keep == name
    assert set(choices.TASK_NAMES.names) == {"auto", *get_args(Task)}
    for name in choices.DTYPE_NAMES.names:
        assert str(make_settings({"dtype": name}).torch_dtype) == f"torch.{name}"


@pytest.mark.parametrize(
    ("setting", "module", "table", "entry"),
    [
        ("layers", "gossamer.model.layers", "LAYERS", LAYERS["gcn"]),
        ("topology", "gossamer.topology", "TOPOLOGIES", TOPOLOGIES["ring"]),
        ("mixing", "gossamer.topology", "MIXING_WEIGHTS", MIXING_WEIGHTS["uniform"]),
        ("activation", "gossamer.model.layers", "ACTIVATIONS", ACTIVATIONS["tanh"]),
        ("boundary_codec", "gossamer.agents.row_codecs", "ROW_CODECS", ROW_CODECS["quantised-8"]),
    ],
)
def test_a_name_that_is_added_to_a_table_is_taken(
    setting: str, module: str, table: str, entry: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GossamerError, match=f"{setting} = 'mine': input should be '"):
        make_settings({setting: "mine"})
    monkeypatch.setitem(__import__(module, fromlist=[table]).__dict__[table], "mine", entry)
    assert getattr(make_settings({setting: "mine"}), setting) == "mine"
    with pytest.raises(GossamerError, match=r"[ ,]'mine'"):
        make_settings({setting: "yours"})


def test_text_for_people() -> None:
    assert str(choices.MIXING_NAMES) == "metropolis, uniform or fastest"
    assert str(Choices({"one": "the only"})) == "one (the only)"


def test_every_setting_has_a_description_and_a_panel() -> None:
    names = list(Settings.model_fields)
    assert names[0] == "dataset"
    assert names[1] == next(iter(PANELS))
    assert set(PANELS) <= set(names)
    assert all(field.description for field in Settings.model_fields.values())


def test_two_codecs_of_the_same_rows_are_refused() -> None:
    assert make_settings({"boundary_codec": "quantised-8", "boundary_bits": 8}).row_codec == ROW_CODECS["quantised-8"]
    with pytest.raises(GossamerError, match="ask for two codecs of the same rows; give one of them"):
        make_settings({"boundary_codec": "quantised-16", "boundary_bits": 8})
