"""Settings as a run has stored them, by this version or an earlier one."""

from collections.abc import Mapping
from typing import Any

from gossamer.errors import GossamerError
from gossamer.runs.settings import Settings, make_settings


def read_stored_settings(values: Mapping[str, Any], source: str) -> Settings:
    """Settings that a run was begun with; one that lacks some, from before there were such settings, goes on as it
    was: with the paper's, without tracked updates and with public randomness. An error has one line."""
    try:
        return make_settings({"preset": "paper", "track": False, "public_randomness": True, **values}, source)
    except GossamerError as error:
        raise GossamerError(str(error).partition("\n")[0][:500]) from None
