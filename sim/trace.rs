//! What really happened in the world, for the judges: the runtime's own account, not what the agent
//! was told.

use crate::clock::At;
use crate::doors::api::Stored;
use crate::ledger::{Ask, Ledger};
use bytes::Bytes;
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::ids::RequestId;
use steplet_core::time::{Now, Wall};

/// A change inside the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    SandboxRan(SandboxFact),
    SandboxStopped {
        sandbox: String,
        cause: Cause,
    },
    SandboxRemoved {
        sandbox: String,
    },
    ContainerCreated(Box<ContainerFact>),
    ContainerStarted {
        container: String,
    },
    ContainerExited {
        container: String,
        exit_code: i32,
        cause: Cause,
    },
    ContainerRemoved {
        container: String,
        cause: Cause,
    },
    ImagePulled {
        image: String,
    },
    /// A stream between a client of the agent and the runtime's streaming server.
    Stream {
        request: RequestId,
        what: Streamed,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streamed {
    Opened,
    /// The client has this status instead.
    Refused(u16),
    Ended(StreamEnd),
}

/// Who ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    Client,
    Server,
    /// Its process is gone.
    Agent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxFact {
    pub sandbox: String,
    pub uid: String,
    pub namespace: String,
    pub pod: String,
    pub attempt: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFact {
    pub container: String,
    pub sandbox: String,
    pub uid: String,
    pub namespace: String,
    pub pod: String,
    pub name: String,
    pub attempt: u32,
    pub image: String,
    pub created_at: Wall,
}

/// Who ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The program ended by itself.
    Itself,
    /// StopContainer, by the agent: TERM obeyed, or KILL after the grace.
    Stop,
    /// StopPodSandbox or RemovePodSandbox, by the agent.
    SandboxStop,
    /// The agent killed its cgroup.
    Cgroup,
    /// RemoveContainer, by the agent.
    Remove,
    /// A fault of the world: a crash, the OOM killer, a reboot, another user of the runtime.
    Fault,
}

/// What the world shows its witnesses, in the order in which it happens.
#[derive(Debug)]
pub enum Seen<'a> {
    /// A new life of the agent begins; its Boot event follows.
    Started,
    /// The agent is gone: it was killed (None), or left with this status.
    Ended(Option<i32>),
    Event(&'a Event),
    /// What the step of that event ended with, each beside what it asks to change.
    Effects(&'a [(Effect, Option<Ask>)]),
    Fact(&'a Fact),
    /// A change in the store of the API server, whoever made it.
    Stored(&'a Stored),
    Change(&'a Change),
}

/// What somebody did to the world, without asking the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    ManifestPut {
        name: String,
        text: Bytes,
    },
    ManifestGone {
        name: String,
    },
    /// The wall clock moved by so many seconds.
    ClockStepped {
        seconds: i64,
    },
    Rebooted,
    RuntimeCrashed,
    /// A fault begins, on something or everything.
    Fault {
        kind: &'static str,
        on: String,
    },
    /// The way to the API server is as it should be, or is not any more.
    Way {
        fine: bool,
    },
    /// All faults are over.
    Healed,
}

/// When something was seen.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub at: At,
    pub now: Now,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: At,
    pub promise: &'static str,
    pub what: String,
}

/// Somebody who watches the world.
pub trait Witness {
    /// `ledger` has taken in everything up to and with what is seen; of effects, up to the event before.
    fn see(&mut self, ledger: &Ledger, moment: Moment, seen: &Seen<'_>, out: &mut Vec<Violation>);
}
