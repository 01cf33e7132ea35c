"""Settings and versions of a run, and how to reproduce it."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.data.tasks import Task
from gossamer.report.html.facts import SCRIPT_NAME, RunFacts
from gossamer.report.html.markup import (
    Content,
    PageSection,
    concatenate,
    note,
    paragraph,
    protect,
    show_code,
    tabulate,
    unfold,
)
from gossamer.runs.presets import fit_defaults
from gossamer.runs.run_json import GOSSAMER_VERSION
from gossamer.runs.settings import Settings, make_settings


def show_settings(facts: RunFacts) -> PageSection:
    """Settings that differ from the defaults, then all of them."""
    settings = facts.first_settings
    chosen = find_chosen(settings, facts.manifest.data.task)
    rows: list[list[Content]] = [["dataset", settings.dataset, ""]]
    rows += [[name, _show(value), _describe(name)] for name, value in chosen.items()]
    every: list[list[Content]] = [
        [name, _show(getattr(settings, name)), _describe(name)] for name in Settings.model_fields
    ]
    headings = ["setting", "value", "meaning"]
    few = tabulate("Settings that differ from the defaults", headings, rows, "settings", (1, 2))
    whole = tabulate(f"All {len(every)} settings", headings, every, "settings", (1, 2))
    return PageSection("settings", "Settings", few + unfold("All settings", whole))


def find_chosen(settings: Settings, task: Task | None) -> dict[str, Any]:
    """The settings, but for the data set, by which the defaults of their preset and of the task become these."""
    stored = settings.model_dump()
    base = make_settings({name: stored[name] for name in ("dataset", "preset", "privacy")}).model_dump()
    if task is not None:
        base |= {name: value for name, value in fit_defaults(task, None).items() if base[name] is None}
    chosen = {name: value for name, value in stored.items() if value != base[name]}
    named = {
        name: stored[name] for name in ("preset", "privacy") if stored[name] != Settings.model_fields[name].default
    }
    return {**named, **chosen}


def _describe(name: str) -> str:
    return " ".join((Settings.model_fields[name].description or "").split())


def _show(value: Any) -> str:
    if value is None:
        return "by default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def write_options(settings: Settings, task: Task | None) -> list[str]:
    """The settings as options of a command, without the data set."""
    words = []
    for name, value in find_chosen(settings, task).items():
        flag = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{name.replace('_', '-')}")
        else:
            words += [flag, ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)]
    return words


def show_origin(facts: RunFacts, report: str) -> PageSection:
    """Command lines, `report` the page's own, then data set, seed and versions."""
    settings, data = facts.settings, facts.manifest.data
    versions: list[list[Content]] = [[name, version] for name, version in facts.manifest.versions.items()]
    facts_of_data: list[list[Content]] = [
        ["data set", settings.dataset],
        ["name", data.name],
        ["SHA-256 of its arrays", data.fingerprint or _explain_no_fingerprint(facts)],
        ["seed", str(settings.seed)],
        ["run directory", facts.name],
        ["this report by", f"gossamer {GOSSAMER_VERSION}"],
    ]
    commands = [*write_commands(facts), *_write_audit(facts), ("This page", report)]
    remarks = []
    if any("torchrun" in command for _, command in commands):
        remarks.append("Ranks agree with one process up to rounding.")
    if settings.threads:
        remarks.append("The bits depend on the number of threads, too.")
    if facts.memberships:
        remarks.append("When agents leave and join depends on the machine: the same command gives another timeline.")
    elif not data.fingerprint:
        remarks.append("The data set is with the sites: no one command trains this run again.")
    return PageSection(
        "reproduce",
        "How to reproduce",
        concatenate(
            *(paragraph(words) + show_code(command) for words, command in commands),
            *map(note, remarks),
            tabulate("Data and seed", ["what", "value"], facts_of_data, "settings", (1,)),
            tabulate("Versions that the run was made with", ["package", "version"], versions, "settings", (1,)),
        ),
    )


def _explain_no_fingerprint(facts: RunFacts) -> str:
    if facts.changed or facts.kind == "launch":
        return "not stored: vertices left or joined with their agents"
    return "not known: no one place had all vertices"


def write_commands(facts: RunFacts) -> list[tuple[str, str]]:
    """Command lines that make the run again, each with what it does."""
    settings, name = facts.first_settings, protect(Path(facts.name))
    whole = [settings.dataset, *write_options(settings, facts.manifest.data.task)]

    def join(*words: str) -> str:
        return shlex.join(words)

    train = join("gossamer", "train", *whole)
    if facts.kind == "launch":
        script = ["--script", str(facts.folder / SCRIPT_NAME)] if facts.scripted else []
        found = [("One process an agent on this machine", join("gossamer", "launch", *whole, *script))]
        if not facts.memberships and not settings.public_randomness:
            secrets = str(facts.folder / "secrets.json")
            same = join("gossamer", "train", *whole, "--secrets", secrets)
            found.append(("The same bits, simulated with the secrets of this run", same))
        return found
    if facts.kind == "cluster":
        cut = join("gossamer", "shard", *whole, "--ranks", "N", "--out", name)
        ranks = join("torchrun", "--nproc-per-node", "N", "-m", "gossamer", "cluster", name)
        return [("Shares cut for N ranks, then trained by them", f"{cut}\n{ranks}")]
    if facts.kind == "gather":
        cut = join("gossamer", "shard", *whole, "--out", "shards")
        gathered = f"gossamer gather shards/agent-* --out {shlex.quote(name)}"
        peers = f"{cut}\ngossamer peer shards/agent-K    # for each agent K, on its machine\n{gathered}"
        if not facts.manifest.data.fingerprint:
            return [
                ("Gathered from the agents' folders", "gossamer gather AGENT... --out " + shlex.quote(name)),
            ]
        return [
            ("Peers, then gathered", peers),
            ("All agents in one process, with other random numbers", train),
        ]
    if facts.kind == "peer":
        return [
            (
                "Gathered with all other agents' folders, the report covers the whole run",
                "gossamer gather AGENT... --out RUN",
            ),
        ]
    found = [("In one process", train)]
    if settings.agents > 1:
        ranks = join("torchrun", "--nproc-per-node", "2", "-m", "gossamer", "cluster", *whole)
        found.append(("On two ranks", ranks))
    return found


def write_report_command(facts: RunFacts, others: Sequence[Path], out: Path | None, with_predictions: bool) -> str:
    """The command that writes the page."""
    words = ["gossamer", "report", protect(facts.given)]
    words += [word for other in others for word in ("--compare", protect(other))]
    words += [] if out is None else ["--out", protect(out)]
    return shlex.join([*words, *([] if with_predictions else ["--no-predictions"])])


def _write_audit(facts: RunFacts) -> list[tuple[str, str]]:
    found = facts.audit
    if found is None:
        return []
    who = ",".join(map(str, found.observers))
    words = ["--observer" if len(found.observers) == 1 else "--coalition", who]
    words += [] if found.attacked_steps else ["--no-attack"]
    return [("The audit", shlex.join(["gossamer", "audit", protect(facts.given), *words]))]
