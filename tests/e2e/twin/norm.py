"""What twin.py keeps of pods, events and container configurations, with what differs from run to
run replaced; and the comparison of two such records. The rules are in README.md."""

import difflib, fnmatch, glob, json, os, re


def host_dns():
    try:
        return re.findall(r"^nameserver\s+(\S+)", open("/etc/resolv.conf").read(), re.M)
    except OSError:
        return []


# what containerd and the kubelet give every ordinary container, folded into one word
CAPS = [
    "CAP_" + c
    for c in (
        "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP "
        "SETGID SETPCAP SETUID SYS_CHROOT"
    ).split()
]
MASKED = [
    "/proc/" + p
    for p in (
        "asound acpi interrupts kcore keys latency_stats timer_list timer_stats sched_debug scsi"
    ).split()
] + ["/sys/firmware", "/sys/devices/virtual/powercap"]
READONLY = ["/proc/" + p for p in "bus fs irq sys sysrq-trigger".split()]
HUGE = [{"page_size": "2MB"}, {"page_size": "1GB"}]
API_ENV = {
    "KUBERNETES_PORT": "tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
    "KUBERNETES_PORT_443_TCP_PORT": "443",
    "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBERNETES_SERVICE_PORT_HTTPS": "443",
}


def fold(x):
    if isinstance(x, list):
        for name, l in (
            ("caps", CAPS),
            ("masked", MASKED),
            ("readonly", READONLY),
            ("hugepages", HUGE),
        ):
            if x == l:
                return f"<default {name}>"
        return [fold(v) for v in x]
    if not isinstance(x, dict):
        return x
    if all(x.get(k) == v for k, v in API_ENV.items()):
        x = {
            "<the kubernetes service>": "8 variables",
            **{k: v for k, v in x.items() if k not in API_ENV},
        }
    return {k: fold(v) for k, v in x.items()}


def dump(x, ind=0):
    """JSON with short values on one line."""
    one = json.dumps(x, sort_keys=True, ensure_ascii=False)
    if len(one) + ind < 150 or not isinstance(x, (dict, list)) or not x:
        return one
    pad = "\n" + " " * (ind + 1)
    if isinstance(x, list):
        return "[" + ",".join(pad + dump(v, ind + 1) for v in x) + "]"
    return (
        "{"
        + ",".join(
            pad + json.dumps(k, ensure_ascii=False) + ": " + dump(v, ind + 1)
            for k, v in sorted(x.items())
        )
        + "}"
    )


class Norm:
    RULES = [
        (re.compile(a), b)
        for a, b in [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uid>"),
            (r"\b[0-9a-f]{64}\b", "<id>"),
            (r"(?<=pod)[0-9a-f]{32}(?![0-9a-f])|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", "<hash>"),
            (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
            (r"\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+", "..<time>"),
            (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<r>"),
            (r"(/containers/[a-z0-9-]+)/[0-9a-f]{8}\b", r"\1/<r>"),
            (r"back-off \d[\dms.]*", "back-off <dur>"),
            (r"\bin [\d.]+(ms|µs|s|m[\d.]+s)\b", "in <dur>"),
            (r"\([\d.]+(ms|µs|s) including waiting\)", "(<dur> including waiting)"),
            (r"Image size: \d+", "Image size: <n>"),
            (r"\b(used|q): \d+", r"\1: <n>"),
            (r"capacity: \d{6,}", "capacity: <n>"),
            (r"(<\w+IP>|127\.0\.0\.1|\]):[34567]\d{4}\b", r"\1:<port>"),
            (r"sha256:[0-9a-f]{12,}", "sha256:<id>"),
        ]
    ]

    def __init__(self, o, case_ns, case_dir, pods):
        self.fix = [
            (case_dir, "<dir>"),
            (case_ns, "<ns>"),
            (o.root, "<root>"),
            (o.scratch, "<scratch>"),
        ]
        ips, hosts = set(), {o.nodeip}
        for h in pods.values():
            for _, p in h:
                s = p.get("status", {})
                hosts |= {x["ip"] for x in s.get("hostIPs", [])} | (
                    {s["hostIP"]} if s.get("hostIP") else set()
                )
                ips |= {x["ip"] for x in s.get("podIPs", [])}
        self.ips = (
            [(i, "<hostIP>") for i in hosts]
            + [(i, "<podIP>") for i in ips - hosts]
            + [(i, "<hostDNS>") for i in host_dns()]
        )
        self.node = re.compile(rf"\b{re.escape(o.node)}\b")

    def text(self, s):
        for a, b in self.fix:
            s = s.replace(a, b)
        s = self.node.sub("<node>", s)
        for a, b in self.ips:
            s = re.sub(r"(?<![\d.])" + re.escape(a) + r"(?!\d|\.\d)", b, s)
        for r, b in self.RULES:
            s = r.sub(b, s)
        return re.sub(
            r"\b10\.96\.\d+\.\d+\b",
            lambda m: m[0] if m[0] in ("10.96.0.1", "10.96.0.10") else "<svcIP>",
            s,
        )

    def any(self, x):
        if isinstance(x, dict):
            return {self.text(k): self.any(v) for k, v in x.items()}
        if isinstance(x, list):
            return [self.any(v) for v in x]
        return self.text(x) if isinstance(x, str) else x

    def lines(self, s, cap=200):
        ls = [self.text(l) if len(l) < 4000 else f"<{len(l)} chars>" for l in s.split("\n")]
        return ls[:cap] + ([f"<{len(ls) - cap} more>"] if len(ls) > cap else [])


def state(cs):
    ((k, v),) = (cs.get("state") or {"none": {}}).items()
    t = (
        k
        + (f":{v.get('reason', '')}" if k != "running" and v else "")
        + (f":{v['exitCode']}" if "exitCode" in v else "")
    )
    return t + ("+started" if cs.get("started") else "") + ("+ready" if cs.get("ready") else "")


GROUPS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def statuses(p):
    return [(g, c) for g in GROUPS for c in p.get("status", {}).get(g) or []]


def distinct(l):
    out = []
    for x in l:
        if x not in out:
            out.append(x)
    return out


def collapse(l):
    return [x for i, x in enumerate(l) if i == 0 or l[i - 1] != x]


def trail(objs, loops, backoffs):
    """States seen by the watch, without repeats (in a loop: without any state twice): phase,
    conditions, each container alone, all together."""
    short = (lambda l: sorted(distinct(l))) if loops else collapse
    t = {"phase": [], "conditions": {}, "containers": {}, "joint": []}
    waits = {}
    for p in objs:
        s = p.get("status", {})
        ph = (
            s.get("phase", "")
            + (f"({s['reason']})" if s.get("reason") else "")
            + (" deleting" if p["metadata"].get("deletionTimestamp") else "")
        )
        t["phase"].append(ph)
        for c in s.get("conditions", []):
            t["conditions"].setdefault(c["type"], []).append(
                c["status"] + (":" + c["reason"] if c.get("reason") else "")
            )
        for _, c in statuses(p):
            t["containers"].setdefault(c["name"], []).append(state(c))
            m = re.search(
                r"back-off (\S+)", ((c.get("state") or {}).get("waiting") or {}).get("message", "")
            )
            if m:
                waits.setdefault(c["name"], []).append(m[1])
        t["joint"].append(" ".join([ph] + [f"{c['name']}={state(c)}" for _, c in statuses(p)]))
    t = {
        "phase": short(t["phase"]),
        "joint": short(t["joint"]),
        **{k: {a: short(b) for a, b in sorted(t[k].items())} for k in ("conditions", "containers")},
    }
    if backoffs:
        t["backoffs"] = {a: distinct(b) for a, b in waits.items()}
    return t


def unlimited(x, ended=False):
    """Upstream reads a pod's resources from its cgroup: 'no limit' of cgroup v1 may come out as a
    number, and an ended pod's cgroup may be gone."""
    r = x.get("resources")
    if r and (ended or r.get("limits") == {"memory": "9007199254740988Ki"}):
        x["resources"] = {} if ended else {k: v for k, v in r.items() if k != "limits"}


def norm_status(n, p, bound):
    s = dict(p.get("status", {}))
    s["conditions"] = {
        c["type"]: {
            k: v for k, v in c.items() if k not in ("type", "lastTransitionTime", "lastProbeTime")
        }
        for c in s.get("conditions", [])
    }
    for g in GROUPS:
        if not s.get(g):
            s.pop(g, None)
            continue
        s[g + "Order"] = [c["name"] for c in s[g]]
        s[g] = {c["name"]: {k: v for k, v in c.items() if k != "name"} for c in s[g]}
        for c in s[g].values():
            unlimited(c)
            if bound is not None and c["restartCount"] >= bound:
                c["restartCount"] = f">={bound}"
    unlimited(s, s.get("phase") in ("Succeeded", "Failed"))
    return n.any(s)


def node_facts(api, name):
    """What the kubelet says of the node, without what depends on the machine or the time."""
    n = api.call("GET", f"/api/v1/nodes/{name}")[1]
    l = api.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")[1]
    s, m = n["status"], n["metadata"]
    size = lambda d: {k: v if k in ("cpu", "pods") or v == "0" else "<n>" for k, v in d.items()}
    return {
        "labels": m["labels"],
        "annotations": m["annotations"],
        "taints": n["spec"].get("taints", []),
        "conditions": {
            c["type"]: [c["status"], c["reason"], c["message"]] for c in s["conditions"]
        },
        "conditionsOrder": [c["type"] for c in s["conditions"]],
        "capacity": size(s["capacity"]),
        "allocatable": size(s["allocatable"]),
        "addresses": s["addresses"],
        "daemonEndpoints": s["daemonEndpoints"],
        "nodeInfo": {
            k: (
                v
                if k
                in (
                    "architecture",
                    "operatingSystem",
                    "kubeletVersion",
                    "containerRuntimeVersion",
                    "kubeProxyVersion",
                )
                else "<set>"
            )
            for k, v in s["nodeInfo"].items()
            if v or k == "kubeProxyVersion"
        },
        "others": sorted(k for k in s if k not in ("volumesInUse", "volumesAttached")),
        "declaredFeatures": s.get("declaredFeatures"),
        "runtimeHandlers": s.get("runtimeHandlers"),
        "features": s.get("features"),
        "images": [
            i["names"]
            for i in s.get("images", [])
            if any("busybox" in x or "pause" in x for x in i.get("names") or [])
        ],
        "lease": {k: v for k, v in l["spec"].items() if k != "renewTime"},
        "leaseOwners": [
            f"{r['kind']}/{r['name']}" for r in l["metadata"].get("ownerReferences", [])
        ],
    }


# ---------------------------------------------------------------- compare
def flat(x, path=""):
    """path -> leaf; a list without dicts in it is one leaf."""
    if isinstance(x, dict) and x:
        for k, v in x.items():
            yield from flat(v, f"{path}.{k}" if path else str(k))
    elif isinstance(x, list) and any(isinstance(v, dict) for v in x):
        for i, v in enumerate(x):
            yield from flat(v, f"{path}[{i}]")
    else:
        yield path, x


def diff(a, b, ignore, unordered):
    """Patterns: fnmatch on the path, where [ and ] stand for themselves; PATH[GLOB] drops matching
    elements of a list leaf."""
    pats = [re.fullmatch(r"(.*?)(?:\[(.*)\])?", p, re.S).groups() for p in ignore]

    def match(path, pat):
        return fnmatch.fnmatchcase(
            path.replace("[", "("), pat.replace("[", "(")
        ) or fnmatch.fnmatchcase(path.replace("[", "("), pat + ".*")

    fa, fb = dict(flat(a)), dict(flat(b))
    for p in sorted(set(fa) | set(fb)):
        if any(g is None and match(p, pat) for pat, g in pats):
            continue
        x, y = fa.get(p, "<absent>"), fb.get(p, "<absent>")
        if isinstance(x, list) or isinstance(y, list):
            gl = [g for pat, g in pats if g is not None and match(p, pat)]
            x, y = [
                [
                    e
                    for e in (z if isinstance(z, list) else [z])
                    if not any(
                        fnmatch.fnmatchcase(str(e).replace("[", "("), g.replace("[", "("))
                        for g in gl
                    )
                ]
                for z in (x, y)
            ]
            if any(match(p, u) for u in unordered):
                x, y = sorted(x, key=str), sorted(y, key=str)
        if x != y:
            yield p, x, y


def part_of(x, y):
    """Whether x is y with some elements left out."""
    it = iter(y)
    return all(any(e == f for f in it) for e in x)


def soft(p, x, y, loops):
    """A watch may miss states that were soon replaced, as the kubelet sends only the newest; but
    not the last one."""
    return (
        ".trail." in p
        and isinstance(x, list)
        and isinstance(y, list)
        and x
        and y
        and (loops or x[-1] == y[-1])
        and (part_of(x, y) or part_of(y, x))
    )


def compare(o, cases):
    cases = {c.name: c for c in cases}
    names = {os.path.basename(p)[:-5] for p in glob.glob(os.path.join(o.golden, "*.json"))}
    if o.only:
        names = {n for n in names if any(fnmatch.fnmatch(n, g) for g in o.only)}
    same = lossy = differs = missing = 0
    for n in sorted(names):
        f = os.path.join(o.dir, n + ".json")
        if not os.path.exists(f):
            missing += 1
            print(f"{n}: missing")
            continue
        c = cases.get(n)
        ds = list(
            diff(
                json.load(open(os.path.join(o.golden, n + ".json"))),
                json.load(open(f)),
                (c.ignore if c else []) + o.ignore,
                c.unordered if c else [],
            )
        )
        loops = c and "restarts" in c.set
        fewer, ds = [p for p, x, y in ds if soft(p, x, y, loops)], [
            (p, x, y) for p, x, y in ds if not soft(p, x, y, loops)
        ]
        if not ds:
            same += 1
            lossy += bool(fewer)
            if fewer or not o.quiet:
                print(
                    f"{n}: same"
                    + (", but one of them saw fewer states: " + " ".join(fewer) if fewer else "")
                )
            continue
        differs += 1
        print(f"{n}: differs in {len(ds)}")
        for p, x, y in ds[: o.max]:
            if isinstance(x, list) and isinstance(y, list):
                print(f"    {p}:")
                for l in list(
                    difflib.unified_diff([str(v) for v in x], [str(v) for v in y], lineterm="", n=0)
                )[2:]:
                    if not l.startswith("@@"):
                        print(f"        {l[:400]}")
                if sorted(map(str, x)) == sorted(map(str, y)):
                    print("        (same elements, other order)")
            else:
                print(
                    f"    {p}: {json.dumps(x, ensure_ascii=False)[:300]} != "
                    f"{json.dumps(y, ensure_ascii=False)[:300]}"
                )
        if len(ds) > o.max:
            print(f"    ... {len(ds) - o.max} more")
    print(f"{same} same ({lossy} with fewer states seen), {differs} differ, {missing} missing")
    return 1 if differs or missing or lossy > o.lossy else 0
