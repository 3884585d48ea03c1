//! A run for the eye: what people did, what the agent asked of the runtime, what became of it.
//!
//! Sandboxes and containers go by pod, name and attempt (`web/app#0`): ids are random.

use crate::clock::At;
use crate::ledger::{Ask, Ledger};
use crate::setup::NODE;
use crate::trace::{Cause, Change, Fact, Moment, Seen, Violation, Witness};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use steplet_core::effect::Effect;
use steplet_core::event::{Event, Outcome, Signal};
use steplet_core::ids::Token;

/// The lines so far, shared with whoever prints them.
pub type Lines = Rc<RefCell<Vec<String>>>;

pub struct Transcript {
    lines: Lines,
    /// Changing calls that wait for an answer, by what they are called here.
    asked: BTreeMap<Token, String>,
    /// Answers that succeed are left out: the runtime's account says what came of them.
    last: Option<At>,
}

impl Transcript {
    pub fn new(lines: Lines) -> Transcript {
        Transcript { lines, asked: BTreeMap::new(), last: None }
    }

    fn line(&mut self, at: At, text: &str) {
        // One stamp for all that happens at an instant.
        let stamp = match self.last == Some(at) {
            true => String::new(),
            false => format!("{:.1}s", at.0 as f64 / 1e9),
        };
        self.last = Some(at);
        self.lines.borrow_mut().push(format!("{stamp:>9}  {text}"));
    }

    fn effects(&mut self, ledger: &Ledger, at: At, effects: &[(Effect, Option<Ask>)]) {
        for (effect, ask) in effects {
            match (effect, ask) {
                (Effect::Call { token, .. }, Some(ask)) => {
                    let text = ask_text(ledger, ask);
                    self.line(at, &format!("agent: {text}"));
                    self.asked.insert(*token, text);
                }
                (Effect::Cancel(token), _) => {
                    if let Some(text) = self.asked.remove(token) {
                        self.line(at, &format!("agent: gives up {text}"));
                    }
                }
                _ => {}
            }
        }
    }

    fn event(&mut self, at: At, event: &Event) {
        match event {
            Event::Done { token, outcome } => {
                let Some(text) = self.asked.remove(token) else { return };
                if let Some(error) = error(outcome) {
                    self.line(at, &format!("failed: {text}: {error}"));
                }
            }
            Event::Signal(Signal::Terminate) => self.line(at, "SIGTERM"),
            Event::Signal(Signal::Interrupt) => self.line(at, "SIGINT"),
            _ => {}
        }
    }
}

/// Random ids in a message say nothing.
fn error(outcome: &Outcome) -> Option<String> {
    let message = match outcome {
        Outcome::Rpc(Err(error)) => &error.message,
        Outcome::Disk(Err(fault)) | Outcome::Kernel(Err(fault)) | Outcome::Helper(Err(fault)) => {
            &fault.message
        }
        _ => return None,
    };
    let hex = |word: &str| word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = message.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let short = words.map(|word| {
        let body = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if hex(body) { word.replace(body, "<id>") } else { word.to_owned() }
    });
    Some(short.collect())
}

fn pod(name: &str) -> &str {
    name.strip_suffix(NODE).and_then(|name| name.strip_suffix('-')).unwrap_or(name)
}

fn container(ledger: &Ledger, id: &str) -> String {
    let Some(record) = ledger.containers.get(id) else { return "a container".into() };
    let fact = &record.fact;
    format!("{}/{}#{}", pod(&fact.pod), fact.name, fact.attempt)
}

fn sandbox(ledger: &Ledger, id: &str) -> String {
    let Some(record) = ledger.sandboxes.get(id) else { return "a sandbox".into() };
    format!("{}#{}", pod(&record.fact.pod), record.fact.attempt)
}

fn ask_text(ledger: &Ledger, ask: &Ask) -> String {
    match ask {
        Ask::RunSandbox(config) => {
            let metadata = config.metadata.clone().unwrap_or_default();
            format!("RunPodSandbox {}#{}", pod(&metadata.name), metadata.attempt)
        }
        Ask::StopSandbox { sandbox: id } => format!("StopPodSandbox {}", sandbox(ledger, id)),
        Ask::RemoveSandbox { sandbox: id } => format!("RemovePodSandbox {}", sandbox(ledger, id)),
        Ask::Create { sandbox: id, config } => {
            let metadata = config.metadata.clone().unwrap_or_default();
            let image = config.image.as_ref().map_or("", |image| &image.user_specified_image);
            let of = ledger.sandboxes.get(id).map_or("?", |record| pod(&record.fact.pod));
            format!("CreateContainer {of}/{}#{} of {image}", metadata.name, metadata.attempt)
        }
        Ask::Start { container: id } => format!("StartContainer {}", container(ledger, id)),
        Ask::Stop { container: id, timeout } => {
            format!("StopContainer {} within {timeout} s", container(ledger, id))
        }
        Ask::Remove { container: id } => format!("RemoveContainer {}", container(ledger, id)),
        Ask::Pull { image } => format!("PullImage {image}"),
        Ask::RemoveCgroup { path } => {
            let (parent, _) = path.rsplit_once('/').unwrap_or_default();
            format!("remove a cgroup of {parent}")
        }
    }
}

fn fact_text(ledger: &Ledger, fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::SandboxRan(fact) => format!("sandbox {}#{} is ready", pod(&fact.pod), fact.attempt),
        Fact::SandboxStopped { sandbox: id, cause: Cause::Fault } => {
            format!("sandbox {} died", sandbox(ledger, id))
        }
        Fact::SandboxStopped { sandbox: id, .. } => {
            format!("sandbox {} stopped", sandbox(ledger, id))
        }
        Fact::ContainerStarted { container: id } => format!("{} runs", container(ledger, id)),
        Fact::ContainerExited { container: id, exit_code, cause } => {
            let how = match cause {
                Cause::Itself => "ended",
                Cause::Stop => "was stopped",
                Cause::SandboxStop => "was killed with its sandbox",
                Cause::Cgroup => "was killed with its cgroup",
                Cause::Remove | Cause::Fault => "died",
            };
            format!("{} {how}, exit code {exit_code}", container(ledger, id))
        }
        Fact::ContainerRemoved { container: id, cause: Cause::Fault } => {
            format!("{} was removed by somebody else", container(ledger, id))
        }
        Fact::SandboxRemoved { .. }
        | Fact::ContainerCreated(_)
        | Fact::ContainerRemoved { .. }
        | Fact::ImagePulled { .. }
        | Fact::Stream { .. } => return None,
    })
}

fn change_text(ledger: &Ledger, change: &Change) -> Option<String> {
    Some(match change {
        Change::ManifestPut { name, .. } => format!("{name} is written"),
        Change::ManifestGone { name } => format!("{name} is removed"),
        Change::ClockStepped { seconds } => format!("the clock steps by {seconds} s"),
        Change::Rebooted => "the machine reboots".into(),
        Change::RuntimeCrashed => "the runtime's process ends".into(),
        Change::Fault { kind, on } => {
            let on = match (ledger.containers.contains_key(on), ledger.sandboxes.contains_key(on)) {
                (true, _) => format!(": {}", container(ledger, on)),
                (_, true) => format!(": {}", sandbox(ledger, on)),
                _ => String::new(),
            };
            format!("fault: {kind}{on}")
        }
        Change::Way { fine: true } => "the API server answers".into(),
        Change::Way { fine: false } => "the API server does not answer as it should".into(),
        Change::Healed => "all faults are over".into(),
    })
}

impl Witness for Transcript {
    fn see(&mut self, ledger: &Ledger, moment: Moment, seen: &Seen<'_>, out: &mut Vec<Violation>) {
        let at = moment.at;
        match seen {
            Seen::Started => self.line(at, "the agent starts"),
            Seen::Ended(None) => self.line(at, "the agent is gone"),
            Seen::Ended(Some(status)) => {
                self.line(at, &format!("the agent leaves with status {status}"));
            }
            Seen::Event(event) => self.event(at, event),
            Seen::Effects(effects) => self.effects(ledger, at, effects),
            Seen::Fact(fact) => {
                if let Some(text) = fact_text(ledger, fact) {
                    self.line(at, &text);
                }
            }
            Seen::Stored(_) => {}
            Seen::Change(change) => {
                if let Some(text) = change_text(ledger, change) {
                    self.line(at, &text);
                }
            }
        }
        // The judges have seen it first.
        for broken in out.iter().filter(|broken| broken.at == at) {
            let text = format!("VIOLATION: {}: {}", broken.promise, broken.what);
            if !self.lines.borrow().iter().rev().take(20).any(|line| line.ends_with(&text)) {
                self.line(at, &text);
            }
        }
    }
}
