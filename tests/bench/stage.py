"""What is measured on a node: one agent, more and more pods. Runs inside
tests/e2e/world/enter.

`stage.py SUBJECT ROW...` prints one line of JSON: {row: {figure: value}}. SUBJECT is `steplet`,
or the path of the reference kubelet. All rows use the same steps, so that both are measured alike;
`takeover` alone has both agents, one after the other.
"""

import json
import os
import re
import shutil
import signal
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e/world"))
import agent as a  # noqa: E402
import containerd  # noqa: E402

IDLE_SECONDS = int(os.environ.get("IDLE_SECONDS", "60"))
SETTLE_SECONDS = 20
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: registry.k8s.io/pause:3.10
    imagePullPolicy: IfNotPresent
    resources: {requests: {cpu: 1m, memory: 4Mi}}
"""
# The reference alone: its defaults would take the disk of a busy test machine for a full one.
CALM = "evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}\n"


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


# ---- a process and its helpers ------------------------------------------------------------------


def family(pid):
    """The process and its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    children.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(
                        int(entry)
                    )
            except OSError:
                continue
    out, todo = [], [pid]
    while todo:
        one = todo.pop()
        out.append(one)
        todo += children.get(one, [])
    return out


def rss_mib(pid):
    """Resident memory of the process and its helpers, in MiB."""
    total = 0
    for one in family(pid):
        try:
            total += a.status_number(one, "VmRSS")
        except (OSError, LookupError):
            continue  # ended meanwhile
    return total / 1024


def cpu_seconds(pid):
    """Processor time of the process, its threads and its helpers, ended ones included."""
    total = 0.0
    for one in family(pid):
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/schedstat") as file:
                    total += int(file.read().split()[0]) / 1e9
        except OSError:
            continue
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return total + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def long_turns(agent):
    """What the agent said of each turn over 10 ms."""
    with open(agent.log, errors="replace") as log:
        return [line.split("] ", 1)[-1].strip() for line in log if "A turn of the loop" in line]


def metric(pattern):
    """The sum of the values of all series that match, or None."""
    text = a.get("/metrics")[1].decode()
    found = [float(line.split()[-1]) for line in text.splitlines() if re.match(pattern, line)]
    return sum(found) if found else None


# ---- pods ---------------------------------------------------------------------------------------


def have_pods(count):
    for number in range(count):
        path = f"{a.MANIFESTS}/pod-{number:03}.yaml"
        if not os.path.exists(path):
            a.place(f"pod-{number:03}.yaml", text=POD.replace("NAME", f"pod-{number:03}"))
    begin = time.monotonic()

    def all_run():
        """Sandbox and container of each: the runtime's word, not the agent's."""
        return sum(status == "RUNNING" for _, status in containerd.tasks().values()) >= 2 * count

    a.until(f"{count} pods run", all_run, 120 + 2 * count, every=0.5)
    say(f"{count} pods run after {time.monotonic() - begin:.0f} s")
    time.sleep(SETTLE_SECONDS)


def fresh_status(count):
    """True when the agent tells the state of that many running containers, seen since its start."""
    found = a.pods().values()
    return (
        sum(1 for pod in found if a.ready(pod) and a.container_status(pod).get("containerID"))
        >= count
    )


# ---- rows ---------------------------------------------------------------------------------------


def memory(agent):
    return {"rss_mib": rss_mib(agent.pid), "processes": len(family(agent.pid))}


def idle(agent):
    before, begin = cpu_seconds(agent.pid), time.monotonic()
    time.sleep(IDLE_SECONDS)
    return {"percent_of_core": 100 * (cpu_seconds(agent.pid) - before) / (time.monotonic() - begin)}


def restart(agent, count, times):
    took = []
    for _ in range(times):
        agent.end(signal.SIGKILL)
        begin = time.monotonic()
        agent.start(wait=False)
        a.until("the status of all pods", lambda: fresh_status(count), 60, every=0.002)
        took.append(1000 * (time.monotonic() - begin))
        time.sleep(3)
    return {"median_ms": statistics.median(took), "worst_ms": max(took), "times": times}


def takeover(reference, count=10):
    """Containers that do not survive when this agent takes a node over from the reference."""
    before = a.Agent(config=a.CONFIG + CALM, reference=reference)
    before.start()
    for number in range(count):
        # A fixed uid: without one it is a hash of the reference's own memory layout.
        text = POD.replace(
            "{name: NAME}", f"{{name: taken-{number}, uid: 5e7e0000-0000-4000-8000-{number:012}}}"
        )
        a.place(f"taken-{number}.yaml", text=text)
    a.until(
        "the reference's pods run",
        lambda: sum(a.ready(pod) for pod in a.pods().values()) >= count,
        120,
    )
    had = {name for name, (_, status) in containerd.tasks().items() if status == "RUNNING"}
    before.end(signal.SIGTERM)
    after = a.Agent()
    after.start()
    a.until("the pods are known", lambda: fresh_status(count), 60)
    time.sleep(10)
    have = {name for name, (_, status) in containerd.tasks().items() if status == "RUNNING"}
    after.end(signal.SIGTERM)
    return {"lost": len(had - have), "new": len(have - had), "tasks": len(had)}


CALL = re.compile(
    r'time="([^"]+)".*msg="'
    r'(RunPodSandbox|CreateContainer within sandbox \S+|StartContainer) for (.*)"'
)


def start_share(agent, count):
    """Pods one by one: from the manifest's rename to StartContainer answered, less the three calls
    that containerd's log has with the times of their begin and return: no word of the agent's, but
    statuses, the way of a call into containerd, and the wait for a CPU count as the agent's.
    """
    own, calls = [], []
    for number in range(count):
        name = f"start-{number}"
        with open(containerd.LOG, "rb") as log:
            log.seek(0, os.SEEK_END)
            a.place(f"{name}.yaml", text=POD.replace("NAME", name))
            placed = time.time()
            a.until(f"{name} runs", lambda: a.live(name), 60)
            time.sleep(0.2)
            text = log.read().decode(errors="replace")
        spent, open_call, ended = 0.0, None, None
        for line in text.splitlines():
            found = CALL.search(line)
            if not found:
                continue
            at = seconds_of(found[1])
            if "returns" in found[3]:
                if open_call is not None:
                    spent += at - open_call
                open_call = None
                ended = at if found[2] == "StartContainer" else ended
            else:
                open_call = at
        if ended is None:
            raise a.Failure(f"containerd's log has no StartContainer of {name}")
        own.append(1000 * (ended - placed - spent))
        calls.append(1000 * spent)
        a.remove(f"{name}.yaml")
        a.until(f"{name} is gone", lambda: not a.live(name), 60)
    own.sort()
    return {
        "own_p50_ms": statistics.median(own),
        "own_p99_ms": own[int(len(own) * 0.99)],
        "calls_p50_ms": statistics.median(calls),
        "pods": count,
    }


STARTS = {"RunPodSandbox", "PullImage", "CreateContainer", "StartContainer"}
LOOKS = {"PodSandboxStatus", "ImageStatus", "ContainerStatus"}


def share_by_tape(tapes):
    """The same pods as the agent's tape has them: from the word that the manifest directory changed
    to the answer of StartContainer, less the time in which a CRI call of the start was out.
    """
    code, text = a.steplet("tape", "show", "--json", tapes, timeout=120)
    if code:
        raise a.Failure(f"steplet tape show ended with {code}: {text.strip()[-200:]}")
    own, changed, begin = [], None, None
    for row in map(json.loads, filter(lambda line: line.startswith("{"), text.splitlines())):
        event, at = row.get("event"), row.get("mono")
        event = event if isinstance(event, dict) else {}
        item = event.get("Item", {}).get("item")
        if item == "PathChanged":
            changed = at
        elif isinstance(item, dict) and '"name": "start-' in json.dumps(item):
            begin, spent, waiting, has_sandbox = changed, 0, {}, False
        if begin is None:
            continue
        name = waiting.pop(event.get("Done", {}).get("token"), None)
        if name:
            has_sandbox |= name == "RunPodSandbox"
            spent += 0 if waiting else at - waited_since
        if name == "StartContainer":
            own.append((at - begin - spent) / 1e6)
            begin = None
            continue
        for effect in row.get("effects", []):
            call = effect.get("Call") if isinstance(effect, dict) else None
            rpc = call["call"].get("Rpc") if call else None
            method = rpc["path"].rsplit("/", 1)[1] if rpc else ""
            # A look before the sandbox is there is at the pod before, which is being removed.
            if method in STARTS or (method in LOOKS and has_sandbox):
                waited_since = waited_since if waiting else at
                waiting[call["token"]] = method
    own.sort()
    return {"own_p50_ms": statistics.median(own), "own_p99_ms": own[int(len(own) * 0.99)]}


def seconds_of(stamp):
    """RFC 3339 with nanoseconds, in UTC or with an offset, to seconds since 1970."""
    import datetime

    whole, fraction, zone = re.fullmatch(r"([^.]+)(\.\d+)?(Z|[+-]\d\d:\d\d)", stamp).groups()
    zone = "+00:00" if zone == "Z" else zone
    return datetime.datetime.fromisoformat(whole + zone).timestamp() + float(fraction or 0)


COMPRESSED = re.compile(r"^  compressed +(\d+)", re.M)


def tape_bytes(agent):
    """Bytes of the tape if all segments were compressed, by `steplet tape stat`; or None."""
    found = COMPRESSED.search(a.steplet("tape", "stat", f"{agent.state}/tapes")[1])
    return int(found[1]) if found else None


def recorder(agent):
    """Growth of the compressed tape with ten idle pods, and the recorder's processor time."""
    cost = "steplet_recorder_seconds_total"
    spent, size, begin = metric(cost), tape_bytes(agent), time.monotonic()
    time.sleep(IDLE_SECONDS)
    passed, out = time.monotonic() - begin, {}
    if size is not None:
        out["mb_a_day"] = (tape_bytes(agent) - size) * 86400 / passed / 1e6
    if spent is not None:
        out["percent_of_core"] = 100 * (metric(cost) - spent) / passed
    return out


def replay(before, after, seconds):
    """How fast the time between two copies of a tape is replayed, against real time: what the later
    one takes longer. The best of several runs of each, since the idle time is a few milliseconds.
    """
    took = {}
    for tape in [before, after] * 10:
        begin = time.monotonic()
        code, out = a.steplet("replay", tape, timeout=600)
        if code:
            return {"missing": f"steplet replay ended with {code}: {out.strip()[-200:]}"}
        took[tape] = min(took.get(tape, 1e9), time.monotonic() - begin)
    more = took[after] - took[before]
    return {
        "times_real": seconds / max(more, 1e-4),
        "whole_seconds": took[after],
        "last_line": out.strip().splitlines()[-1],
    }


def main():
    subject, rows = sys.argv[1], set(sys.argv[2:])
    if rows == {"takeover"}:
        print(json.dumps({"takeover": takeover(subject)}))
        return
    ours = subject == "steplet"
    agent = a.Agent(config=a.CONFIG + ("" if ours else CALM), reference=None if ours else subject)
    out = {}
    agent.start()
    time.sleep(2)
    if "start" in rows:
        say("a pod's start, one by one")
        out["start"] = start_share(agent, 120 if ours else 5)
        if ours:
            out["start_by_tape"] = share_by_tape(f"{agent.state}/tapes")
    if rows & {"memory", "recorder"}:
        have_pods(10)
        if "memory" in rows:
            out["memory_10"] = memory(agent)
        if "recorder" in rows and ours:
            say(f"the recorder, {IDLE_SECONDS} s")
            out["recorder"] = recorder(agent)
    if rows & {"idle", "restart", "turn", "replay"}:
        have_pods(50)
        if rows & {"idle", "replay"}:
            say(f"50 idle pods, {IDLE_SECONDS} s")
            tapes = [shutil.copytree(f"{agent.state}/tapes", "/run/tape-before")] if ours else []
            begin = time.monotonic()
            out["idle"] = idle(agent)
            passed = time.monotonic() - begin
        if "turn" in rows and ours:
            out["turn"] = {
                "p999_ms": 1000 * (metric(r'steplet_turn_seconds\{quantile="0.999"\}') or 0),
                "longest_ms": 1000 * (metric(r'steplet_turn_seconds\{quantile="1"\}') or 0),
                "count": metric(r"steplet_turn_seconds_count"),
                "long": long_turns(agent),
            }
        if "replay" in rows and ours:
            tapes.append(shutil.copytree(f"{agent.state}/tapes", "/run/tape-after"))
            out["replay"] = replay(*tapes, passed)
        if "restart" in rows:
            say("restarts with 50 pods")
            out["restart"] = restart(agent, 50, 10 if ours else 2)
    if "memory" in rows:
        have_pods(110)
        out["memory_110"] = memory(agent)
    out["threads"] = {"most": agent.threads_max}
    print(json.dumps(out))


if __name__ == "__main__":
    try:
        main()
    except a.Failure as failure:
        say(f"{failure}")
        sys.exit(1)
