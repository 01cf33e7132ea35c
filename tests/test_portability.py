"""Features of Linux and of Unix are used where they exist: each is hidden here, and its fallback must work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
# Each feature is hidden in a fork of one process that has imported what others have written, and nothing of ours.
FORKS = """
import os, subprocess, sys, time, traceback
from pathlib import Path
import msgpack, numpy, pydantic, safetensors.torch, scipy.sparse, sklearn.neighbors, threadpoolctl, torch, typer, zmq
assert not any(name.split(".")[0] == "gossamer" for name in sys.modules)
failed = []
for number, code in enumerate(sys.argv[2:]):
    child = os.fork()
    if child == 0:
        folder = Path(sys.argv[1]) / str(number)
        folder.mkdir()
        try:
            exec(code, {"os": os, "subprocess": subprocess, "sys": sys, "time": time, "Path": Path, "folder": folder})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        failed.append(number)
print(failed)
"""
NO_FCNTL = "import warnings; warnings.simplefilter('ignore'); sys.modules['fcntl'] = None"
NO_PROC = "import gossamer.machine; gossamer.machine.Path = lambda name: Path('/nowhere')"
MACHINE = """
from gossamer.machine import available_memory, raise_descriptor_limit
assert available_memory() > 0
raise_descriptor_limit(1000)
"""
LOCK = """
from gossamer.files import lock_folder
if len(sys.argv) == 3:
    with lock_folder(folder, "works"):
        sys.exit("the lock is taken twice")
with lock_folder(folder, "works"):
    again = subprocess.run([*sys.orig_argv, "again"], capture_output=True, text=True)
    assert "works already" in again.stderr, again.stderr
"""
NOT_POSIX = "import gossamer.files; gossamer.files.os = type('os', (), {**vars(os), 'name': 'nt'})"
FILES = """
from gossamer.files import check_private, write_atomically
write_atomically(folder / "key", b"content")
(folder / "key").chmod(0o644)
check_private(folder / "key")
"""
SHARED_MEMORY = """
from gossamer.engines.cluster.shared_memory import connect_local_ranks
sent = []
assert connect_local_ranks(0, lambda text: sent.append(text) or [text]) == {}
assert sent[0] == "null"  # no address to connect to
"""
MALLOC = "from gossamer.runs.memory import keep_memory\nwith keep_memory(): pass"
TRANSPORT = """
from gossamer.peers.local_processes import find_free_ports
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.sockets import Sockets
keys = [make_curve_keys() for _ in range(2)]
contacts = [Contact(f"127.0.0.1:{port}", key) for port, (key, _) in zip(find_free_ports(2), keys)]
first, second = (Sockets(k, contacts[k].address, {1 - k: contacts[1 - k]}, keys[k][1], 1000) for k in range(2))
deadline, found = time.monotonic() + 20, []
while not found and time.monotonic() < deadline:
    first.send(1, b"whole")
    found = second.receive(0.1)
assert (found[0][0], bytes(found[0][1])) == (0, b"whole")
first.close()
second.close()
"""
HIDDEN: dict[str, tuple[str, str]] = {  # code that hides a feature, and code that must work without it
    "resource": ("sys.modules['resource'] = None", MACHINE),
    "/proc": (NO_PROC, MACHINE),
    "sysconf": (f"{NO_PROC}; del os.sysconf", MACHINE),
    "fcntl": (NO_FCNTL, LOCK),
    "modes of files": (NOT_POSIX, FILES),
    "TCP_INFO": ("import socket; del socket.TCP_INFO", TRANSPORT),
    "packet filter": ("import gossamer.peers.process; sys.platform = 'darwin'", TRANSPORT),
    "duplicates of sockets": ("def dup(number): raise OSError(9, 'bad descriptor')\nos.dup = dup", TRANSPORT),
    "batch scheduling": (
        "del os.SCHED_BATCH, os.sched_getscheduler, os.sched_setscheduler",
        "from gossamer.peers.scheduling import batch_scheduling\nwith batch_scheduling(): pass",
    ),
    "affinity": (
        "del os.sched_getaffinity",
        "from gossamer.experiments.trials import num_workers\nassert num_workers() > 0",
    ),
    "memfd": ("del os.memfd_create", SHARED_MEMORY),
    "local sockets": ("import socket; del socket.AF_UNIX", SHARED_MEMORY),
    "descriptors in /proc": (
        "import gossamer.engines.cluster.shared_memory as module; module.DESCRIPTORS = Path('/nowhere')",
        SHARED_MEMORY,
    ),
    "glibc": ("import ctypes\ndef load(name): raise OSError('no library')\nctypes.CDLL = load", MALLOC),
    "C library by None": ("import ctypes\ndef load(name): raise TypeError('a name')\nctypes.CDLL = load", MALLOC),
    "modules of Unix": (
        f"{NO_FCNTL}\nfor name in ('resource', 'grp', 'pwd', 'termios'): sys.modules[name] = None",
        """
import gossamer
from importlib import import_module
from pkgutil import walk_packages
for module in walk_packages(gossamer.__path__, "gossamer."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
""",
    ),
}


APART = ("fcntl", "modules of Unix")  # starts itself again; hides modules from what others have written, too


def start(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
    )


@pytest.mark.skipif(sys.platform != "linux", reason="hides features of Linux")
@pytest.mark.parametrize("feature", APART)
def test_a_system_without_it_works(feature: str, tmp_path: Path) -> None:
    hide, use = HIDDEN[feature]
    code = f"import os, subprocess, sys, time\nfrom pathlib import Path\nfolder = Path(sys.argv[1])\n{hide}\n{use}"
    done = start(code, str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="hides features of Linux")
def test_systems_without_one_of_the_others_work(tmp_path: Path) -> None:
    features = [feature for feature in HIDDEN if feature not in APART]
    done = start(FORKS, str(tmp_path), *("\n".join(HIDDEN[feature]) for feature in features))
    assert done.returncode == 0, done.stderr
    failed = [features[number] for number in json.loads(done.stdout)]
    assert not failed, done.stderr
