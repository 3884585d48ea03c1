//! People at work in the manifest directory: pods are written, edited, half-written, removed and put back.

use crate::agenda::Agenda;
use crate::clock::At;
use crate::dice::Dice;
use crate::world::World;
use serde_json::{Value, json};
use steplet_core::time::Span;

/// One manifest file and what is to be in it.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub name: String,
    kind: Kind,
    /// Raised by each edit.
    pub edits: u64,
    image: u64,
    pub pinned: bool,
    grace: u64,
    pub present: bool,
}

/// What sort of program a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Steady,
    Stubborn,
    SlowToStop,
    CrashLoop,
    CrashesAtFirst,
    Job,
    FailingJob,
    RetriedJob,
    WithInit,
    FlakyInit,
    SlowStart,
    HostNetwork,
    Volumes,
    Pair,
}

pub(super) const KINDS: [Kind; 14] = [
    Kind::Steady,
    Kind::Stubborn,
    Kind::SlowToStop,
    Kind::CrashLoop,
    Kind::CrashesAtFirst,
    Kind::Job,
    Kind::FailingJob,
    Kind::RetriedJob,
    Kind::WithInit,
    Kind::FlakyInit,
    Kind::SlowStart,
    Kind::HostNetwork,
    Kind::Volumes,
    Kind::Pair,
];

/// What somebody will do.
#[derive(Clone, Debug)]
enum Deed {
    Write(usize),
    Remove(usize),
    /// The list behind the URL is published.
    Publish,
    /// Draw something to do, and again later.
    Anything,
}

pub struct Workload {
    dice: Dice,
    pods: Vec<Pod>,
    agenda: Agenda<Deed>,
    images: u64,
    /// The pods that the URL serves; none when there is no URL.
    served: Vec<Pod>,
}

impl Workload {
    /// `pods` manifests, written within the first half minute; three more behind the URL, when the node has one.
    pub fn new(mut dice: Dice, pods: usize, world: &World) -> Workload {
        let at = world.at();
        let mut agenda = Agenda::default();
        let mut pods: Vec<Pod> = (0..pods)
            .map(|i| {
                let kind = KINDS.get(i).copied().unwrap_or_else(|| *dice.pick(&KINDS));
                pod(format!("pod-{i}"), kind, &mut dice)
            })
            .collect();
        // Every seed has another mix in the first ten places.
        for i in (1..pods.len()).rev() {
            pods.swap(i, dice.below(i as u64 + 1) as usize);
        }
        for i in 0..pods.len() {
            agenda.plan(at + dice.millis(0, 30_000), Deed::Write(i));
        }
        let mut served = Vec::new();
        if !world.setup().settings.static_pod_url.is_empty() {
            agenda.plan(at + dice.millis(0, 30_000), Deed::Publish);
            for (name, kind) in [("one", Kind::Steady), ("two", Kind::Pair), ("three", Kind::Job)] {
                let pod = pod(format!("url-{name}"), kind, &mut dice);
                served.push(Pod { present: true, pinned: false, ..pod });
            }
        }
        agenda.plan(at + Span::from_secs(60), Deed::Anything);
        Workload { dice, pods, agenda, images: 4, served }
    }

    pub fn next_at(&self) -> Option<At> {
        self.agenda.next_at()
    }

    /// Does the next thing that is due.
    pub fn act(&mut self, world: &mut World) {
        match self.agenda.pop() {
            Some((_, Deed::Write(i))) => self.write(world, i),
            Some((_, Deed::Remove(i))) => self.remove(world, i),
            Some((_, Deed::Publish)) => self.publish(world),
            Some((at, Deed::Anything)) => {
                self.anything(world);
                self.agenda.plan(at + self.dice.millis(5_000, 90_000), Deed::Anything);
            }
            None => {}
        }
    }

    /// Everybody puts their things in order and goes home.
    pub fn rest(&mut self, world: &mut World) {
        while let Some((_, deed)) = self.agenda.pop() {
            match deed {
                Deed::Write(i) => self.write(world, i),
                Deed::Remove(i) => self.remove(world, i),
                Deed::Publish => self.publish(world),
                Deed::Anything => {}
            }
        }
    }

    /// Back to work.
    pub fn resume(&mut self, at: At) {
        self.agenda.plan(at + Span::from_secs(5), Deed::Anything);
    }

    fn write(&mut self, world: &mut World, i: usize) {
        self.pods[i].present = true;
        let pod = &self.pods[i];
        world.put_manifest(&file(pod), text(pod));
    }

    fn remove(&mut self, world: &mut World, i: usize) {
        self.pods[i].present = false;
        world.remove_manifest(&file(&self.pods[i]));
    }

    fn anything(&mut self, world: &mut World) {
        if !self.served.is_empty() && self.dice.chance(15) {
            return self.edit_list(world);
        }
        let i = self.dice.below(self.pods.len() as u64) as usize;
        let at = world.at();
        if !self.pods[i].present {
            return self.write(world, i);
        }
        match self.dice.below(10) {
            // Removed for good, or until somebody thinks better of it.
            0 => self.remove(world, i),
            1 | 2 => {
                self.remove(world, i);
                self.agenda.plan(at + self.dice.millis(500, 90_000), Deed::Write(i));
            }
            3 => self.edit(world, i, true),
            4 => {
                self.edit(world, i, false);
                // Thought better of it at once.
                self.agenda.plan(at + self.dice.millis(100, 8_000), Deed::Remove(i));
                self.agenda.plan(at + self.dice.millis(8_100, 20_000), Deed::Write(i));
            }
            5 | 6 => {
                // A slow writer: nothing, half, all.
                self.change(i, false);
                let name = file(&self.pods[i]);
                let whole = text(&self.pods[i]);
                let half = self.dice.below(whole.len() as u64) as usize;
                world.put_manifest(&name, whole[..half].to_owned());
                self.agenda.plan(at + self.dice.millis(20, 30_000), Deed::Write(i));
            }
            7 => {
                // An editor: a swap file beside it, the new file renamed over the old one.
                let swap = format!(".{}.swp", file(&self.pods[i]));
                world.put_manifest(&swap, "swap");
                world.remove_manifest(&file(&self.pods[i]));
                self.edit(world, i, false);
                world.remove_manifest(&swap);
            }
            8 => self.write(world, i),
            _ => self.edit(world, i, false),
        }
    }

    /// One pod of the list behind the URL is edited, taken off it, or put back.
    fn edit_list(&mut self, world: &mut World) {
        let i = self.dice.below(self.served.len() as u64) as usize;
        let pod = &mut self.served[i];
        match self.dice.below(3) {
            0 => pod.present = !pod.present,
            _ => {
                self.images += 1;
                (pod.edits, pod.image) = (pod.edits + 1, self.images);
            }
        }
        self.publish(world);
    }

    fn publish(&mut self, world: &mut World) {
        let items: Vec<Value> =
            self.served.iter().filter(|pod| pod.present).map(manifest).collect();
        let list = json!({"apiVersion": "v1", "kind": "PodList", "items": items});
        world.serve_manifest(Some(list.to_string().into()));
    }

    fn change(&mut self, i: usize, image: bool) {
        self.pods[i].edits += 1;
        if image || self.pods[i].pinned {
            self.images += 1;
            self.pods[i].image = self.images;
        }
    }

    fn edit(&mut self, world: &mut World, i: usize, image: bool) {
        self.change(i, image);
        self.write(world, i);
    }

    /// A stale copy of a manifest under a name that sorts behind it.
    pub fn stale_copy(&mut self) -> Option<(String, String)> {
        let i = self.dice.below(self.pods.len() as u64) as usize;
        let mut pod = self.pods[i].clone();
        pod.edits += 1_000;
        pod.present.then(|| (format!("{}.bak", file(&pod)), text(&pod)))
    }
}

pub(super) fn pod(name: String, kind: Kind, dice: &mut Dice) -> Pod {
    Pod {
        name,
        kind,
        edits: 0,
        image: dice.below(4),
        pinned: dice.chance(20),
        grace: *dice.pick(&[0, 1, 2, 5, 10, 30, 30, 60]),
        present: false,
    }
}

fn file(pod: &Pod) -> String {
    format!("{}.json", pod.name)
}

fn text(pod: &Pod) -> String {
    manifest(pod).to_string()
}

/// The manifest of a pod.
pub(super) fn manifest(pod: &Pod) -> Value {
    let app = |words: &str| container("app", pod.image, words);
    let (policy, init, containers) = match pod.kind {
        Kind::Steady | Kind::HostNetwork | Kind::Volumes => {
            ("Always", None, vec![app("term=200ms")])
        }
        Kind::Stubborn => ("Always", None, vec![app("term=ignore")]),
        Kind::SlowToStop => ("Always", None, vec![app("term=4s term-exit=143")]),
        Kind::CrashLoop => ("Always", None, vec![app("run=4s exit=1")]),
        Kind::CrashesAtFirst => ("Always", None, vec![app("run=3s exit=2 crashes=2")]),
        Kind::Job => ("Never", None, vec![app("run=40s exit=0")]),
        Kind::FailingJob => ("Never", None, vec![app("run=15s exit=3 message=broken")]),
        Kind::RetriedJob => ("OnFailure", None, vec![app("run=5s exit=1 crashes=2 then=ends")]),
        Kind::WithInit => ("Always", Some("run=2s"), vec![app("term=1s")]),
        Kind::FlakyInit => ("Always", Some("run=1s exit=1 crashes=2 then=ends"), vec![app("")]),
        Kind::SlowStart => ("Always", None, vec![app("start=25s")]),
        Kind::Pair => {
            ("Always", None, vec![app("term=1s"), container("side", 0, "run=50s exit=0")])
        }
    };
    let mut spec = json!({
        "restartPolicy": policy,
        "terminationGracePeriodSeconds": pod.grace,
        "containers": containers,
    });
    if let Some(words) = init {
        spec["initContainers"] = json!([container("init", 0, words)]);
    }
    if pod.kind == Kind::HostNetwork {
        spec["hostNetwork"] = json!(true);
    }
    if pod.kind == Kind::Volumes {
        spec["volumes"] = json!([
            {"name": "scratch", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            {"name": "host", "hostPath": {"path": "/srv/data", "type": "DirectoryOrCreate"}},
        ]);
        spec["containers"][0]["volumeMounts"] = json!([
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "memory", "mountPath": "/memory"},
            {"name": "host", "mountPath": "/data"},
        ]);
    }
    let mut metadata = json!({"name": pod.name, "annotations": {"edit": pod.edits.to_string()}});
    if pod.pinned {
        metadata["uid"] = json!(format!("pinned-{}", pod.name));
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

fn container(name: &str, image: u64, words: &str) -> Value {
    let command: Vec<&str> = std::iter::once("app").chain(words.split_whitespace()).collect();
    json!({
        "name": name,
        "image": format!("registry.example/{name}:v{image}"),
        "command": command,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    })
}
