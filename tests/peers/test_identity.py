"""Who an agent is to the others: its profile, whom it admits, and the files that say so."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from peers.changing import find_state, write_changing

from gossamer.errors import GossamerError
from gossamer.files import make_private
from gossamer.peers.identity import ADMITTED_FILE, CONTACT_FILE, FOUNDERS_FILE, Identity, add_admitted, read_admitted
from gossamer.peers.network.keys import make_agent_keys, read_key, split_key
from gossamer.peers.network.z85 import KEY_LENGTH
from gossamer.peers.protocol.terms import Entry, make_entries, name_term
from gossamer.peers.protocol.wire import RefusedError
from gossamer.peers.shards.sites import read_site_shard
from gossamer.peers.term_folders import Begin, TermStore, read_begin, read_log, write_begin


def make(folder: Path, address: str | None = None, secret: str | None = None) -> Identity:
    shard = read_site_shard(folder)
    state = find_state(folder)
    make_private(state)
    own = secret or read_key(folder / "key.secret")
    return Identity(folder, state, shard, own, address or shard.membership.contact.address)


def test_an_agent_notices_that_it_has_moved(tmp_path: Path) -> None:
    (folder, *_), _ = write_changing(tmp_path, 3)
    assert not make(folder).has_moved(b"")
    assert make(folder, "127.0.0.1:9").has_moved(b"")
    profile = make(folder, "127.0.0.1:9").make_profile()
    assert not make(folder, "127.0.0.1:9").has_moved(profile)
    assert make(folder, "127.0.0.1:9", make_agent_keys()[1]).has_moved(profile)
    assert make(folder).has_moved(profile)  # back at the first address
    shard = read_site_shard(folder)
    fewer = replace(shard, data=replace(shard.data, edges=shard.data.edges[:1], weights=shard.data.weights[:1]))
    moved = Identity(folder, find_state(folder), fewer, read_key(folder / "key.secret"), "127.0.0.1:9")
    assert moved.has_moved(profile)  # its shard was made anew, with other edges


def test_who_could_not_plan_with_an_agent_is_refused(tmp_path: Path) -> None:
    folders, _ = write_changing(tmp_path, 3, 1)
    member, stranger = make(folders[0]), make(folders[3])
    entry, edges = Entry(3, stranger.make_profile()), stranger.declare(0)
    member.check_join(entry, stranger.terms, edges)
    with pytest.raises(RefusedError, match="other settings"):
        member.check_join(entry, b"x" * 16, edges)
    with pytest.raises(RefusedError, match="number of edges"):
        member.check_join(entry, stranger.terms, edges[:-24])
    table = np.frombuffer(edges).reshape(-1, 3).copy()
    for column, value in (
        (1, 10**6),
        (1, table[0, 0]),
        (0, table[0, 1]),
        (0, 0.5),
        (2, -1.0),
        (2, np.nan),
        (0, np.inf),
    ):
        wrong = table.copy()
        wrong[0, column] = value
        with pytest.raises(RefusedError, match="unplanned"):
            member.check_join(entry, stranger.terms, wrong.tobytes())


def test_a_new_key_signs_for_no_old_entry(tmp_path: Path) -> None:
    (folder, *_), _ = write_changing(tmp_path, 3)
    first, other = make(folder), make(folder, secret=make_agent_keys()[1])
    assert first.signs_for(Entry(0))
    assert not other.signs_for(Entry(0))
    assert other.signs_for(Entry(0, other.make_profile()))
    assert not first.signs_for(Entry(0, other.make_profile()))


def test_a_founder_that_was_cut_without_its_key_keeps_the_first_one_that_it_had(tmp_path: Path) -> None:
    (folder, *_), _ = write_changing(tmp_path, 3)
    shard, state, secret = read_site_shard(folder), find_state(folder), read_key(folder / "key.secret")
    make_private(state)
    own = replace(shard.membership.contact, key=None)
    membership = replace(shard.membership, contact=own, verify_keys=(None, *shard.membership.verify_keys[1:]))

    def start(secret: str) -> Identity:
        return Identity(folder, state, replace(shard, membership=membership), secret, own.address)

    assert not start(secret).has_moved(b"")
    renewed = start(make_agent_keys()[1])
    assert renewed.has_moved(b"")
    assert not renewed.signs_for(Entry(0))  # the others know the first key
    assert start(secret).signs_for(Entry(0))
    (state / CONTACT_FILE).write_text('{"address": 3}')
    with pytest.raises(GossamerError, match="damaged"):
        start(secret)


def test_profiles_count_edges_to_neighbours(tmp_path: Path) -> None:
    folders, _ = write_changing(tmp_path, 3, 1)
    shard, identity = read_site_shard(folders[3]), make(folders[3])
    profile = Entry(3, identity.make_profile()).profile
    assert profile is not None
    assert set(profile.links) == {0, 1, 2}
    assert sum(profile.links.values()) == int((shard.data.owner[shard.data.edges] != 3).any(1).sum())
    assert np.sum(list(profile.links.values())) > 0
    assert Entry(3, identity.make_profile()) != Entry(3, profile.pack())  # no two are alike


def test_who_may_ask_to_join(tmp_path: Path) -> None:
    folders, keys = write_changing(tmp_path, 3, 1)
    member, stranger = make(folders[0]), make(folders[3])
    entry, curve = Entry(3, stranger.make_profile()), keys[3][:KEY_LENGTH]
    with pytest.raises(RefusedError, match="not admitted"):
        member.admit(curve, entry, frozenset(), {})
    admitted = frozenset({keys[3]})
    contact = member.admit(curve, entry, admitted, {})
    assert (contact.address, contact.key) == (read_site_shard(folders[3]).membership.contact.address, curve)
    with pytest.raises(RefusedError, match="not admitted"):  # it shows another's key
        member.admit(split_key(make_agent_keys()[0], "")[0], entry, admitted, {})
    known = {1: keys[1][:KEY_LENGTH]}
    assert member.admit(1, Entry(1, make(folders[1]).make_profile()), frozenset(), known).key == keys[1][:KEY_LENGTH]
    renewed = make(folders[1], secret=make_agent_keys()[1])
    with pytest.raises(RefusedError, match="not admitted"):
        member.admit(1, Entry(1, renewed.make_profile()), frozenset(), known)
    renumbered = Entry(4, make(folders[1]).make_profile())  # it asks under another number than before
    with pytest.raises(RefusedError, match="not admitted"):
        member.admit(1, renumbered, frozenset(), known)
    assert member.admit(1, renumbered, frozenset({keys[1]}), known).key == keys[1][:KEY_LENGTH]


@pytest.mark.parametrize("encrypted", [True, False])
def test_agents_with_one_number_are_told_apart(tmp_path: Path, encrypted: bool) -> None:
    (folder, other, *_), _ = write_changing(tmp_path, 3)
    shard = read_site_shard(folder)

    def start(address: str, renewed: bool = False) -> Identity:
        secret = make_agent_keys()[1] if renewed else read_key(folder / "key.secret")
        return Identity(folder, find_state(folder), shard, secret if encrypted else None, address)

    make(folder)
    address = shard.membership.contact.address
    first, here, elsewhere, renewed = (
        Entry(0),
        *(Entry(0, one.make_profile()) for one in (start(address), start("127.0.0.1:9"), start(address, True))),
    )
    judge = Identity(other, find_state(other), read_site_shard(other), read_key(other / "key.secret"), address)
    assert not start(address).has_moved(b"")
    for one in (start(address), judge) if encrypted else (start(address),):
        assert one.is_same(first, here)
        assert one.is_same(first, elsewhere)
        assert one.is_same(here, renewed) != encrypted


def test_the_allow_list_takes_every_key(tmp_path: Path) -> None:
    keys = [make_agent_keys()[0] for _ in range(60)]
    for key in keys:
        assert add_admitted(tmp_path, key)
        assert not add_admitted(tmp_path, key)
    assert read_admitted(tmp_path) == keys
    (tmp_path / ADMITTED_FILE).write_text(f"#a comment\n\n{keys[0]} of the new site\n")
    assert read_admitted(tmp_path) == keys[:1]
    (tmp_path / ADMITTED_FILE).write_text(f"{keys[0]}\nnonsense\n")
    with pytest.raises(GossamerError, match=rf"{ADMITTED_FILE}, line 2"):
        read_admitted(tmp_path)


def test_keys_of_founders_come_from_a_neighbour(tmp_path: Path) -> None:
    folders, keys = write_changing(tmp_path, 3, 1)
    stranger, member = make(folders[3]), make(folders[0])
    term = name_term("run", 0, make_entries(range(3)))
    with pytest.raises(RefusedError, match="not known"):
        stranger.sign(term)
    with pytest.raises(RefusedError):
        stranger.learn_founders(member.list_founder_keys()[:2])
    assert stranger.list_founder_keys() == ()  # rather than some of them
    assert stranger.learn_founders(member.list_founder_keys())
    assert not stranger.learn_founders(member.list_founder_keys())
    assert stranger.list_founder_keys() == member.list_founder_keys()
    assert stranger.sign(term).verifies(1, b"x", make(folders[1]).sign(term).sign(b"x"))
    assert make(folders[3]).find_founder_key(2) == keys[2][KEY_LENGTH:]  # stored
    others = tuple(key.encode() for key in (keys[1][KEY_LENGTH:], keys[0][KEY_LENGTH:], keys[2][KEY_LENGTH:]))
    with pytest.raises(RefusedError, match="another key"):
        member.learn_founders(others)
    (find_state(folders[3]) / FOUNDERS_FILE).write_text("[1]")
    with pytest.raises(GossamerError, match="damaged"):
        make(folders[3])


def test_memberships_and_beginnings_come_back_from_disk(tmp_path: Path) -> None:
    term = name_term("run", 0, make_entries(range(3)))
    store = TermStore(tmp_path)
    store.add_certificate(term, [b"a", b"b"], [Entry(0), Entry(1, b"")])
    assert TermStore(tmp_path).certificates() == [(b"a", b"b")]
    assert read_log(tmp_path)[0].following == (Entry(0), Entry(1))
    votes = store.votes(2)
    votes.set_vote(17, b"promise")
    assert TermStore(tmp_path).votes(2).votes() == {17: b"promise"}
    assert read_begin(tmp_path) is None
    write_begin(tmp_path, Begin(1, 20, (4,)))
    assert read_begin(tmp_path) == Begin(1, 20, (4,))


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"membership": 1, "certificate": [], "following": null}', "\x00", '"x"']
)
def test_a_damaged_log_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "memberships.jsonl").write_text(content + "\n")
    with pytest.raises(GossamerError, match=r"memberships\.jsonl is damaged"):
        read_log(tmp_path)
