//! What `/pods` says of a pod never goes back: a restart count does not fall, an end is final (B01, B35).

use super::Judge;
use crate::ledger::{Ask, Ledger};
use crate::trace::Moment;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::ids::RequestId;

#[derive(Default)]
pub struct Status {
    asked: BTreeSet<RequestId>,
    /// Restart counts by pod uid and container name.
    restarts: BTreeMap<(String, String), i64>,
    /// Terminal phases by pod uid.
    ends: BTreeMap<String, String>,
}

impl Status {
    fn pod(&mut self, pod: &Value, out: &mut Vec<String>) -> Option<()> {
        let uid = pod.pointer("/metadata/uid")?.as_str()?.to_owned();
        let name = pod.pointer("/metadata/name")?.as_str()?;
        let status = pod.get("status")?;
        let phase = status.get("phase").and_then(Value::as_str).unwrap_or_default();
        match self.ends.get(&uid) {
            Some(end) if end != phase => out.push(format!("{name} went from {end} to {phase}")),
            _ if ["Succeeded", "Failed"].contains(&phase) => {
                self.ends.insert(uid.clone(), phase.to_owned());
            }
            _ => {}
        }
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in status.get(list).and_then(Value::as_array).into_iter().flatten() {
                let container_name = container.get("name").and_then(Value::as_str)?.to_owned();
                let count = container.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
                let key = (uid.clone(), container_name);
                let before = self.restarts.get(&key).copied().unwrap_or(0);
                if count < before {
                    let container = &key.1;
                    out.push(format!("{name}/{container}: {count} restarts after {before}"));
                }
                self.restarts.insert(key, count.max(before));
            }
        }
        Some(())
    }
}

impl Judge for Status {
    fn promise(&self) -> &'static str {
        "restart counts never fall and a terminal phase is never left"
    }

    fn event(&mut self, _: &Ledger, _: Moment, event: &Event, _: &mut Vec<String>) {
        if let Event::Request(request) = event
            && request.path == "/pods"
        {
            self.asked.insert(request.id);
        }
    }

    fn effects(
        &mut self,
        _: &Ledger,
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
            let uids: BTreeSet<&str> =
                (pods.iter()).filter_map(|pod| pod.pointer("/metadata/uid")?.as_str()).collect();
            // A pod that went and came back under a pinned uid is another pod.
            self.restarts.retain(|(uid, _), _| uids.contains(uid.as_str()));
            self.ends.retain(|uid, _| uids.contains(uid.as_str()));
            for pod in &pods {
                if self.pod(pod, out).is_none() {
                    out.push("a pod in /pods has no name, uid or status".into());
                }
            }
        }
    }
}
