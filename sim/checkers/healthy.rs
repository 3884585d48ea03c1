//! A healthy container is none of the agent's business: a restart of the agent, of the runtime, or a
//! step of the clock is no reason to stop it.

use super::Judge;
use crate::ledger::Ledger;
use crate::trace::{Cause, Fact, Moment};

pub struct Healthy;

impl Judge for Healthy {
    fn promise(&self) -> &'static str {
        "a healthy container of an unchanged pod is never stopped"
    }

    fn fact(&mut self, ledger: &Ledger, _: Moment, fact: &Fact, out: &mut Vec<String>) {
        let Fact::ContainerExited { container, cause, .. } = fact else { return };
        let by = match cause {
            Cause::Stop => "StopContainer",
            Cause::SandboxStop => "StopPodSandbox",
            Cause::Cgroup => "its cgroup's removal",
            Cause::Itself | Cause::Remove | Cause::Fault => return,
        };
        let Some(record) = ledger.containers.get(container) else { return };
        let Some(sandbox) = ledger.sandboxes.get(&record.fact.sandbox) else { return };
        // Its time may be over.
        if record.pod.as_ref().is_some_and(|pod| pod.text.contains("activeDeadlineSeconds")) {
            return;
        }
        // Asked for before the container was made, and done late by a slow runtime.
        let late = *cause == Cause::SandboxStop
            && sandbox.stop_asked.is_some_and(|asked| asked < record.created);
        if !record.disturbed && !sandbox.died && !late {
            out.push(format!("{} was healthy and was ended by {by}", record.name()));
        }
    }
}
