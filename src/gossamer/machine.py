"""The memory that this process may still take, by what the machine, its control group and its limits say."""

import os
import resource
import sys
from pathlib import Path

GROUPS = (  # limit and use of a control group, version 2 and 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_memory() -> int:
    """Bytes that can be allocated without swapping: the least that the machine, the control group and RLIMIT_AS leave;
    sys.maxsize where nothing says."""
    left = [_of_machine(), _of_limit()]
    for limit, used in GROUPS:
        most = _number(limit)
        if most is not None:
            left.append(most - (_number(used) or 0))
    return max(0, min(part for part in left if part is not None))


def as_size(count: float) -> str:
    """Bytes as text: 512 bytes, 1.5 MB, 23.1 GB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def _of_machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return sys.maxsize


def _of_limit() -> int | None:
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        pages = 0
    return most - pages * resource.getpagesize()


def _number(path: str) -> int | None:
    """The number in a control group's file; None where there is none, or no limit ("max")."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
