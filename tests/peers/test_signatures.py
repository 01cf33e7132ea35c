"""Statements of agents: signed by their subjects, for one run and one epoch, and by keys that come from one secret."""

from typing import Any

import pytest
import zmq.utils.z85 as z85
from nacl.signing import VerifyKey
from peers.network import SECRETS, keyring

from gossamer.errors import GossamerError
from gossamer.peers.network.curve import derive_public_key, make_curve_keys
from gossamer.peers.network.keys import derive_agent_key, make_agent_keys, split_key
from gossamer.peers.protocol.signatures import SIGNATURE_SIZE, UNSIGNED, derive_verify_key, make_keyring
from gossamer.peers.protocol.statements import sign_done, sign_restorable

STEPS: dict[str, Any] = {"run": "run", "agent": 1, "epoch": 4, "incarnation": 7, "steps": (0, 2)}


def test_a_public_key_is_two_keys_that_come_from_one_secret() -> None:
    public, secret = make_agent_keys()
    assert public == derive_agent_key(secret)
    curve, verify = split_key(public, "here")
    assert (curve, verify) == (derive_public_key(secret), derive_verify_key(secret))
    assert len(z85.decode(public)) == 64  # as Z85 is everywhere
    ring = make_keyring(secret, [verify, derive_verify_key(make_curve_keys()[1])], 0)
    VerifyKey(z85.decode(verify)).verify(b"a statement", ring.sign(b"a statement"))


def test_a_statement_holds_for_its_subject_run_epoch_incarnation_and_steps_alone() -> None:
    statement = sign_restorable(signatures=keyring(1), **STEPS)
    end, signature = statement.content[:-SIGNATURE_SIZE], statement.content[-SIGNATURE_SIZE:]
    assert sign_restorable(signatures=keyring(1), **STEPS) == statement  # the same bytes whenever it is stated
    for change in ({"run": "other"}, {"agent": 0}, {"epoch": 5}, {"incarnation": 8}, {"steps": (0,)}):
        other = sign_restorable(signatures=keyring(1), **{**STEPS, **change}).content
        assert other[-SIGNATURE_SIZE:] != signature
    assert keyring(0).verifies(1, b"x" + end, keyring(1).sign(b"x" + end))
    assert not keyring(0).verifies(1, b"x" + end, keyring(0).sign(b"x" + end))
    assert not keyring(0).verifies(0, b"x" + end, keyring(1).sign(b"x" + end))
    assert sign_done("run", keyring(1), 1).content != sign_done("other", keyring(1), 1).content
    assert len(sign_done("run", UNSIGNED, 1).content) == 5


def test_an_agent_needs_the_verify_keys_of_all() -> None:
    keys = [derive_verify_key(secret) for secret in SECRETS]
    assert make_keyring(SECRETS[1], [keys[0], None, *keys[2:]], 1).verify == keyring(1).verify  # its own it knows
    with pytest.raises(GossamerError, match="has no verify key of agent 2; every agent must know those of all"):
        make_keyring(SECRETS[1], [*keys[:2], None, keys[3]], 1)
    with pytest.raises(GossamerError, match="not that of the verify key that the others know of agent 0"):
        make_keyring(SECRETS[1], keys, 0)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (7, "7 is not a public key of 80 characters"),
        ("short", "'short' is not a public key of 80 characters"),
        ("0" * 40, "this public key has no verify key yet; print it whole .* with gossamer keys --secret"),
        ("0" * 79 + "~", "is not a verify key of 40 characters"),
        ("0" * 40 + '"' * 40, "is not a verify key"),
    ],
)
def test_a_key_that_does_not_fit_is_told(key: object, message: str) -> None:
    with pytest.raises(GossamerError, match=f"hosts.txt, agent 3: .*{message}"):
        split_key(key, "hosts.txt, agent 3")


def test_what_is_no_secret_key_is_told() -> None:
    with pytest.raises(GossamerError, match="not a secret key"):
        derive_verify_key("~" * 40)
