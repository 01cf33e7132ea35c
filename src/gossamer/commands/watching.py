"""Servers of a run's views, as `--page` and `--metrics` ask for them, for as long as a command lasts."""

import logging
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.commands.common import err, print_warning
from gossamer.commands.logs import StderrHandler
from gossamer.errors import GossamerError
from gossamer.files import check_private, read_text
from gossamer.report.live.addresses import HostPort, is_loopback, read_address

if TYPE_CHECKING:
    from gossamer.api import Display
    from gossamer.report.live.feed import Feed
    from gossamer.report.live.folders import FolderSource
    from gossamer.report.live.log_lines import LogLines
    from gossamer.report.live.own_page import PeerSource
    from gossamer.report.live.simulation import SimulationSource
    from gossamer.runs.records import Record
    from gossamer.runs.training import ShouldStop

PAGE_PORT = 8080
TOKEN_VARIABLE = "GOSSAMER_PAGE_TOKEN"
LEAST_TOKEN, MAX_TOKEN = 16, 200  # characters


@dataclass(frozen=True)
class WatchOptions:
    """The options of a command that are about watching its run."""

    page: str | None = None
    metrics: str | None = None
    token_file: Path | None = None


@dataclass(frozen=True)
class Watch:
    """A feed that is served, the log's lines for it, and what is served where."""

    feed: "Feed"
    log: "LogLines"
    served: list[tuple[str, str]] = field(default_factory=list)  # that have not been announced: what, and its URL

    def announce(self) -> None:
        """Print once where the run is seen, as soon as it is likely that there will be one."""
        while self.served:
            what, url = self.served.pop(0)
            err.print(f"{what}: {url}", highlight=False, soft_wrap=True, markup=False)


def read_token(file: Path | None) -> str | None:
    """The token that the user gives for a page: that of a file, or of the environment."""
    if file is not None:
        token, source = read_text(file, 1000).strip(), str(file)
        check_private(file)
    else:
        token, source = os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not token:
            return None
    if not LEAST_TOKEN <= len(token) <= MAX_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise GossamerError(
            f"{source}: expected a token of {LEAST_TOKEN} to {MAX_TOKEN} letters, digits and signs without blanks, "
            f"found {len(token)} characters; leave it out, and a good one is made"
        )
    return token


@contextmanager
def watch_run(
    options: WatchOptions, feed: "Feed | None" = None, log: "LogLines | None" = None, free_port: bool = False
) -> Iterator[Watch | None]:
    """Serve what the options ask for until the command ends; None if they ask for nothing. The feed and the lines are
    new if they are not given. With `free_port`, a port of the page that is taken is replaced by a free one."""
    if options.page is None and options.metrics is None:
        if options.token_file is not None:
            raise GossamerError("--page-token-file is for a page; give --page HOST:PORT, too")
        yield None
        return
    page = None if options.page is None else read_address(options.page, "--page")
    metrics = None if options.metrics is None else read_address(options.metrics, "--metrics")
    token = None if page is None else read_token(options.token_file)
    from gossamer.report.live.feed import Feed
    from gossamer.report.live.log_lines import LogLines

    with ExitStack() as served:
        watch = Watch(feed or Feed(), log or LogLines())
        served.enter_context(_keep_log(watch.log))
        if page is not None:
            url = served.enter_context(_serve_page(watch.feed, page, token, free_port))
            watch.served.append(("live page", url))
            if not is_loopback(page[0]):
                print_warning(
                    f"--page {options.page}: the token and the page travel unencrypted; serve them on 127.0.0.1 and "
                    "reach that by an SSH tunnel, unless you trust the network"
                )
        if metrics is not None:
            from gossamer.report.live.metrics import serve_metrics

            if not is_loopback(metrics[0]):
                print_warning(
                    f"--metrics {options.metrics}: anybody who reaches this address can read the metrics; bind it to a "
                    "network that you trust"
                )
            watch.served.append(("metrics", served.enter_context(serve_metrics(watch.feed, metrics))))
        yield watch


@contextmanager
def _serve_page(feed: "Feed", address: HostPort, token: str | None, free_port: bool) -> Iterator[str]:
    from gossamer.report.live.server import serve_page

    made = None if token is not None or is_loopback(address[0]) else secrets.token_urlsafe(24)
    with ExitStack() as served:
        try:
            url = served.enter_context(serve_page(feed, address, token or made))
        except GossamerError:
            if not free_port:
                raise
            url = served.enter_context(serve_page(feed, (address[0], 0), token or made))
        yield url if made is None else f"{url}?token={made}"


@contextmanager
def _keep_log(log: "LogLines") -> Iterator[None]:
    """Keep the records of the log from INFO on, whatever is shown on standard error, and warnings."""
    logger, show = logging.getLogger("gossamer"), warnings.showwarning
    level = logger.level

    def show_and_keep(message: Any, *rest: Any, **more: Any) -> None:
        log.add("warning", str(message))
        show(message, *rest, **more)

    for handler in logger.handlers:
        if isinstance(handler, StderrHandler):
            handler.setLevel(level)
    logger.setLevel(min(level, logging.INFO) if level else logging.INFO)
    logger.addHandler(log)
    warnings.showwarning = show_and_keep
    try:
        yield
    finally:
        warnings.showwarning = show
        logger.removeHandler(log)
        logger.setLevel(level)


@contextmanager
def publish(
    watch: Watch, source: "FolderSource | PeerSource | SimulationSource", should_stop: "ShouldStop" = lambda: False
) -> Iterator[None]:
    """Publish a source's views, and announce where; at its end it has finished, or was stopped."""
    watch.announce()
    with source.publisher:
        try:
            yield
        except BaseException:
            source.end(complete=False)
            raise
        source.end(complete=not should_stop())


@contextmanager
def follow_training(
    watch: Watch | None,
    title: str,
    display: "Display",
    should_stop: "ShouldStop",
    read_references: "Callable[[], dict[str, list[Record]]]" = dict,
    folder: Path | None = None,
) -> "Iterator[Display]":
    """A display that shows the models of this process to those who watch, too; `read_references` gives the evaluations
    of references that have been trained before, and `folder` is the run directory that is resumed."""
    if watch is None:
        yield display
        return
    from gossamer.report.live.simulation import SimulationSource

    source = SimulationSource(watch.feed, watch.log, title, read_references(), folder)
    with publish(watch, source, should_stop):
        yield join_displays(display, source.follow)


def join_displays(one: "Display", other: "Display") -> "Display":
    """A display of both."""
    from gossamer.runs.observers import join_observers

    return lambda name, first, last: join_observers(one(name, first, last), other(name, first, last))


def print_watch_hint(options: WatchOptions, folder: Path) -> None:
    """Print how to see a run whose page has ended with its command."""
    if options.page is not None:
        err.print(
            f"the live page has ended; see the run again with: gossamer watch {folder}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
