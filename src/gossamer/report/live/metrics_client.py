"""The state of agents on other machines, read from the metrics that their runs serve.

An answer is not trusted: its size, its lines and the time it takes are bounded, and numbers and states are checked.
"""

import http.client
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import urlencode

from gossamer.errors import GossamerError, one_line, shown
from gossamer.peers.refusals import RECOVERY_REASONS
from gossamer.report.live.addresses import HostPort, read_address

if TYPE_CHECKING:
    from gossamer.peers.status import AgentStatus

MAX_ANSWER = 8 << 20  # bytes; the state of an agent takes about a thousand
MAX_SAMPLE = 4096  # characters of a sample or an explanation
STATE = re.compile(r"[a-z][a-z ]{0,30}")
NAMES = (  # of the families that a state is made of: the bytes of all links may be many and are left out
    "gossamer_build",
    "gossamer_run_state",
    "gossamer_run_steps",
    "gossamer_evaluation_score",
    "gossamer_membership_number",
    "gossamer_agent_member",
    "gossamer_agent_state",
    "gossamer_agent_step",
    "gossamer_agent_epoch",
    "gossamer_agent_loss",
    "gossamer_agent_waiting_seconds",
    "gossamer_agent_waiting_for",
    "gossamer_agent_checkpoint_age_seconds",
    "gossamer_agent_report_age_seconds",
    "gossamer_agent_refused_messages",
)
Samples = Mapping[tuple[str, str], Sequence[tuple[Mapping[str, str], float]]]  # labels and values by name and agent


class UnreadMetrics(TypedDict):
    """An address without agents, as `gossamer status --json` prints it."""

    metrics: str  # the address
    state: str  # "unreachable"; "starting": a run that has not said anything yet
    error: str | None


def parse_metrics_address(text: str) -> HostPort:
    """HOST:PORT or a PORT alone on this machine, as `--metrics` of a run takes them, or the URL that a run prints."""
    host, port = read_address(text.removeprefix("http://").removesuffix("/").removesuffix("/metrics"), "--metrics")
    if not port:
        raise GossamerError(f"--metrics: expected the HOST:PORT of a run, found {shown(text)}; port 0 is none")
    return host, port


def read_metrics(addresses: Sequence[str], seconds: float) -> "tuple[list[AgentStatus], list[UnreadMetrics]]":
    """States of the agents behind addresses, all of which are asked at once and have some seconds to answer."""
    places = [parse_metrics_address(address) for address in addresses]
    _import_parser()
    found: dict[int, list[AgentStatus] | GossamerError] = {}

    def ask(index: int) -> None:
        try:
            found[index] = describe_agents(parse_samples(_fetch(*places[index], seconds)), addresses[index])
        except GossamerError as error:
            found[index] = error

    threads = [threading.Thread(target=ask, args=[index], daemon=True) for index in range(len(places))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds + 0.5  # a thread's own limit comes first
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    agents: list[AgentStatus] = []
    unread: list[UnreadMetrics] = []
    for index, address in enumerate(addresses):
        answer = found.get(index, GossamerError(f"no whole answer within {seconds:.0f} s"))
        if isinstance(answer, GossamerError):
            unread.append({"metrics": address, "state": "unreachable", "error": str(answer)})
        elif not answer:
            unread.append({"metrics": address, "state": "starting", "error": None})
        else:
            agents += answer
    return agents, unread


def _import_parser() -> None:
    try:
        import prometheus_client.parser  # noqa: F401
    except ImportError:
        from gossamer.report.live.metrics import INSTALL_METRICS

        raise GossamerError(INSTALL_METRICS) from None


def _fetch(host: str, port: int, seconds: float) -> bytes:
    """The body of an answer. No proxy and no redirect is followed: metrics are on a network of one's own."""
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("GET", "/metrics?" + urlencode([("name[]", name) for name in NAMES]))
        with connection.getresponse() as answer:
            if answer.status != 200:
                raise GossamerError(f"answers with HTTP status {answer.status}; no run serves its metrics there")
            body = answer.read(MAX_ANSWER + 1)
    except TimeoutError:
        raise GossamerError(f"no answer within {seconds:.0f} s") from None
    except ConnectionRefusedError:
        raise GossamerError("connection refused; no run with --metrics goes on there") from None
    except (http.client.HTTPException, ValueError) as error:
        raise GossamerError(f"no answer of a web server: {shown(one_line(error) or type(error).__name__)}") from None
    except OSError as error:
        raise GossamerError(error.strerror or one_line(error) or type(error).__name__) from None
    finally:
        connection.close()
    if len(body) > MAX_ANSWER:
        raise GossamerError(f"answers with more than {MAX_ANSWER >> 20} MB; no run's metrics are as long")
    return body


def parse_samples(body: bytes) -> Samples:
    """The samples of an answer by their name and agent, which is empty for those of the run."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[tuple[str, str], list[tuple[Mapping[str, str], float]]] = {}
    try:
        text = body.decode()
        if max(map(len, text.split("\n"))) > MAX_SAMPLE:  # the parser needs the square of a line's length
            raise ValueError(f"a line of more than {MAX_SAMPLE} characters")
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                value = float(sample.value)
                if math.isfinite(value):
                    found.setdefault((sample.name, sample.labels.get("agent", "")), []).append((sample.labels, value))
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise GossamerError(f"answers with what is no Prometheus text: {shown(one_line(error))}") from None
    if ("gossamer_build_info", "") not in found:
        raise GossamerError("answers with metrics of another program, not of Gossamer")
    return found


def describe_agents(samples: Samples, address: str) -> "list[AgentStatus]":
    """States of the agents that an address speaks for, in their order."""
    scores = {labels.get("mask"): value for labels, value in samples.get(("gossamer_evaluation_score", ""), ())}
    membership = _find_int(samples, "gossamer_membership_number")
    names = {name for family, name in samples if family == "gossamer_agent_member"}
    members = sorted(_read_agent(name) for name in names if _find(samples, "gossamer_agent_member", name) == 1)
    states = {_read_agent(name): name for family, name in samples if family == "gossamer_agent_state"}
    return [
        {
            "folder": None,
            "metrics": address,
            "agent": agent,
            "state": _read_state(samples, name),
            "step": _find_int(samples, "gossamer_agent_step", name),
            "steps": _find_int(samples, "gossamer_run_steps") or 0,
            "loss": _find(samples, "gossamer_agent_loss", name),
            "score": scores.get("validation"),
            "waiting_for": sorted(
                _read_agent(labels.get("neighbour", ""))
                for labels, value in samples.get(("gossamer_agent_waiting_for", name), ())
                if value == 1
            ),
            "waited": _find(samples, "gossamer_agent_waiting_seconds", name),
            "detours": {},
            "epoch": _find_int(samples, "gossamer_agent_epoch", name),
            "refused": sum(
                int(value)
                for labels, value in samples.get(("gossamer_agent_refused_messages_total", name), ())
                if labels.get("reason") not in RECOVERY_REASONS
            ),
            "checkpoint_age": _find(samples, "gossamer_agent_checkpoint_age_seconds", name),
            "report_age": _find(samples, "gossamer_agent_report_age_seconds", name),
            "process": None,
            "membership": membership,
            "members": None if membership is None else members,
        }
        for agent, name in sorted(states.items())
    ]


def _find(samples: Samples, name: str, agent: str = "") -> float | None:
    return next((value for _, value in samples.get((name, agent), ())), None)


def _find_int(samples: Samples, name: str, agent: str = "") -> int | None:
    value = _find(samples, name, agent)
    return None if value is None else int(value)


def _read_state(samples: Samples, agent: str) -> str:
    state = samples["gossamer_agent_state", agent][0][0].get("state", "")
    if not STATE.fullmatch(state):
        raise GossamerError(f"answers with the state {shown(state)}, which no agent has")
    return state


def _read_agent(text: str) -> int:
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise GossamerError(f"answers with {shown(text)} in place of an agent's number")
    return int(text)
