"""Limits of this process: memory that it may still take, and file descriptors."""

import contextlib
import os
import sys
from pathlib import Path

try:
    import resource
except ImportError:  # not a Unix system: no such limits
    resource = None  # type: ignore[assignment]

GROUPS = (  # limit and use of a control group, version 2 and 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_memory() -> int:
    """Bytes that can be allocated without swapping: the least that the machine, the control group and RLIMIT_AS leave;
    sys.maxsize where none is known."""
    left = [_free_memory(), _free_address_space()]
    for limit, used in GROUPS:
        most = _read_number(limit)
        if most is not None:
            left.append(most - (_read_number(used) or 0))
    return max(0, min(part for part in left if part is not None))


def raise_descriptor_limit(most: int) -> None:
    """Let this process have as many file descriptors as the system allows it, up to `most`."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def as_size(count: float) -> str:
    """Bytes as text: 512 bytes, 1.5 MB, 23.1 GB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def _free_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):  # not Linux
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):  # not Unix
        return sys.maxsize


def _free_address_space() -> int | None:
    if resource is None:
        return None
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        pages = 0
    return most - pages * resource.getpagesize()


def _read_number(path: str) -> int | None:
    """The number in a control group's file; None where there is none, or no limit ("max")."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
