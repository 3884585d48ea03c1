//! The cluster in a scene: what people do there, what becomes of the way to it, and what must be seen.

use super::expect::equal;
use super::node::span;
use super::stage::{Stage, status_text};
use crate::clock::At;
use crate::doors::api::link::{Lists, Trouble};
use crate::doors::api::{Signing, Stored};
use crate::setup::NODE;
use serde_json::{Value, json};
use steplet_api::status::PodStatus;

/// Does what a line beginning with `api` says.
pub fn act(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    match words {
        ["create", manifest] => {
            let object = object(stage, manifest)?;
            stage.world.api_create(object).map_err(|refusal| refusal.message)
        }
        ["patch", manifest] => {
            let object = object(stage, manifest)?;
            stage.world.api_patch("", &object).map_err(|refusal| refusal.message)
        }
        ["patch", manifest, "status"] => {
            let object = object(stage, manifest)?;
            stage.world.api_patch("status", &object).map_err(|refusal| refusal.message)
        }
        ["delete", "node"] => delete(stage, ("nodes", "", NODE), None),
        ["delete", kind, name, rest @ ..] => {
            let grace = match rest {
                [] => None,
                ["grace", grace] => Some(span(grace)?.secs() as i64),
                _ => return Err("want `api delete KIND NAME [grace 5s]`".into()),
            };
            let (namespace, name) = place(name);
            delete(stage, (&format!("{kind}s"), namespace, name), grace)
        }
        _ => way(stage, words),
    }
}

fn delete(
    stage: &mut Stage,
    what: (&str, &str, &str),
    grace_seconds: Option<i64>,
) -> Result<(), String> {
    stage.world.api_delete(what, grace_seconds).map_err(|refusal| refusal.message)
}

/// What happens to the server, or on the way there.
fn way(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    let world = &mut stage.world;
    match words {
        ["down"] => world.stop_api(),
        ["blackhole"] => world.change_way(|link| link.hole = true),
        ["slow", by] => {
            let by = span(by)?;
            world.change_way(|link| link.slow_by = by);
        }
        ["loses", "answers"] => world.change_way(|link| link.lost = 100),
        ["lists", "old"] => world.change_way(|link| link.lists = Lists::Old(1)),
        ["lists", "blank"] => world.change_way(|link| link.lists = Lists::Blank),
        ["lists", "empty"] => world.change_way(|link| link.lists = Lists::Empty),
        ["answers", code, rest @ ..] => {
            let code = code.parse().map_err(|_| format!("{code:?} is no status of HTTP"))?;
            let (mut subject, mut retry_after) = (String::new(), None);
            let mut rest = rest;
            while let [key, value, more @ ..] = rest {
                match *key {
                    "to" => subject = (*value).to_owned(),
                    "retry-after" => retry_after = Some(span(value)?),
                    _ => return Err(format!("what is {key:?}?")),
                }
                rest = more;
            }
            let trouble = Trouble { code, retry_after, share: 100, subject };
            world.change_way(|link| link.trouble = Some(trouble));
        }
        ["up"] => world.heal_api(),
        ["cuts", "watches"] => {
            world.with_api(|api, at, out| api.cut_watches(at, out));
        }
        ["forgets"] => world.api.expire(),
        ["token", token, "is", user] => {
            world.api.users.insert((*token).to_owned(), (*user).to_owned());
        }
        ["allows", "everybody"] => world.api.allows = true,
        ["allows", "nobody"] => {
            world.api.allows = false;
            world.api.grants.clear();
        }
        ["allows", who, verb, subresource] => {
            world.api.allows = false;
            world.api.grants.insert(((*who).to_owned(), format!("{verb} {subresource}")));
        }
        ["signs", what] | ["signs", "for", what] => {
            let signing = match *what {
                "nothing" => Signing::Never,
                "too-late" => Signing::TooLate,
                life => Signing::For(span(life)?),
            };
            world.with_api(|api, at, out| api.set_signing(at, signing, out));
        }
        ["denies", "certificates"] => {
            world.with_api(|api, at, out| api.set_signing(at, Signing::Denied, out));
        }
        ["signer", "fails"] => {
            world.with_api(|api, at, out| api.set_signing(at, Signing::Failed, out));
        }
        _ => return Err(format!("no such work on the API server: {:?}", words.join(" "))),
    }
    Ok(())
}

/// A manifest as an object; a pod belongs to this node unless it says otherwise.
fn object(stage: &Stage, manifest: &str) -> Result<Value, String> {
    let text = stage.manifests.get(manifest).ok_or_else(|| format!("no manifest {manifest}"))?;
    let reader = stage.world.disk().manifests.reader;
    let content = reader(manifest, text.as_bytes()).content.map_err(|error| error.message)?;
    let mut object: Value = serde_json::from_slice(&content.json).map_err(|e| e.to_string())?;
    if object["kind"] == "Pod" && object["spec"]["nodeName"].is_null() {
        object["spec"]["nodeName"] = json!(NODE);
    }
    Ok(object)
}

/// Namespace and name of `web` or `kube-system:dns`.
fn place(name: &str) -> (&str, &str) {
    name.split_once(':').unwrap_or(("default", name))
}

/// A pod of the API server; the picture of a static one has the node's name at the end of its own.
fn pod<'a>(stage: &'a Stage, name: &str) -> Option<&'a Value> {
    let (namespace, name) = place(name);
    let mirror = format!("{name}-{NODE}");
    let api = &stage.world.api;
    api.object("pods", namespace, name).or_else(|| api.object("pods", namespace, &mirror))
}

fn condition(object: &Value, kind: &str, want: &[&str]) -> Result<(), String> {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|one| one["type"] == kind);
    let text = |field: &str| found.and_then(|one| one[field].as_str()).unwrap_or_default();
    let found = match want.len() {
        1 => text("status").to_owned(),
        _ => format!("{} {}", text("status"), text("reason")),
    };
    equal(&want.join(" "), &found)
}

/// What the API server has of a pod.
pub fn check_pod(stage: &Stage, name: &str, want: &[&str]) -> Result<(), String> {
    let object = pod(stage, name).ok_or("it is not there")?;
    let status = |field: &str| object["status"][field].as_str().unwrap_or_default();
    match want {
        [] => Ok(()),
        ["phase", want] => equal(want, status("phase")),
        ["reason", want] => equal(want, status("reason")),
        ["condition", kind, want @ ..] => condition(object, kind, want),
        ["deleting"] if object["metadata"]["deletionTimestamp"].is_null() => {
            Err("it is not to go".into())
        }
        ["deleting"] => Ok(()),
        _ => Err(format!("a pod has no {:?}", want.join(" "))),
    }
}

pub fn check_no_pod(stage: &Stage, name: &str) -> Result<(), String> {
    match pod(stage, name) {
        None => Ok(()),
        Some(pod) => Err(format!("it is there, {}", pod["status"]["phase"])),
    }
}

pub fn check_node(stage: &Stage, want: &[&str]) -> Result<(), String> {
    let object = stage.world.api.object("nodes", "", NODE).ok_or("it is not registered")?;
    match want {
        [] => Ok(()),
        [both] if both.contains('=') => {
            let (kind, status) = both.split_once('=').unwrap_or_default();
            condition(object, kind, &[status])
        }
        ["label", key, want] => {
            equal(want, object["metadata"]["labels"][key].as_str().unwrap_or(""))
        }
        ["capacity", name, want] => {
            equal(want, object["status"]["capacity"][name].as_str().unwrap_or(""))
        }
        [kind, want @ ..] => condition(object, kind, want),
    }
}

pub fn check_no_node(stage: &Stage) -> Result<(), String> {
    match stage.world.api.object("nodes", "", NODE) {
        None => Ok(()),
        Some(_) => Err("it is registered".into()),
    }
}

/// How many certificates of this kind were stored, or until when the one in use is good.
pub fn check_certificate(stage: &Stage, kind: &str, want: &[&str]) -> Result<(), String> {
    let name = match kind {
        "client" => "kubelet-client",
        "serving" => "kubelet-server",
        _ => return Err("want client or serving".into()),
    };
    let pki = &stage.world.disk().pki;
    match want {
        ["stored", count] => equal(count, &pki.stored(name).to_string()),
        ["names", address] => {
            let ips = pki.current(name).map(|it| it.wanted.names.ips.join(","));
            equal(address, &ips.unwrap_or_default())
        }
        _ => Err("want `stored 2` or `names 192.0.2.10`".into()),
    }
}

/// Whether the node's lease was written lately.
pub fn check_lease(stage: &Stage, within: &str) -> Result<(), String> {
    let renewed = stage.film().renewed.ok_or("there is no lease")?;
    let ago = stage.world.at().since(renewed);
    if ago <= span(within)? { Ok(()) } else { Err(format!("renewed {} s ago", ago.secs())) }
}

/// What a change in the store looks like in a transcript; None for what nobody would read.
pub fn stored_text(stored: &Stored, name: &str) -> Option<String> {
    let created = stored.before.is_none();
    let by = format!("{:?}", stored.by).to_lowercase();
    let what = match stored.plural {
        "pods" => pod_text(stored)?,
        "nodes" => return node_text(stored),
        "leases" | "events" => return None,
        _ if created || stored.gone => String::new(),
        _ => "changed".to_owned(),
    };
    let kind = stored.object["kind"].as_str().unwrap_or_default().to_lowercase();
    Some(match (created, stored.gone) {
        (true, _) => format!("stored {kind} {name} created by={by}"),
        (_, true) => format!("stored {kind} {name} gone by={by}"),
        _ => format!("stored {kind} {name} {what}"),
    })
}

fn pod_text(stored: &Stored) -> Option<String> {
    let metadata = |object: &Value| object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let before = stored.before.as_deref();
    let now = &*stored.object;
    if let Some(grace) = metadata(now)
        && before.is_some_and(|before| metadata(before) != Some(grace))
    {
        return Some(format!("to-go grace={grace}"));
    }
    let status = |object: &Value| {
        let status: PodStatus =
            serde_json::from_value(object["status"].clone()).unwrap_or_default();
        status_text(&status)
    };
    let text = status(now);
    let same = before.is_some_and(|before| status(before) == text) && !stored.gone;
    (!same).then_some(text)
}

fn node_text(stored: &Stored) -> Option<String> {
    let ready = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|one| one["type"] == "Ready")?.clone();
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        Some(format!("Ready={} {}", text("status"), text("reason")))
    };
    let by = format!("{:?}", stored.by).to_lowercase();
    if stored.gone {
        return Some(format!("stored node gone by={by}"));
    }
    let now = ready(&stored.object).unwrap_or_default();
    match stored.before.as_deref() {
        None => Some(format!("stored node created {now}").trim_end().to_owned()),
        Some(before) if ready(before).unwrap_or_default() != now => {
            Some(format!("stored node {now}"))
        }
        Some(_) => None,
    }
}

/// When the lease of the node was written, if this was it.
pub fn renewal(stored: &Stored, at: At) -> Option<At> {
    let own = stored.plural == "leases" && stored.object["metadata"]["name"] == NODE;
    (own && !stored.gone).then_some(at)
}
