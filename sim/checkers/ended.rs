//! What has ended stays ended: no container or sandbox is made for a pod that the agent knows to be
//! gone, replaced or finished.

use super::Judge;
use crate::ledger::{Ask, Ledger, POD_NAME, POD_NAMESPACE, POD_UID};
use crate::manifest::{Origin, PodKey, Restart};
use crate::trace::{Cause, Moment};
use std::collections::BTreeMap;

/// The manifest text that each uid stood for when something was first made for it.
#[derive(Default)]
pub struct Ended {
    texts: BTreeMap<String, String>,
}

impl Ended {
    fn check(&mut self, ledger: &Ledger, uid: &str, key: &PodKey, out: &mut Vec<String>) {
        if !ledger.informed {
            return;
        }
        let Some(pod) = ledger.known.pod(key) else {
            out.push(format!("something is started for {key} ({uid}), which is no pod any more"));
            return;
        };
        if pod.origin == Origin::Api && (pod.uid.as_deref() != Some(uid) || pod.ended) {
            out.push(format!("something is started for {key} ({uid}), which has ended"));
        }
        let text = self.texts.entry(uid.to_owned()).or_insert_with(|| pod.text.clone());
        if pod.uid.is_none() && *text != pod.text {
            out.push(format!("something is started for {key} ({uid}), which was replaced"));
        }
    }
}

impl Judge for Ended {
    fn promise(&self) -> &'static str {
        "nothing is started for a pod after its end"
    }

    fn asked(&mut self, ledger: &Ledger, _: Moment, ask: &Ask, out: &mut Vec<String>) {
        match ask {
            Ask::RunSandbox(config) => {
                let metadata = config.metadata.clone().unwrap_or_default();
                let key = PodKey { namespace: metadata.namespace, name: metadata.name };
                self.check(ledger, &metadata.uid, &key, out);
            }
            Ask::Create { config, .. } => {
                let label = |key: &str| config.labels.get(key).cloned().unwrap_or_default();
                let key = PodKey { namespace: label(POD_NAMESPACE), name: label(POD_NAME) };
                let (uid, name) =
                    (label(POD_UID), config.metadata.clone().unwrap_or_default().name);
                self.check(ledger, &uid, &key, out);
                finished(ledger, &key, &uid, &name, out);
            }
            Ask::Start { container } => {
                let Some(record) = ledger.containers.get(container) else { return };
                self.check(ledger, &record.fact.uid, &record.key, out);
            }
            _ => {}
        }
    }
}

/// A container that has run to its end is not made again when the policy says so.
fn finished(ledger: &Ledger, key: &PodKey, uid: &str, name: &str, out: &mut Vec<String>) {
    let Some(pod) = ledger.known.pod(key) else { return };
    let policy = pod.restart;
    let records = ledger.of(uid, name).filter(|record| !record.over && !record.forgotten);
    for record in records.filter(|record| record.removed != Some(Cause::Fault)) {
        let Some(exit) = record.exited.filter(|exit| exit.cause == Cause::Itself) else { continue };
        // A pinned uid may stand for a newer spec by now.
        if record.pod.as_ref().map(|pod| &pod.text) != Some(&pod.text) || record.started.is_none() {
            continue;
        }
        let again = match policy {
            Restart::Always => continue,
            Restart::OnFailure => exit.code == 0 && pod.containers.iter().any(|c| c.name == name),
            Restart::Never => true,
        };
        if again {
            let code = exit.code;
            out.push(format!("{} ended with {code}, {policy:?}, and is made again", record.name()));
        }
    }
}
