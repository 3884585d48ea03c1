//! A CRI runtime in memory, with containerd's manners: names are reserved while an operation runs, an
//! answer may come long after the caller has left, and containers outlive both the agent and the
//! runtime's own process.
//!
//! It takes in calls as bytes and says what follows (`Out`): when to wake it, which calls are answered,
//! what has changed. It has no clock.

mod answers;
pub mod app;
mod containers;
mod images;
mod lists;
mod sandboxes;
mod streaming;
#[cfg(test)]
mod tests;

use crate::dice::Dice;
use crate::trace::{Cause, Fact};
use bytes::Bytes;
pub use containers::Container;
use images::Images;
pub use sandboxes::Sandbox;
use std::collections::BTreeMap;
use steplet_api::cri;
use steplet_core::event::RpcError;
use steplet_core::settings::CgroupDriver;
use steplet_core::time::{Span, Wall};

/// Names one call for as long as the world lasts; the agent's tokens start again with each of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller(pub u64);

/// What the runtime wants to be woken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// An operation comes to its end.
    Finish(u64),
    /// A program ends, if it still runs.
    Exit { container: String, exit_code: i32, cause: Cause },
    /// The grace of StopContainer is over.
    Kill { container: String, op: u64 },
}

pub type Answer = Result<Bytes, RpcError>;

/// What follows from one input.
#[derive(Debug, Default)]
pub struct Out {
    pub wakes: Vec<(Span, Wake)>,
    pub answers: Vec<(Caller, Answer)>,
    pub facts: Vec<Fact>,
}

/// Which containerd it resembles, where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// 1.6: stopping what is gone is NotFound, RuntimeConfig and the image id are unknown.
    Old,
    /// 2.x
    New,
}

/// How long operations take, in percent of the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(pub u64);

/// The longest that a slow runtime makes of anything: a pull that outlasts the quiet time would tell nothing.
const SLOWEST: Span = Span::from_secs(120);

#[derive(Debug)]
pub struct Runtime {
    flavour: Flavour,
    driver: CgroupDriver,
    pace: Pace,
    dice: Dice,
    sandboxes: BTreeMap<String, Sandbox>,
    containers: BTreeMap<String, Container>,
    /// Reserved names, of what exists and of what is being made.
    names: BTreeMap<String, String>,
    images: Images,
    ops: BTreeMap<u64, Op>,
    op_count: u64,
    /// Addresses given out so far.
    ip_count: u32,
    lists: lists::Lists,
    /// What happens to an operation whose caller leaves; None: now this, now that.
    pub carries_on: Option<bool>,
    /// The sandbox network is broken: RunPodSandbox fails, Status says so.
    pub network_down: bool,
    /// The addresses of pods, as it was told.
    pub pod_cidr: String,
}

#[derive(Debug)]
struct Op {
    /// None once the caller has left.
    caller: Option<Caller>,
    work: Work,
    aborted: bool,
}

/// A call that was decoded.
#[derive(Debug)]
enum Work {
    Version,
    Status,
    RuntimeConfig,
    UpdateRuntimeConfig(cri::UpdateRuntimeConfigRequest),
    RunSandbox {
        sandbox: String,
        request: Box<cri::RunPodSandboxRequest>,
    },
    StopSandbox {
        sandbox: String,
    },
    RemoveSandbox {
        sandbox: String,
    },
    SandboxStatus {
        sandbox: String,
    },
    ListSandboxes(cri::ListPodSandboxRequest),
    Create {
        container: String,
        request: Box<cri::CreateContainerRequest>,
    },
    Start {
        container: String,
    },
    Stop {
        container: String,
        timeout: i64,
    },
    Remove {
        container: String,
    },
    ContainerStatus {
        container: String,
    },
    ListContainers(cri::ListContainersRequest),
    ReopenLog {
        container: String,
    },
    Pull {
        image: String,
    },
    ImageStatus {
        image: String,
    },
    ListImages(cri::ListImagesRequest),
    RemoveImage {
        image: String,
    },
    ImageFs,
    Streaming(streaming::Work),
    /// Decided when the call came in: refused, or looked up then and told later.
    Known(Answer),
}

fn refused(error: RpcError) -> Work {
    Work::Known(Err(error))
}

/// Whether it only looks.
fn reads(work: &Work) -> bool {
    matches!(
        work,
        Work::SandboxStatus { .. }
            | Work::ListSandboxes(_)
            | Work::ContainerStatus { .. }
            | Work::ListContainers(_)
    )
}

impl Runtime {
    pub fn new(flavour: Flavour, driver: CgroupDriver, dice: Dice) -> Runtime {
        Runtime {
            flavour,
            driver,
            pace: Pace(100),
            dice,
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            names: BTreeMap::new(),
            images: Images::default(),
            ops: BTreeMap::new(),
            op_count: 0,
            ip_count: 0,
            lists: lists::Lists::default(),
            carries_on: None,
            network_down: false,
            pod_cidr: String::new(),
        }
    }

    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Takes in a call. `longer` is added to its usual time.
    pub fn call(
        &mut self,
        wall: Wall,
        caller: Caller,
        method: &str,
        body: &[u8],
        longer: Span,
        out: &mut Out,
    ) {
        let work = answers::decode(method, body).unwrap_or_else(refused);
        self.op_count += 1;
        let op = self.op_count;
        let app = self.app_start(&work);
        let (mut work, time) = self.begin(op, work, out);
        // What a slow runtime tells may be out of date when it arrives.
        if self.pace != Pace(0) && reads(&work) && self.dice.chance(50) {
            work = Work::Known(self.conclude(wall, work, out));
        }
        self.ops.insert(op, Op { caller: Some(caller), work, aborted: false });
        if let Some(time) = time {
            // What is refused is refused at once, however slow the work would have been.
            let refused = matches!(self.ops.get(&op), Some(Op { work: Work::Known(Err(_)), .. }));
            let longer = if refused { Span::ZERO } else { longer };
            let time = Span(time.0 / 100 * self.pace.0).min(SLOWEST) + longer + app;
            out.wakes.push((time, Wake::Finish(op)));
        }
    }

    /// A program may be slow to start, whatever the pace of the runtime.
    fn app_start(&self, work: &Work) -> Span {
        let Work::Start { container } = work else { return Span::ZERO };
        self.containers.get(container).map_or(Span::ZERO, |container| container.app.start)
    }

    /// What is checked and reserved when a call arrives, and how long the rest takes; None: until something
    /// else happens.
    fn begin(&mut self, op: u64, work: Work, out: &mut Out) -> (Work, Option<Span>) {
        let ms = |dice: &mut Dice, low, high| Some(dice.millis(low, high));
        match work {
            Work::RunSandbox { request, .. } => match self.reserve_sandbox(&request) {
                Ok(sandbox) => {
                    (Work::RunSandbox { sandbox, request }, ms(&mut self.dice, 120, 400))
                }
                Err(error) => (refused(error), ms(&mut self.dice, 1, 3)),
            },
            Work::Create { request, .. } => match self.reserve_container(&request) {
                Ok(container) => (Work::Create { container, request }, ms(&mut self.dice, 20, 60)),
                Err(error) => (refused(error), ms(&mut self.dice, 1, 3)),
            },
            Work::Start { .. } => (work, ms(&mut self.dice, 60, 300)),
            Work::Stop { ref container, timeout } => {
                match self.begin_stop(op, container, timeout, out) {
                    Ok(time) => (work, time),
                    Err(error) => (refused(error), ms(&mut self.dice, 1, 3)),
                }
            }
            Work::StopSandbox { .. } => (work, ms(&mut self.dice, 20, 150)),
            Work::RemoveSandbox { .. } | Work::Remove { .. } => (work, ms(&mut self.dice, 5, 40)),
            Work::Pull { .. } => (work, ms(&mut self.dice, 400, 15_000)),
            Work::RemoveImage { .. } => (work, ms(&mut self.dice, 50, 500)),
            _ => (work, Some(Span(self.dice.between(400_000, 3_000_000)))),
        }
    }

    /// Goes on with what it wanted to be woken for.
    pub fn wake(&mut self, wall: Wall, wake: Wake, out: &mut Out) {
        match wake {
            Wake::Finish(op) => self.finish(wall, op, out),
            Wake::Exit { container, exit_code, cause } => {
                self.exit(wall, &container, exit_code, cause, out);
            }
            Wake::Kill { container, op } => {
                if self.ops.get(&op).is_some_and(|op| !op.aborted) {
                    self.exit(wall, &container, 137, Cause::Stop, out);
                }
            }
        }
    }

    fn finish(&mut self, wall: Wall, op: u64, out: &mut Out) {
        // Gone: the runtime was restarted meanwhile.
        let Some(Op { caller, work, aborted }) = self.ops.remove(&op) else { return };
        if aborted {
            self.undo(&work);
            return;
        }
        let answer = self.conclude(wall, work, out);
        if let Some(caller) = caller {
            out.answers.push((caller, answer));
        }
    }

    /// The caller has left: its deadline passed, it was cancelled, or it died. The work may be given up or go on.
    pub fn left(&mut self, caller: Caller) {
        let carries_on = self.carries_on.unwrap_or_else(|| self.dice.chance(50));
        for op in self.ops.values_mut().filter(|op| op.caller == Some(caller)) {
            op.caller = None;
            op.aborted = match op.work {
                // The wait for the program ends with its caller, and the kill with it.
                Work::Stop { .. } => true,
                Work::RunSandbox { .. } | Work::Create { .. } | Work::Pull { .. } => !carries_on,
                _ => false,
            };
        }
    }

    /// Gives back what an operation had reserved.
    fn undo(&mut self, work: &Work) {
        if let Work::RunSandbox { sandbox: id, .. } | Work::Create { container: id, .. } = work {
            self.names.retain(|_, holder| holder != id);
        }
    }

    /// The runtime's process ends: what it was doing is forgotten, what runs goes on running.
    pub fn crash(&mut self) {
        for op in std::mem::take(&mut self.ops).into_values() {
            self.undo(&op.work);
        }
        self.lists.forget();
    }

    /// The machine lost power: every program is dead, and the runtime shows so when it is back.
    pub fn reboot(&mut self, wall: Wall, out: &mut Out) {
        self.crash();
        let running: Vec<String> = (self.containers.iter())
            .filter(|(_, c)| c.running())
            .map(|(id, _)| id.clone())
            .collect();
        for id in running {
            // What containerd writes for a task that it cannot find any more.
            self.exit(wall, &id, 255, Cause::Fault, out);
        }
        for (id, sandbox) in &mut self.sandboxes {
            if sandbox.ready {
                sandbox.ready = false;
                let sandbox = id.clone();
                out.facts.push(Fact::SandboxStopped { sandbox, cause: Cause::Fault });
            }
        }
    }
}
