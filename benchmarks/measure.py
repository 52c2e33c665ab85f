# SPDX-License-Identifier: Apache-2.0
"""One program measured at a time, beside what else the machine does.

`Watch` tells how many cores other programs kept busy meanwhile; `spawn` starts
a program in a session of its own, on request ahead of all others (needs
root); `finished` waits for it and says what it used.
"""
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "benchmarks", "results")
TICKS = os.sysconf("SC_CLK_TCK")
AHEAD = "-19"  # the most urgent niceness


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def machine():
    """What a reader must know to compare."""
    text = "\n".join(lines_of("/proc/cpuinfo"))
    cpu = re.search(r"^model name[^:]*: *(.*)$", text, re.M)
    flags = re.search(r"^flags[^:]*: *(.*)$", text, re.M)
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
    memory = int(re.search(r"MemTotal: *(\d+)",
                           "\n".join(lines_of("/proc/meminfo"))).group(1))
    return {"date": str(datetime.date.today()),
            "cpu": cpu.group(1) if cpu else os.uname().machine,
            "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(memory / 1e6, 1),
            "has": [name for name in wanted
                    if flags and name in flags.group(1).split()]}


def file_start():
    """How the names of stored results begin, as in run.sh."""
    facts = machine()
    cpu = re.sub("[^A-Za-z0-9]+", "-", facts["cpu"]).strip("-")
    return f"{facts['date']}-{cpu}-"


def store(out, kind, program, rows):
    """Rows of a table beside what they were measured on; where, and all."""
    start = os.path.join(out, file_start() + kind)
    result = {**machine(), "command": " ".join([program, *sys.argv[1:]]),
              "rows": rows}
    os.makedirs(out, exist_ok=True)
    with open(start + ".json", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    return start, result


def busy_s():
    """Seconds that all cores worked since the machine started."""
    fields = [int(x) for x in lines_of("/proc/stat")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def used_s(pid):
    """Processor seconds of a running program, all threads."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Watch:
    """Cores that programs other than the measured one kept busy."""

    def __init__(self):
        self.began, self.busy = time.monotonic(), busy_s()

    def others(self, own_s):
        took = max(time.monotonic() - self.began, 1e-3)
        return round(max(busy_s() - self.busy - own_s, 0) / took, 2)


def ahead():
    """Runs in the child: its session goes before all others."""
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(AHEAD)
    except OSError:
        pass  # a kernel without groups of sessions
    os.nice(int(AHEAD))


def spawn(command, first=False, **more):
    """A program in its own session; first: ahead of all others."""
    return subprocess.Popen(command, start_new_session=True, text=True,
                            preexec_fn=ahead if first else None, **more)


def finished(child):
    """(exit code, processor seconds, peak resident MB)"""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return (child.returncode, usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024)


def spread(values):
    """Median, least and most, and all of them in the order they came."""
    if not values:
        return None
    return {"median": statistics.median(values), "least": min(values),
            "most": max(values), "all": values}
