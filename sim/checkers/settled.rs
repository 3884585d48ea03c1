//! When faults have stopped for a while, the node is as its manifests say, and nothing is left over.

use crate::ledger::ContainerRecord;
use crate::manifest::{ContainerSpec, Origin, Pod, Restart};
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
    for pod in world.ledger().wanted.objects() {
        as_stored(world, pod, &mut out);
    }
    leftovers(world, &uids, &mut out);
    let at = world.at();
    out.into_iter().map(|what| Violation { at, promise: PROMISE, what }).collect()
}

/// One wanted pod; the uid that it has.
fn pod_runs(world: &World, pod: &Pod, out: &mut Vec<String>) -> Option<String> {
    let key = &pod.key;
    // Of a pod whose end the API server has, dead containers may be left.
    if pod.origin == Origin::Api && pod.ended {
        return pod.uid.clone();
    }
    let sandboxes: Vec<_> = (world.ledger().sandboxes.values())
        .filter(|record| record.key == *key && !(record.over && record.removed))
        .collect();
    let uids: BTreeSet<&str> = sandboxes.iter().map(|record| &*record.fact.uid).collect();
    if let Some(pinned) = &pod.uid
        && uids.iter().any(|uid| uid != pinned)
    {
        out.push(format!("{key} has the uids {uids:?}, its manifest says {pinned}"));
    }
    if uids.len() != 1 {
        out.push(format!("{key} should have one instance, and has {}", uids.len()));
        return None;
    }
    let uid = (*uids.first()?).to_owned();
    if finished(world, pod, &uid) {
        return Some(uid);
    }
    let ready = sandboxes.iter().filter(|record| record.ready && !record.removed).count();
    if ready != 1 {
        out.push(format!("{key} has {ready} ready sandboxes"));
    }
    for spec in &pod.containers {
        container_runs(world, pod, &uid, spec, out);
    }
    Some(uid)
}

/// What the API server has of its own pods.
fn as_stored(world: &World, pod: &Pod, out: &mut Vec<String>) {
    let (key, uid) = (&pod.key, pod.uid.as_deref().unwrap_or_default());
    if pod.deleting {
        return out.push(format!("{key} is to go, and is still in the API server"));
    }
    let Some(object) = world.api.object("pods", &key.namespace, &key.name) else { return };
    let phase = object["status"]["phase"].as_str().unwrap_or_default();
    if finished(world, pod, uid) && !pod.ended {
        out.push(format!("{key} has ended, and the API server has it as {phase}"));
    }
    for spec in &pod.containers {
        let Some(newest) = newest(world, uid, &spec.name).filter(|newest| newest.running()) else {
            continue;
        };
        // One that keeps ending may have been started just now.
        if spec.app(newest.fact.attempt).run.is_some() {
            continue;
        }
        let statuses = object["status"]["containerStatuses"].as_array();
        let mut statuses = statuses.into_iter().flatten();
        let shown = statuses
            .any(|status| status["name"] == *spec.name && status["state"].get("running").is_some());
        if !shown || phase != "Running" {
            let name = newest.name();
            out.push(format!("{name} runs, and the API server has its pod as {phase}"));
        }
    }
}

fn container_runs(
    world: &World,
    pod: &Pod,
    uid: &str,
    spec: &ContainerSpec,
    out: &mut Vec<String>,
) {
    let (key, name) = (&pod.key, &spec.name);
    let Some(newest) = newest(world, uid, name) else {
        out.push(format!("{key}/{name} was never made"));
        return;
    };
    let image = newest.pod.as_ref().and_then(|pod| Some(&*pod.container(name)?.image));
    if image != Some(&spec.image) {
        out.push(format!("{key}/{name} runs {image:?}, not {}", spec.image));
    }
    // One that keeps ending is at times not running: it waits for its back-off.
    let ends = spec.app(newest.fact.attempt).run.is_some();
    if !newest.running() && !ends && !done(newest, pod.restart) {
        let (code, attempt) = (newest.exited.map(|exit| exit.code), newest.fact.attempt);
        out.push(format!("{key}/{name}#{attempt} is not running (exit code {code:?})"));
    }
}

/// Whether the pod has come to its end, which is final, also when its manifest pins the uid and is edited later.
fn finished(world: &World, pod: &Pod, uid: &str) -> bool {
    let all = pod
        .containers
        .iter()
        .all(|spec| newest(world, uid, &spec.name).is_some_and(|newest| done(newest, pod.restart)));
    let failed_init = || {
        pod.init.iter().any(|spec| {
            newest(world, uid, &spec.name)
                .and_then(|newest| newest.exited)
                .is_some_and(|exit| exit.code != 0)
        })
    };
    all || (pod.restart == Restart::Never && failed_init())
}

/// Whether a container is not to be started again.
fn done(record: &ContainerRecord, restart: Restart) -> bool {
    let code = record.exited.map(|exit| exit.code);
    match restart {
        Restart::Always => false,
        Restart::OnFailure => code == Some(0),
        Restart::Never => code.is_some(),
    }
}

fn newest<'a>(world: &'a World, uid: &'a str, name: &'a str) -> Option<&'a ContainerRecord> {
    let records = world.ledger().of(uid, name);
    let records = records.filter(|record| !(record.over && record.removed.is_some()));
    records.max_by_key(|record| record.fact.attempt)
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
        let slice = last.strip_prefix("kubepods-").and_then(|rest| rest.strip_suffix(".slice"));
        if let Some((_, uid)) = slice.and_then(|rest| rest.split_once("pod")) {
            add(&uid.replace('_', "-"), "its slice");
        }
    }
    for (uid, what) in left {
        out.push(format!("pod {uid} is gone, and left are {}", what.join(", ")));
    }
}
