//! Whatever goes wrong, the agent does not hammer: for each pod and kind of call there is a most in any
//! minute.

use super::Judge;
use crate::clock::At;
use crate::doors::helper;
use crate::ledger::{Ask, Ledger};
use crate::trace::Moment;
use std::collections::{BTreeMap, VecDeque};
use steplet_core::effect::{Call, Effect};
use steplet_core::time::Span;

#[derive(Default)]
pub struct Calls {
    /// When changes were asked for, by pod and kind.
    changes: BTreeMap<(String, &'static str), VecDeque<At>>,
    /// All calls of the last minute.
    all: VecDeque<At>,
}

const WINDOW: Span = Span::from_secs(60);
/// A pod of three containers that retries every 10 s stays well below.
const CHANGES_MOST: usize = 24;
/// Two lists a second, and a status of everything now and then.
const ALL_MOST: usize = 2_000;

fn kind(ask: &Ask) -> &'static str {
    match ask {
        Ask::RunSandbox(_) => "RunPodSandbox",
        Ask::StopSandbox { .. } => "StopPodSandbox",
        Ask::RemoveSandbox { .. } => "RemovePodSandbox",
        Ask::Create { .. } => "CreateContainer",
        Ask::Start { .. } => "StartContainer",
        Ask::Stop { .. } => "StopContainer",
        Ask::Remove { .. } => "RemoveContainer",
        Ask::Pull { .. } => "PullImage",
        Ask::RemoveCgroup { .. } => "RemoveCgroup",
    }
}

/// Takes in a call; true when it is one too many, and then the count begins anew.
fn too_many(times: &mut VecDeque<At>, at: At, most: usize) -> bool {
    while times.front().is_some_and(|first| at.since(*first) > WINDOW) {
        times.pop_front();
    }
    times.push_back(at);
    let many = times.len() > most;
    if many {
        times.clear();
    }
    many
}

impl Calls {
    /// Takes in a change that is asked for.
    fn changed(&mut self, subject: String, kind: &'static str, at: At, out: &mut Vec<String>) {
        let times = self.changes.entry((subject.clone(), kind)).or_default();
        if too_many(times, at, CHANGES_MOST) {
            out.push(format!("more than {CHANGES_MOST} {kind} for {subject} in a minute"));
        }
    }
}

impl Judge for Calls {
    fn promise(&self) -> &'static str {
        "no call is repeated in a loop"
    }

    fn started(&mut self, _: &Ledger, _: Moment) {
        self.changes.clear();
        self.all.clear();
    }

    fn asked(&mut self, ledger: &Ledger, moment: Moment, ask: &Ask, out: &mut Vec<String>) {
        let subject = match ask {
            Ask::Pull { image } => image.clone(),
            Ask::RemoveCgroup { path } => path.clone(),
            _ => ledger.uid_of(ask).unwrap_or_default().to_owned(),
        };
        self.changed(subject, kind(ask), moment.at, out);
    }

    fn effects(
        &mut self,
        _: &Ledger,
        moment: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        for (effect, _) in effects {
            if let Effect::Call { call: Call::Helper(op), .. } = effect {
                self.changed(helper::subject(op).to_owned(), "helper jobs", moment.at, out);
            }
            if let Effect::Call { call, .. } = effect
                && too_many(&mut self.all, moment.at, ALL_MOST)
            {
                let kind = match call {
                    Call::Rpc(rpc) => rpc.path.as_ref(),
                    Call::Disk(_) => "disk",
                    Call::Kernel(_) => "kernel",
                    Call::Helper(_) => "helper",
                    Call::Api(_) => "API server",
                };
                out.push(format!("more than {ALL_MOST} calls in a minute, the last: {kind}"));
            }
        }
    }
}
