//! What `/pods` says of a pod never goes back: a restart count does not fall, an end is final (k/k#134153, k/k#58711).

use super::Judge;
use crate::ledger::{Ask, Ledger};
use crate::trace::{Cause, Fact, Moment};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::ids::RequestId;

#[derive(Default)]
pub struct Status {
    asked: BTreeSet<RequestId>,
    /// Restart counts by pod uid and container name, and the life of the agent that said so.
    restarts: BTreeMap<(String, String), (i64, u32)>,
    /// Terminal phases by pod uid, and the life of the agent that said so.
    ends: BTreeMap<String, (String, u32)>,
}

impl Status {
    /// None: something is missing.
    fn pod(&mut self, ledger: &Ledger, pod: &Value, out: &mut Vec<String>) -> Option<()> {
        let uid = pod.pointer("/metadata/uid")?.as_str()?.to_owned();
        let name = pod.pointer("/metadata/name")?.as_str()?;
        let status = pod.get("status")?;
        let phase = status.get("phase").and_then(Value::as_str).unwrap_or_default();
        // A uid may come back as a new pod.
        if ledger.is_over(&uid) {
            self.ends.remove(&uid);
            self.restarts.retain(|(of, _), _| *of != uid);
            return Some(());
        }
        let mut shown = false;
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in status.get(list).and_then(Value::as_array).into_iter().flatten() {
                let id = container.get("containerID").and_then(Value::as_str).unwrap_or_default();
                if !id.is_empty() {
                    shown = true;
                    let container_name = container.get("name").and_then(Value::as_str)?;
                    let count = container.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
                    self.count(ledger, &uid, name, container_name, count, out);
                }
            }
        }
        self.phase(ledger, uid, name, phase, shown, out);
        Some(())
    }

    fn count(
        &mut self,
        ledger: &Ledger,
        uid: &str,
        pod: &str,
        name: &str,
        count: i64,
        out: &mut Vec<String>,
    ) {
        let now = (count, ledger.lives);
        let known = self.restarts.insert((uid.to_owned(), name.to_owned()), now).unwrap_or(now);
        // A new life of the agent cannot count a container that somebody else has removed meanwhile; of a pod of the API
        // server it shows what is written there, before it has seen the runtime.
        let told = ledger.known.object(uid).is_some();
        let forgiven = known.1 != ledger.lives && (told || taken(ledger, uid));
        if count < known.0 && !forgiven {
            out.push(format!("{pod}/{name}: {count} restarts after {}", known.0));
        }
    }

    /// A new life of the agent knows nothing of an end before it has `shown` containers.
    fn phase(
        &mut self,
        ledger: &Ledger,
        uid: String,
        name: &str,
        phase: &str,
        shown: bool,
        out: &mut Vec<String>,
    ) {
        // Nor of an end whose container somebody else has removed meanwhile, or that the API server has not heard of.
        let told = ledger.known.object(&uid).is_some();
        if (told || taken(ledger, &uid))
            && self.ends.get(&uid).is_some_and(|(_, life)| *life != ledger.lives)
        {
            self.ends.remove(&uid);
        }
        match self.ends.get(&uid) {
            Some((end, life)) if end != phase && (shown || *life == ledger.lives) => {
                out.push(format!("{name} went from {end} to {phase}"));
                self.ends.remove(&uid);
            }
            _ if ["Succeeded", "Failed"].contains(&phase) => {
                self.ends.insert(uid, (phase.to_owned(), ledger.lives));
            }
            _ => {}
        }
    }
}

/// Whether somebody else has removed a container of the pod.
fn taken(ledger: &Ledger, uid: &str) -> bool {
    ledger.containers.values().any(|record| {
        record.fact.uid == uid && record.removed == Some(Cause::Fault) && !record.over
    })
}

impl Judge for Status {
    fn promise(&self) -> &'static str {
        "restart counts never fall and a terminal phase is never left"
    }

    /// Nothing tells a new life of the agent of containers that are gone.
    fn started(&mut self, ledger: &Ledger, _: Moment) {
        let left: BTreeSet<&str> = (ledger.containers.values())
            .filter(|record| record.removed.is_none())
            .map(|record| &*record.fact.uid)
            .collect();
        self.ends.retain(|uid, _| left.contains(&**uid));
        let newest_left = |uid: &str, name: &str| {
            let newest = ledger.of(uid, name).max_by_key(|record| record.fact.attempt);
            newest.is_some_and(|record| record.removed.is_none())
        };
        self.restarts.retain(|(uid, name), _| newest_left(uid, name));
    }

    fn event(&mut self, _: &Ledger, _: Moment, event: &Event, _: &mut Vec<String>) {
        if let Event::Request(request) = event
            && request.path == "/pods"
        {
            self.asked.insert(request.id);
        }
    }

    /// A pod's first sandbox after an end of its uid: a new pod.
    fn fact(&mut self, ledger: &Ledger, _: Moment, fact: &Fact, _: &mut Vec<String>) {
        let Fact::SandboxRan(new) = fact else { return };
        let mut older = (ledger.sandboxes.values())
            .filter(|old| old.fact.uid == new.uid && old.fact.sandbox != new.sandbox);
        if older.all(|old| old.over) {
            self.ends.remove(&new.uid);
            self.restarts.retain(|(of, _), _| *of != new.uid);
        }
    }

    fn effects(
        &mut self,
        ledger: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        for (effect, _) in effects {
            let Effect::Reply { request, reply } = effect else { continue };
            if !self.asked.remove(request) || reply.status != 200 {
                continue;
            }
            let Ok(list) = serde_json::from_slice::<Value>(&reply.body) else {
                out.push("/pods is not JSON".into());
                continue;
            };
            let pods = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            for pod in &pods {
                if self.pod(ledger, pod, out).is_none() {
                    out.push("a pod in /pods has no name, uid or status".into());
                }
            }
        }
    }
}
