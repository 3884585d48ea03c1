"""Hours of trouble on one node: pods come, change and go; agent, containers and runtime are
killed.

`soak.py HOURS [SEED]`, inside world/enter (`make soak`). Each round does a few random things, then
demands that all is as the manifests say, and prints a line with what could creep: memory,
descriptors, containers.
"""

import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "world"))
import agent as a  # noqa: E402
import containerd  # noqa: E402

POOL = (
    "hello",
    "guaranteed",
    "burstable",
    "besteffort",
    "init-containers",
    "emptydir",
    "stubborn",
    "graceful",
    "two-containers",
)
SETTLE_SECONDS = 330  # a container that is killed again and again backs off for up to 300 s


class Soak:
    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.agent = a.Agent()
        self.placed = {}  # name -> how often it was edited

    # ---- what can happen ----

    def place(self):
        free = [name for name in POOL if name not in self.placed]
        if free:
            name = self.dice.choice(free)
            a.place(f"{name}.yaml")
            self.placed[name] = 0

    def remove(self):
        if self.placed:
            name = self.dice.choice(sorted(self.placed))
            a.remove(f"{name}.yaml")
            del self.placed[name]

    def edit(self):
        if self.placed:
            name = self.dice.choice(sorted(self.placed))
            self.placed[name] += 1
            label = f"metadata:\n  labels: {{edit: e{self.placed[name]}}}\n  name: {name}\n"
            text = a.fixture(f"{name}.yaml").replace("  labels:\n    app: hello\n", "")
            a.place(f"{name}.yaml", text=text.replace(f"metadata:\n  name: {name}\n", label))

    def kill_agent(self):
        self.agent.restart(signal.SIGKILL)

    def stop_agent(self):
        self.agent.restart(signal.SIGTERM)

    def kill_container(self):
        running = [pid for pid, status in containerd.tasks().values() if status == "RUNNING"]
        if running:
            os.kill(self.dice.choice(running), signal.SIGKILL)

    def restart_containerd(self):
        containerd.stop(self.dice.choice([signal.SIGTERM, signal.SIGKILL]))
        time.sleep(self.dice.uniform(0, 3))
        containerd.start()

    def stall_containerd(self):
        containerd.stall()
        time.sleep(self.dice.uniform(0.5, 5))
        containerd.resume()

    # ---- what must hold afterwards ----

    def settled(self):
        """None when all is as it should be, else what is not."""
        known = a.pods()
        if sorted(known) != sorted(self.placed):
            return f"pods {sorted(known)}, manifests {sorted(self.placed)}"
        for name, pod in known.items():
            if not a.ready(pod):
                return f"{name} is not Ready"
            if (
                self.placed[name]
                and pod["metadata"]["labels"].get("edit") != f"e{self.placed[name]}"
            ):
                return f"{name} has an old version"
        live = {}
        for info in containerd.containers():
            if info["status"] == "RUNNING":
                key = (
                    a.containerd.label(info, "pod.name"),
                    a.containerd.label(info, "container.name"),
                )
                live[key] = live.get(key, 0) + 1
        want = {}
        for name, pod in known.items():
            for container in [""] + [c["name"] for c in pod["spec"]["containers"]]:
                want[(f"{name}-{a.NODE}", container)] = 1
        return None if live == want else f"running {live}, wanted {want}"

    def round(self):
        deeds = [
            self.place,
            self.place,
            self.remove,
            self.edit,
            self.kill_agent,
            self.stop_agent,
            self.kill_container,
            self.restart_containerd,
            self.stall_containerd,
        ]
        done = []
        for _ in range(self.dice.randint(1, 6)):
            deed = self.dice.choice(deeds)
            deed()
            done.append(deed.__name__)
            time.sleep(self.dice.uniform(0, 2))
        begin, seen = time.monotonic(), "not looked at"
        while seen:
            try:
                seen = self.settled()
            except (OSError, RuntimeError, a.Failure, LookupError) as error:
                seen = repr(error)
            if seen and time.monotonic() - begin > SETTLE_SECONDS:
                raise a.Failure(f"not settled {SETTLE_SECONDS} s after {', '.join(done)}: {seen}")
            time.sleep(0.5 if seen else 0)
        if not self.agent.reference:
            a.same("threads", self.agent.threads_max, 1)
        return done, time.monotonic() - begin


def main():
    hours = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    print(f"soak: {hours:g} hours, seed {seed}", flush=True)
    soak, end, rounds = Soak(seed), time.monotonic() + 3600 * hours, 0
    soak.agent.start()
    try:
        while time.monotonic() < end:
            done, took = soak.round()
            rounds += 1
            rss = a.status_number(soak.agent.pid, "VmRSS")
            handles = len(os.listdir(f"/proc/{soak.agent.pid}/fd"))
            state = f"{rss} KiB, {handles} descriptors, {len(containerd.tasks())} tasks"
            print(f"soak: {rounds}: {' '.join(done)}: {took:.1f} s, {state}", flush=True)
        soak.agent.end(signal.SIGTERM)
        if not soak.agent.reference:
            code, out = a.steplet("replay", f"{soak.agent.state}/tapes", timeout=3600)
            a.same(f"steplet replay ({out.strip()[-300:]})", code, 0)
    except a.Failure as failure:
        print(f"soak: FAILED after {rounds} rounds, seed {seed}: {failure}")
        print("\n".join(soak.agent.output().splitlines()[-40:]))
        sys.exit(1)
    print(f"soak: {rounds} rounds, all settled")


if __name__ == "__main__":
    main()
