//! When faults have stopped for a while, the node is as its manifests say, and nothing is left over.

use crate::manifest::{Pod, Restart};
use crate::setup::{LOGS_DIR, ROOT_DIR};
use crate::trace::Violation;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};

const PROMISE: &str = "five minutes after the last fault the node is as the manifests say";

/// What is not as it should be now.
pub fn check(world: &World) -> Vec<Violation> {
    let mut out = Vec::new();
    if world.core().is_none() {
        out.push("the agent is not running".to_owned());
    }
    let wanted: Vec<&Pod> = world.ledger().wanted.pods().collect();
    let mut uids = BTreeSet::new();
    for pod in &wanted {
        uids.extend(pod_runs(world, pod, &mut out));
    }
    leftovers(world, &uids, &mut out);
    let at = world.at();
    out.into_iter().map(|what| Violation { at, promise: PROMISE, what }).collect()
}

/// One wanted pod; the uid that it has in the runtime.
fn pod_runs(world: &World, pod: &Pod, out: &mut Vec<String>) -> Option<String> {
    let key = &pod.key;
    let sandboxes: Vec<_> = (world.runtime().sandboxes())
        .filter(|(_, sandbox)| {
            let metadata = sandbox.metadata();
            metadata.name == key.name && metadata.namespace == key.namespace
        })
        .collect();
    let uids: BTreeSet<&str> =
        sandboxes.iter().map(|(_, sandbox)| &*sandbox.metadata().uid).collect();
    if let Some(pinned) = &pod.uid
        && uids.iter().any(|uid| uid != pinned)
    {
        out.push(format!("{key} has the uids {uids:?}, its manifest says {pinned}"));
    }
    if uids.len() != 1 {
        out.push(format!("{key} should have one instance, the runtime shows {}", uids.len()));
        return None;
    }
    let uid = (*uids.first()?).to_owned();
    let over = over(world, pod, &uid);
    let ready = sandboxes.iter().filter(|(_, sandbox)| sandbox.ready).count();
    if !over && ready != 1 {
        out.push(format!("{key} has {ready} ready sandboxes"));
    }
    for spec in &pod.containers {
        let newest = newest(world, &uid, &spec.name);
        let running = newest.is_some_and(|container| container.running());
        let Some(newest) = newest else {
            out.push(format!("{key}/{} was never made", spec.name));
            continue;
        };
        let image = newest.config.image.as_ref().map_or("", |image| &image.user_specified_image);
        // The end of a pod is final, also when its manifest pins the uid and is edited later.
        let ended = pod.uid.is_some() && pod.restart != Restart::Always && !running;
        if image != spec.image && !ended {
            out.push(format!("{key}/{} runs {image}, not {}", spec.name, spec.image));
        }
        // One that keeps ending is at times not running: it waits for its back-off.
        let ends = spec.app(newest.metadata().attempt).run.is_some();
        let may_rest = match pod.restart {
            Restart::Always => ends,
            Restart::OnFailure => ends || newest.exit_code == 0,
            Restart::Never => true,
        };
        if !running && !may_rest {
            let code = newest.exit_code;
            let attempt = newest.metadata().attempt;
            out.push(format!("{key}/{}#{attempt} is not running (exit {code})", spec.name));
        }
    }
    Some(uid)
}

/// Whether the pod has come to its end, so that its sandbox may be gone too.
fn over(world: &World, pod: &Pod, uid: &str) -> bool {
    pod.containers.iter().all(|spec| {
        let Some(newest) = newest(world, uid, &spec.name) else { return false };
        let exited = newest.state == steplet_api::cri::ContainerState::ContainerExited;
        match pod.restart {
            Restart::Always => false,
            Restart::OnFailure => exited && newest.exit_code == 0,
            Restart::Never => exited,
        }
    }) || (pod.restart == Restart::Never
        && pod.init.iter().any(|spec| {
            newest(world, uid, &spec.name).is_some_and(|container| container.exit_code != 0)
        }))
}

fn newest<'a>(
    world: &'a World,
    uid: &str,
    name: &str,
) -> Option<&'a crate::doors::runtime::Container> {
    (world.runtime().containers())
        .map(|(_, container)| container)
        .filter(|container| {
            let of = world.runtime().sandbox(&container.sandbox);
            container.metadata().name == name && of.is_some_and(|s| s.metadata().uid == uid)
        })
        .max_by_key(|container| container.metadata().attempt)
}

/// Nothing is left of pods that are not wanted: neither in the runtime nor on disk nor in the cgroup tree.
fn leftovers(world: &World, uids: &BTreeSet<String>, out: &mut Vec<String>) {
    let mut left: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut add = |uid: &str, what| {
        if !uids.contains(uid) {
            left.entry(uid.to_owned()).or_default().push(what);
        }
    };
    for (_, sandbox) in world.runtime().sandboxes() {
        add(&sandbox.metadata().uid, "a sandbox");
    }
    for (_, container) in world.runtime().containers() {
        if let Some(sandbox) = world.runtime().sandbox(&container.sandbox) {
            add(&sandbox.metadata().uid, "a container");
        }
    }
    for uid in world.disk().names(&format!("{ROOT_DIR}/pods")) {
        add(&uid, "its directory");
    }
    for name in world.disk().names(LOGS_DIR) {
        add(name.rsplit('_').next().unwrap_or_default(), "its logs");
    }
    for (path, _) in world.kernel().cgroups() {
        let last = path.rsplit('/').next().unwrap_or_default();
        if let Some(uid) = last.strip_prefix("pod").filter(|_| path.starts_with("kubepods/")) {
            add(uid, "its cgroup");
        }
    }
    for (uid, what) in left {
        out.push(format!("pod {uid} is gone, and left are {}", what.join(", ")));
    }
}
