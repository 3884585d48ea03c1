#!/usr/bin/env python3
"""Records what a kubelet does with the pods in cases/ as normalised JSON, and compares two records.

  twin.py record --out DIR --kubeconfig F --sock S --manifests D --root D --scratch D [--only GLOB]
  twin.py compare GOLDEN DIR [--only GLOB] [--ignore PATH]...
  twin.py list                                    cases per area
  twin.py clean --kubeconfig F --manifests D      what an interrupted run left

The header language and the normalisation rules are in README.md."""

import argparse, base64, fnmatch, glob, http.client, json, os, queue, random, re, shlex, shutil, ssl
import string, subprocess, sys, threading, time, urllib.parse
import yaml

sys.dont_write_bytecode = True
from norm import Norm, compare, distinct, dump, fold, node_facts, norm_status, statuses, trail

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {
    k: (p, r, n)
    for k, p, r, n in [
        ("Pod", "/api/v1", "pods", 1),
        ("ConfigMap", "/api/v1", "configmaps", 1),
        ("Secret", "/api/v1", "secrets", 1),
        ("Service", "/api/v1", "services", 1),
        ("PersistentVolumeClaim", "/api/v1", "persistentvolumeclaims", 1),
        ("ServiceAccount", "/api/v1", "serviceaccounts", 1),
        ("PersistentVolume", "/api/v1", "persistentvolumes", 0),
        ("RuntimeClass", "/apis/node.k8s.io/v1", "runtimeclasses", 0),
        ("Namespace", "/api/v1", "namespaces", 0),
    ]
}
PREFIX = "tw-"
NOT_KUBELET = ("default-scheduler", "persistentvolume-controller", "taint-eviction-controller")


# ---------------------------------------------------------------- case files
class Case:
    def __init__(self, path):
        self.name = os.path.basename(path)[:-5]
        self.text = open(path, encoding="utf-8").read()
        self.set, self.steps, self.ignore, self.unordered = {}, [], [], []
        for line in re.findall(r"^# twin: *(.*?) *$", self.text, re.M):
            word, _, rest = line.partition(" ")
            if word in ("area", "restarts", "timeout", "secs"):
                self.set[word] = rest
            elif word in ("static", "alone", "slow", "immediate", "backoffs", "nocri"):
                self.set[word] = True
            elif word in ("ignore", "unordered"):
                p, sep, why = rest.partition(" because ")
                if not sep:
                    raise SystemExit(f"{path}: '{word}' needs 'because'")
                getattr(self, word).append(p.strip())
            else:
                self.steps.append(line[5:] if line.startswith("then ") else line)
        if "area" not in self.set:
            raise SystemExit(f"{path}: no area")


def load_cases(d, only=None):
    cs = [Case(p) for p in sorted(glob.glob(os.path.join(d, "*.yaml")))]
    return [c for c in cs if not only or any(fnmatch.fnmatch(c.name, g) for g in only)]


# ---------------------------------------------------------------- API server
class API:
    def __init__(self, kubeconfig):
        k = yaml.safe_load(open(kubeconfig))
        cl, us = k["clusters"][0]["cluster"], k["users"][0]["user"]
        u = urllib.parse.urlparse(cl["server"])
        self.host = u.netloc
        self.ctx = ssl.create_default_context(cafile=cl["certificate-authority"])
        self.ctx.load_cert_chain(us["client-certificate"], us["client-key"])
        self.local = threading.local()

    def raw(self, method, path, body=None, ctype="application/json", timeout=60):
        for i in range(4):
            c = getattr(self.local, "c", None) or http.client.HTTPSConnection(
                self.host, context=self.ctx, timeout=timeout
            )
            self.local.c = c
            try:
                c.request(
                    method,
                    path,
                    json.dumps(body) if body is not None else None,
                    {"Content-Type": ctype},
                )
                r = c.getresponse()
                return r.status, r.read()
            except (http.client.HTTPException, OSError):
                c.close()
                self.local.c = None
                time.sleep(0.3 * i)
        return 599, b"{}"

    def call(self, method, path, body=None, **kw):
        s, d = self.raw(method, path, body, **kw)
        try:
            return s, json.loads(d)
        except ValueError:
            return s, {"message": d.decode("utf-8", "replace")}


def url(kind, ns, name="", sub=""):
    p, r, nsd = KINDS[kind]
    return (
        p
        + (f"/namespaces/{ns}" if nsd else "")
        + f"/{r}"
        + (f"/{name}" if name else "")
        + (f"/{sub}" if sub else "")
    )


class Watch:
    """Pods and events of all namespaces, kept in order of arrival."""

    def __init__(self, api):
        self.api, self.cv = api, threading.Condition()
        self.pods, self.events, self.touched = {}, {}, {}
        for res in ("pods", "events"):
            threading.Thread(target=self.run, args=(res,), daemon=True).start()

    def run(self, res):
        rv = None
        while True:
            try:
                if rv is None:
                    rv = self.api.call("GET", f"/api/v1/{res}?limit=1")[1]["metadata"][
                        "resourceVersion"
                    ]
                c = http.client.HTTPSConnection(self.api.host, context=self.api.ctx, timeout=900)
                c.request("GET", f"/api/v1/{res}?watch=1&timeoutSeconds=800&resourceVersion={rv}")
                for line in c.getresponse():
                    e = json.loads(line)
                    if e["type"] == "ERROR":
                        rv = None
                        break
                    o = e["object"]
                    rv, ns = o["metadata"]["resourceVersion"], o["metadata"].get("namespace", "")
                    if not ns.startswith(PREFIX):
                        continue
                    with self.cv:
                        if res == "pods":
                            self.pods.setdefault(ns, {}).setdefault(
                                o["metadata"]["name"], []
                            ).append((e["type"], o))
                        elif e["type"] != "DELETED":
                            self.events.setdefault(ns, {})[o["metadata"]["name"]] = o
                        self.touched[ns] = time.time()
                        self.cv.notify_all()
            except Exception:
                time.sleep(0.5)


# ---------------------------------------------------------------- one run of one case
class Run:
    def __init__(self, o, api, watch, case):
        self.o, self.api, self.w, self.c = o, api, watch, case
        r = "".join(random.choice(string.ascii_lowercase + string.digits) for _ in range(5))
        self.ns = f"{PREFIX}{case.name}-{r}"
        self.dir = os.path.join(o.scratch, self.ns)
        self.docs = [d for d in yaml.safe_load_all(self.sub(case.text)) if d]
        self.static = {}
        if case.set.get("static"):
            self.static = {
                i: d
                for i, d in enumerate(
                    [
                        d
                        for d in self.docs
                        if d["kind"] == "Pod" and "twin-api" not in d["metadata"].get("labels", {})
                    ]
                )
            }
        first = next(iter(self.static.values()), None) or next(
            (d for d in self.docs if d["kind"] == "Pod"), None
        )
        self.pod0 = first and first["metadata"]["name"] + (f"-{o.node}" if self.static else "")
        self.steps, self.snaps, self.at, self.cri, self.bad = [], {}, {}, {}, []

    def sub(self, t):
        for k, v in (
            ("@ns@", self.ns),
            ("@dir@", self.dir),
            ("@node@", self.o.node),
            ("@root@", self.o.root),
            ("@nodeip@", self.o.nodeip),
            ("@kubectl@", f"{self.o.kubectl} --kubeconfig {self.o.kubeconfig}"),
        ):
            t = t.replace(k, v)
        if "@uid@" not in t or not hasattr(self, "pod0"):
            return t
        m = self.latest(self.pod0)["metadata"]
        return t.replace(
            "@uid@", m.get("annotations", {}).get("kubernetes.io/config.hash") or m["uid"]
        )

    def hist(self, pod):
        return self.w.pods.get(self.ns, {}).get(pod, [])

    def latest(self, pod):
        h = self.hist(pod)
        return h[-1][1] if h else {"metadata": {"uid": "none"}}

    def gone(self, pod):
        h = self.hist(pod)
        return bool(h) and h[-1][0] == "DELETED"

    # ---- conditions of `until`
    def holds(self, pod, cond):
        m = re.fullmatch(r"(?:([a-z0-9-]+)\.)?([a-z]+|cond\.[\w./-]+)(?:(>=|=)(.*))?", cond)
        if not m:
            raise ValueError(f"bad condition {cond}")
        cname, key, op, val = m.groups()
        if key == "gone":
            return self.gone(pod)
        if key == "uids":
            return len({o["metadata"]["uid"] for _, o in self.hist(pod)}) >= int(
                val
            ) and not self.gone(pod)
        if key == "event":
            return any(
                e["reason"] in val.split("|") and e["involvedObject"]["name"] == pod
                for e in self.w.events.get(self.ns, {}).values()
            )
        p = self.latest(pod)
        s, h = p.get("status", {}), self.hist(pod)
        if not h or h[-1][0] == "DELETED":
            return False
        if key == "exists":
            return True
        if key in ("phase", "reason"):
            return s.get(key, "") in val.split("|")
        conds = {c["type"]: c["status"] for c in s.get("conditions", [])}
        if key == "ready" and not cname:
            return conds.get("Ready") == {None: "True", "true": "True", "false": "False"}[val]
        if key.startswith("cond."):
            return conds.get(key[5:]) == val
        if key == "observed":
            return s.get("observedGeneration") == p["metadata"].get("generation")
        for _, c in statuses(p):
            if cname and c["name"] != cname:
                continue
            st = c.get("state") or {}
            if key in ("waiting", "running", "terminated"):
                if key in st and (val is None or st[key].get("reason", "") in val.split("|")):
                    return True
            elif key == "last":
                if (c.get("lastState") or {}).get("terminated", {}).get("reason", "") in (
                    val or ""
                ).split("|"):
                    return True
            elif key == "restarts":
                if c["restartCount"] >= int(val):
                    return True
            elif key in ("ready", "started"):
                if c.get(key, False) == (val != "false"):
                    return True
            else:
                raise ValueError(f"bad condition {cond}")
        return False

    def until(self, pod, conds, t):
        end = time.time() + t
        with self.w.cv:
            while not all(self.holds(pod, c) for c in conds):
                left = end - time.time()
                if left <= 0:
                    return False
                self.w.cv.wait(left)
            self.at[pod] = self.latest(pod)
        return True

    def quiet(self, secs=3, cap=25):
        end = time.time() + cap
        while time.time() < end and time.time() - self.w.touched.get(self.ns, 0) < secs:
            time.sleep(0.2)

    def cmd(self, args, t=90, inp=None):
        try:
            r = subprocess.run(args, input=inp, capture_output=True, timeout=t)
        except subprocess.TimeoutExpired as x:
            return 124, (x.stdout or b"").decode("utf-8", "replace"), "timeout"
        return (
            r.returncode,
            r.stdout.decode("utf-8", "replace"),
            r.stderr.decode("utf-8", "replace"),
        )

    def kubectl(self, *a, **kw):
        return self.cmd(
            [self.o.kubectl, "--kubeconfig", self.o.kubeconfig, "-n", self.ns, *a], **kw
        )

    # ---- objects
    def create(self, d):
        ns = d["metadata"].get("namespace", self.ns)
        s, r = self.api.call("POST", url(d["kind"], ns), d)
        return "created" if s == 201 else f"{s} {r.get('reason', '')}: {r.get('message', '')}"

    def manifest(self, i):
        return os.path.join(self.o.manifests, f"twin-{self.ns}-{i}.yaml")

    def place(self, i, text):
        tmp = os.path.join(self.o.manifests, f".twin-{self.ns}-{i}")
        with open(tmp, "w") as f:
            f.write(text)
        os.rename(tmp, self.manifest(i))

    def find(self, ref):
        k, n = ref.split("/")
        return next(d for d in self.docs if d["kind"].lower() == k and d["metadata"]["name"] == n)

    # ---- steps
    def step(self, line):
        pod = self.pod0
        m = re.match(r"on (\S+): (.*)", line)
        if m:
            pod = self.sub(m[1])
        word, _, rest = self.sub(m[2] if m else line).partition(" ")
        opts, lim = {}, float(self.c.set.get("timeout", 150))
        if word in ("until", "delete", "logs"):
            opts = dict(re.findall(r"\b(within|took|grace|tail|since|limit)=(\S+)", rest))
            rest = re.sub(r"\b(within|took|grace|tail|since|limit)=\S+ ?", "", rest).strip()
            lim = float(opts.get("within", lim))
        if word in ("hold", "delete", "patch", "edit", "remove", "place", "apply"):
            self.at.clear()
        t0, res = time.time(), None

        def took(r):
            if "took" not in opts:
                return r
            a, b = map(float, opts["took"].split(".."))
            dt = time.time() - t0
            return f"{r} in time" if a <= dt <= b else f"{r} after {dt:.0f}s, not in {opts['took']}"

        if word == "until":
            ok = self.until(pod, rest.split(), lim)
            res = took("met" if ok else "timeout")
        elif word == "hold":
            time.sleep(float(rest.rstrip("s")))
        elif word == "quiet":
            self.quiet()
        elif word == "snap":
            self.quiet(2)
            self.snaps[rest] = self.latest(pod)
        elif word == "cri":
            self.collect_cri()
        elif word == "apply":
            res = self.create(self.find(rest))
        elif word == "delete":
            self.collect_cri()
            ref = next(x for x in rest.split() if "/" in x) if "/" in rest else f"pod/{pod}"
            k, n = ref.split("/")
            kind = next(x for x in KINDS if x.lower() == k)
            s, r = self.api.call(
                "DELETE",
                url(kind, self.ns, n),
                {"gracePeriodSeconds": int(opts["grace"])} if "grace" in opts else {},
            )
            res = s if s == 200 or s == 202 else f"{s} {r.get('message')}"
            if kind == "Pod" and "nowait" not in rest:
                res = took("gone" if self.until(n, ["gone"], lim) else "timeout")
        elif word == "patch":
            ref, _, body = rest.partition(" ")
            k, n, *sub = ref.split("/")
            kind = next(x for x in KINDS if x.lower() == k)
            s, r = self.api.call(
                "PATCH",
                url(kind, self.ns, n if n != "-" else pod, "".join(sub)),
                json.loads(body),
                ctype="application/strategic-merge-patch+json",
            )
            res = s if s == 200 else f"{s} {r.get('message')}"
        elif word in ("exec", "exec-until"):
            rx = None
            if word == "exec-until":
                rx, _, rest = rest.partition(" ")
            c, _, cmdline = rest.partition(" -- ")
            while True:
                rc, out, err = self.kubectl("exec", pod, "-c", c, "--", *shlex.split(cmdline))
                err = "\n".join(l for l in err.split("\n") if "websocket.go" not in l)
                if not rx or re.search(rx, out) or time.time() - t0 > lim:
                    break
                time.sleep(2)
            res = {"rc": rc, "out": out, "err": err}
        elif word == "attach":
            c, _, text = rest.partition(" -- ")
            rc, out, err = self.kubectl(
                "attach",
                "-i",
                pod,
                "-c",
                c,
                inp=text.encode().decode("unicode_escape").encode(),
                t=40,
            )
            res = {
                "rc": rc,
                "out": "\n".join(l for l in out.split("\n") if not l.startswith("If you don't")),
                "err": "\n".join(
                    l
                    for l in err.split("\n")
                    if not re.search("^If you don't|^All commands and output|websocket.go", l)
                ),
            }
        elif word == "logs":
            c, *fl = rest.split()
            q = {
                "container": c,
                **({"tailLines": opts["tail"]} if "tail" in opts else {}),
                **({"sinceSeconds": opts["since"]} if "since" in opts else {}),
                **({"limitBytes": opts["limit"]} if "limit" in opts else {}),
                **{f: "true" for f in fl if f in ("previous", "timestamps")},
            }
            s, d = self.api.raw(
                "GET", url("Pod", self.ns, pod, "log") + "?" + urllib.parse.urlencode(q)
            )
            res = {"code": s, "out": d.decode("utf-8", "replace")}
        elif word == "get":
            s, d = self.api.raw("GET", rest)
            res = {"code": s, "out": d.decode("utf-8", "replace")}
        elif word == "code":
            res = {"code": self.api.raw("GET", rest)[0]}
        elif word == "node":
            res = {"value": node_facts(self.api, self.o.node)}
        elif word == "forward":
            port, _, path = rest.partition(" ")
            p = subprocess.Popen(
                [
                    self.o.kubectl,
                    "--kubeconfig",
                    self.o.kubeconfig,
                    "-n",
                    self.ns,
                    "port-forward",
                    pod,
                    f":{port}",
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            m = re.search(rb":(\d+) ->", p.stdout.readline())
            rc, out, err = self.cmd(
                ["curl", "-s", "-m", "10", f"http://127.0.0.1:{int(m[1])}{path}"]
            )
            p.terminate()
            p.wait()
            res = {"rc": rc, "out": out}
        elif word == "host":
            rc, out, err = self.cmd(["bash", "-c", rest.removeprefix("-- ")])
            res = {"rc": rc, "out": out, "err": err}
        elif word == "remove":
            self.collect_cri()
            os.unlink(self.manifest(int(rest or 0)))
        elif word == "place":
            self.place(
                int(rest or 0), yaml.safe_dump(self.static[int(rest or 0)], allow_unicode=True)
            )
        elif word == "edit":
            a, _, b = rest.partition(" => ")
            self.place(0, open(self.manifest(0)).read().replace(a, b))
        else:
            raise ValueError(f"unknown step {word}")
        if isinstance(res, str) and res.startswith("timeout"):
            self.bad.append(line)
        self.steps.append((line, res))

    # ---- what the kubelet told the container runtime
    def ctr(self, *a):
        return self.cmd([self.o.ctr, "-a", self.o.sock, "-n", "k8s.io", *a])

    def collect_cri(self):
        if self.c.set.get("nocri"):
            return
        rc, out, _ = self.ctr("c", "ls", "-q", f'labels."io.kubernetes.pod.namespace"=={self.ns}')
        for i in out.split():
            rc, out, _ = self.ctr("c", "info", i)
            if rc:
                continue
            d = json.loads(out)
            ext = next(
                (v for k, v in d.get("Extensions", {}).items() if k.endswith("metadata")), None
            )
            if not ext:
                continue
            m = json.loads(base64.b64decode(ext["value"]))["Metadata"]
            cfg, l = m["Config"], d["Labels"]
            box = l["io.cri-containerd.kind"] == "sandbox"
            day, _, part = d["CreatedAt"].rstrip("Z").partition(".")
            at = (day, float("0." + (part or "0")))
            key = (l["io.kubernetes.pod.name"], "<sandbox>" if box else cfg["metadata"]["name"])
            if key not in self.cri or self.cri[key][0] <= at:
                self.cri[key] = (at, cfg, d.get("Spec") or {}, m)

    def cri_out(self, n, pod):
        out = {}
        for (p, name), (_, cfg, spec, m) in sorted(self.cri.items()):
            if p != pod:
                continue
            cfg = json.loads(json.dumps(cfg))
            cfg["metadata"].pop("attempt" if self.c.set.get("restarts") else "", None)
            if self.c.set.get("restarts"):
                cfg.pop("log_path", None)
                if "io.kubernetes.container.restartCount" in cfg.get("annotations", {}):
                    cfg["annotations"]["io.kubernetes.container.restartCount"] = "<n>"
            if "envs" in cfg:
                cfg["envs"] = {e["key"]: e.get("value", "") for e in cfg["envs"]}
            if "mounts" in cfg:
                cfg["mounts"] = {
                    x["container_path"]: {k: v for k, v in x.items() if k != "container_path"}
                    for x in cfg["mounts"]
                }
            if "image" in cfg:
                cfg["image"] = {
                    k: "<image>" if k == "image" else v for k, v in cfg["image"].items()
                }
            pr, li = spec.get("process", {}), spec.get("linux", {})
            oci = {
                "user": pr.get("user"),
                "caps": sorted(pr.get("capabilities", {}).get("bounding", [])),
                "effective": sorted(pr.get("capabilities", {}).get("effective", [])),
                "noNewPrivileges": pr.get("noNewPrivileges"),
                "oomScoreAdj": pr.get("oomScoreAdj"),
                "cwd": pr.get("cwd"),
                "terminal": pr.get("terminal"),
                "args": pr.get("args"),
                "readonlyRoot": spec.get("root", {}).get("readonly"),
                "cgroupsPath": li.get("cgroupsPath"),
                "sysctl": li.get("sysctl"),
                "seccomp": bool(li.get("seccomp")),
                "resources": {k: v for k, v in li.get("resources", {}).items() if k != "devices"},
                "namespaces": {
                    x["type"]: "host path" if x.get("path") else "new"
                    for x in li.get("namespaces", [])
                },
            }
            if oci["args"] == cfg.get("command", []) + cfg.get("args", []):
                oci.pop("args")
            if oci["effective"] == oci["caps"]:
                oci.pop("effective")
            out[name] = n.any(
                fold(
                    {
                        "config": cfg,
                        "oci": {k: v for k, v in oci.items() if v not in (None, {}, [])},
                        **(
                            {"runtimeHandler": m["RuntimeHandler"]}
                            if m.get("RuntimeHandler")
                            else {}
                        ),
                    }
                )
            )
        return out

    # ---- all
    def go(self):
        c, t0 = self.c, time.time()
        os.makedirs(self.dir, exist_ok=True)
        self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.ns}})
        for x in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            for _ in range(300):
                if self.api.call("GET", f"/api/v1/namespaces/{self.ns}/{x}")[0] == 200:
                    break
                time.sleep(0.2)
        made = {}
        try:
            later = {s.split()[1] for s in c.steps if s.startswith("apply ")}
            placed = {int(s.split()[1]) for s in c.steps if s.startswith("place ")}
            for d in sorted(self.docs, key=lambda d: d["kind"] == "Pod"):
                ref = f"{d['kind'].lower()}/{d['metadata']['name']}"
                if self.sub(ref) in {self.sub(l) for l in later} or d in self.static.values():
                    continue
                made[self.sub(ref).replace(self.ns, "<ns>")] = self.create(d)
            for i, d in self.static.items():
                d["metadata"].setdefault("namespace", self.ns)
                if i not in placed:
                    self.place(i, yaml.safe_dump(d, allow_unicode=True))
            for s in c.steps:
                self.step(s)
            if not c.set.get("immediate"):
                self.quiet()
            final = dict(self.at) if c.set.get("immediate") else {}
            self.collect_cri()
            if c.set.get("immediate"):
                time.sleep(1.5)
            return self.result(made, final, time.time() - t0)
        finally:
            self.clean()

    def result(self, made, final, secs):
        with self.w.cv:
            pods = {k: list(v) for k, v in self.w.pods.get(self.ns, {}).items()}
            events = list(self.w.events.get(self.ns, {}).values())
        n = Norm(self.o, self.ns, self.dir, pods)
        bound = int(self.c.set["restarts"]) if "restarts" in self.c.set else None
        out = {
            "case": self.c.name,
            "area": self.c.set["area"],
            "created": n.any(made),
            "steps": {},
            "pods": {},
        }
        for i, (line, res) in enumerate(self.steps, 1):
            if isinstance(res, dict):
                res = {
                    k: n.lines(v) if isinstance(v, str) else n.any(v)
                    for k, v in res.items()
                    if v != ""
                }
            elif isinstance(res, str):
                res = n.text(res)
            if res is not None:
                out["steps"][f"{i:02d} {n.text(line)}"] = res

        def say(name):
            who = lambda v: v.get("source", {}).get("component") or v.get("reportingComponent")
            evs = sorted(
                (
                    v
                    for v in events
                    if v["involvedObject"]["name"] == name and who(v) not in NOT_KUBELET
                ),
                key=lambda v: int(v["metadata"]["name"].rsplit(".", 1)[-1], 16),
            )
            by = {}
            for v in evs:
                by.setdefault(
                    v["involvedObject"].get("fieldPath", "").removeprefix("spec.") or "pod", []
                ).append(n.text(f"{v['type']} {v['reason']} {who(v)}: {v['message']}"))
            return {k: distinct(v) for k, v in by.items()}

        for name in sorted({v["involvedObject"]["name"] for v in events} - set(pods)):
            if say(name):
                out.setdefault("eventsWithoutPod", {})[n.text(name)] = say(name)
        for name, h in sorted(pods.items()):
            p = final.get(name, h[-1][1])
            objs = [o for _, o in h]
            if name in final:
                objs = objs[: next(i for i, o in enumerate(objs) if o is p) + 1]
            md = p["metadata"]
            meta = {
                k: md[k]
                for k in (
                    "labels",
                    "annotations",
                    "finalizers",
                    "generation",
                    "deletionGracePeriodSeconds",
                )
                if k in md
            }
            if "ownerReferences" in md:
                meta["owners"] = [
                    f"{r['kind']}/{r['name']} controller={r.get('controller')}"
                    for r in md["ownerReferences"]
                ]
            e = {
                "gone": h[-1][0] == "DELETED" and name not in final,
                "meta": n.any(meta),
                "status": norm_status(n, p, bound),
                "trail": n.any(trail(objs, bound is not None, self.c.set.get("backoffs"))),
            }
            if len({o["metadata"]["uid"] for o in objs}) > 1:
                e["incarnations"] = len({o["metadata"]["uid"] for o in objs})
            if "kubernetes.io/config.mirror" in md.get("annotations", {}):
                e["spec"] = n.any(p["spec"])
            e["events"] = say(name)
            cri = self.cri_out(
                n, name if not self.static else name.removesuffix("-" + self.o.node)
            ) or self.cri_out(n, name)
            if cri:
                e["cri"] = cri
            out["pods"][n.text(name)] = e
        for k, p in self.snaps.items():
            out.setdefault("snaps", {})[k] = norm_status(n, p, bound)
        return out

    def clean(self):
        for i in self.static:
            for f in (self.manifest(i), os.path.join(self.o.manifests, f".twin-{self.ns}-{i}")):
                if os.path.exists(f):
                    os.unlink(f)
        live = [p for p in self.w.pods.get(self.ns, {}) if not self.gone(p)]
        for p in live:
            self.api.call("DELETE", url("Pod", self.ns, p), {"gracePeriodSeconds": 1})
        for p in live:
            if not self.until(p, ["gone"], 45):
                self.api.call("DELETE", url("Pod", self.ns, p), {"gracePeriodSeconds": 0})
        for d in self.docs:
            if not KINDS[d["kind"]][2]:
                self.api.call("DELETE", url(d["kind"], "", d["metadata"]["name"]))
        self.api.call("DELETE", f"/api/v1/namespaces/{self.ns}")
        shutil.rmtree(self.dir, ignore_errors=True)


def record(o):
    os.makedirs(o.out, exist_ok=True)
    os.makedirs(o.scratch, exist_ok=True)
    api = API(o.kubeconfig)
    o.nodeip = next(
        a["address"]
        for a in api.call("GET", f"/api/v1/nodes/{o.node}")[1]["status"]["addresses"]
        if a["type"] == "InternalIP"
    )
    w = Watch(api)
    time.sleep(1)
    cases = load_cases(o.cases, o.only)
    together = sorted(
        [c for c in cases if not c.set.get("alone")], key=lambda c: (not c.set.get("slow"), c.name)
    )
    t0, bad, lock = time.time(), [], threading.Lock()

    def one(c):
        t, r = time.time(), None
        try:
            r = Run(o, api, w, c)
            d = r.go()
            with open(os.path.join(o.out, c.name + ".json"), "w") as f:
                f.write(dump(d) + "\n")
            note = "; ".join("not met: " + b for b in r.bad)
        except Exception as x:
            note = f"ERROR {type(x).__name__}: {x}"
        with lock:
            if note:
                bad.append(c.name)
            print(f"{c.name:44s} {time.time() - t:6.1f}s {note}", flush=True)

    q = queue.Queue()
    for c in together:
        q.put(c)

    def work():
        while True:
            try:
                c = q.get_nowait()
            except queue.Empty:
                return
            one(c)

    ts = [threading.Thread(target=work) for _ in range(o.jobs)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    for c in cases:
        if c.set.get("alone"):
            one(c)
    print(f"{len(cases)} cases, {len(bad)} with trouble, {time.time() - t0:.0f}s")
    return 1 if bad else 0


# ---------------------------------------------------------------- command line
def clean(o):
    """Removes what runs that were cut short left behind."""
    api = API(o.kubeconfig)
    for f in glob.glob(os.path.join(o.manifests, "twin-" + PREFIX + "*")) + glob.glob(
        os.path.join(o.manifests, ".twin-" + PREFIX + "*")
    ):
        os.unlink(f)
    for k in ("Namespace", "PersistentVolume", "RuntimeClass"):
        for x in api.call("GET", url(k, ""))[1].get("items", []):
            if x["metadata"]["name"].startswith(PREFIX):
                print(
                    k,
                    x["metadata"]["name"],
                    api.call("DELETE", url(k, "", x["metadata"]["name"]))[0],
                )
    return 0


def listing(o):
    areas = {}
    for c in load_cases(o.cases):
        areas.setdefault(c.set["area"], []).append(c.name)
    for a, ns in sorted(areas.items()):
        print(f"{a:14s} {len(ns):3d}  {', '.join(ns)}")
    print(f"{'total':14s} {sum(map(len, areas.values())):3d}")
    return 0


def main():
    a = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    s = a.add_subparsers(dest="cmd", required=True)
    r, c, l, k = (s.add_parser(n) for n in ("record", "compare", "list", "clean"))
    for n in ("kubeconfig", "manifests"):
        k.add_argument("--" + n, required=True)
    for p in (r, c, l):
        p.add_argument("--cases", default=os.path.join(HERE, "cases"))
    for p in (r, c):
        p.add_argument("--only", action="append")
    for n in ("out", "kubeconfig", "sock", "manifests", "root", "scratch"):
        r.add_argument("--" + n, required=True)
    r.add_argument("--node", default="node1")
    r.add_argument("--kubectl", default="kubectl")
    r.add_argument("--ctr", default="ctr")
    r.add_argument("--jobs", type=int, default=6)
    c.add_argument("golden")
    c.add_argument("dir")
    c.add_argument("--ignore", action="append", default=[])
    c.add_argument("--max", type=int, default=20)
    c.add_argument(
        "--lossy",
        type=int,
        default=15,
        help="in how many cases fewer states may have been seen (README.md)",
    )
    c.add_argument("--quiet", action="store_true", help="do not list the cases that are the same")
    o = a.parse_args()
    sys.exit(
        {
            "record": record,
            "compare": lambda o: compare(o, load_cases(o.cases)),
            "list": listing,
            "clean": clean,
        }[o.cmd](o)
    )


if __name__ == "__main__":
    main()
