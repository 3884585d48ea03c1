//! `/containerLogs/{namespace}/{pod}/{container}`: which file, from where, how much.
//!
//! Upstream: getContainerLogs in pkg/kubelet/server, validateContainerLogStatus (v1.36). Pure.

use crate::effect::LogQuery;
use crate::event::Request;
use crate::facts::Facts;
use crate::ids::{ContainerId, PodUid};
use crate::managers::pods::view::{ContainerState, ContainerView};
use crate::time::Wall;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use steplet_api::time::parse_ns;

pub(super) struct Found {
    pub uid: PodUid,
    pub container: ContainerId,
    pub query: LogQuery,
}

type Refusal = (u16, String);

/// The log that a request asks for, or status and text of the refusal.
pub(super) fn find(facts: &Facts, request: &Request, now: Wall) -> Result<Found, Refusal> {
    let parts: Vec<&str> = request.path.split('/').skip(2).collect();
    let [namespace, pod, name] = parts[..] else {
        return Err((404, "404 page not found\n".into()));
    };
    for (what, part) in [("podNamespace", namespace), ("podID", pod), ("containerName", name)] {
        if part.is_empty() {
            return Err((400, format!("{{\"message\": \"Missing {what}.\"}}\n")));
        }
    }
    let mut query = options(&request.query, now)?;
    let previous = flag(&request.query, "previous")?;
    let pods = facts.workers.all().iter();
    let worker = pods
        .filter(|(_, w)| !w.orphan())
        .find(|(_, w)| *w.pod().metadata.name == *pod && *w.pod().metadata.namespace == *namespace);
    let Some((uid, worker)) = worker else {
        return Err((404, format!("pod {pod:?} does not exist\n")));
    };
    let spec = &worker.pod().spec;
    let mut names = spec.init_containers.iter().chain(&spec.containers).map(|c| &*c.name);
    if !names.any(|known| known == name) {
        return Err((404, format!("container {name:?} not found in pod {pod:?}\n")));
    }
    let shown = chosen(facts, uid, name, pod, previous)?;
    let meta = &worker.pod().metadata;
    let dir = facts.settings().log_dir(&meta.namespace, &meta.name, uid);
    query.path = format!("{dir}/{name}/{}.log", shown.attempt);
    // What does not run writes no more.
    query.follow &= shown.state == ContainerState::Running;
    Ok(Found { uid: uid.clone(), container: shown.id.clone(), query })
}

fn chosen<'a>(
    facts: &'a Facts,
    uid: &PodUid,
    name: &str,
    pod: &str,
    previous: bool,
) -> Result<&'a ContainerView, Refusal> {
    let view = facts.pleg.view(uid);
    if previous {
        let text = format!("previous terminated container {name:?} in pod {pod:?} not found\n");
        return view.and_then(|v| v.previous(name)).ok_or((400, text));
    }
    let ran = |c: &&ContainerView| c.state != ContainerState::Created;
    let worker = facts.workers.worker(uid);
    let reason =
        worker.and_then(|w| w.reasons().get(name)).map_or("ContainerCreating", |r| &*r.reason);
    let text = format!("container {name:?} in pod {pod:?} is waiting to start: {reason}\n");
    // While the next one is made, the last one's words are what there is (validateContainerLogStatus).
    let found = view.and_then(|v| v.container(name).filter(ran).or_else(|| v.previous(name)));
    found.ok_or((400, text))
}

fn options(query: &[(String, String)], now: Wall) -> Result<LogQuery, Refusal> {
    let mut log = LogQuery {
        follow: flag(query, "follow")?,
        timestamps: flag(query, "timestamps")?,
        ..LogQuery::default()
    };
    let tail = number(query, "tailLines")?;
    log.tail_lines = match (tail, value(query, "tail")) {
        (Some(lines), _) => Some(positive("tailLines", lines, 0)?),
        (None, None | Some("all")) => None,
        (None, Some(lines)) => lines.parse().ok(),
    };
    if let Some(bytes) = number(query, "limitBytes")? {
        log.limit_bytes = Some(positive("limitBytes", bytes, 1)?);
    }
    let seconds = number(query, "sinceSeconds")?;
    let time = value(query, "sinceTime");
    log.since = match (seconds, time) {
        (Some(_), Some(_)) => {
            let text = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            return Err((422, format!("{{\"message\": \"Invalid request: {text}\"}}\n")));
        }
        (Some(seconds), None) => {
            let seconds = positive("sinceSeconds", seconds, 1)?;
            let ns = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
            Some(now.0.saturating_sub(ns))
        }
        (None, Some(time)) => {
            let bad = || (400, "{\"message\": \"Unable to decode query.\"}\n".into());
            Some(parse_ns(time).ok_or_else(bad)?)
        }
        (None, None) => None,
    };
    Ok(log)
}

fn value<'a>(query: &'a [(String, String)], key: &str) -> Option<&'a str> {
    query.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
}

/// A boolean as apimachinery reads it: absent is false, `0` and `false` are false, anything else is true.
fn flag(query: &[(String, String)], key: &str) -> Result<bool, Refusal> {
    Ok(value(query, key).is_some_and(|v| !matches!(v, "0" | "false" | "False" | "FALSE")))
}

fn number(query: &[(String, String)], key: &str) -> Result<Option<i64>, Refusal> {
    let Some(text) = value(query, key) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| (400, "{\"message\": \"Unable to decode query.\"}\n".into()))
}

fn positive(key: &str, number: i64, least: i64) -> Result<u64, Refusal> {
    let text =
        format!("{{\"message\": \"{key}: Invalid value: {number}: must be at least {least}\"}}\n");
    if number < least { Err((422, text)) } else { Ok(number.unsigned_abs()) }
}
