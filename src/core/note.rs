//! What managers say to each other inside one step, cut by fact. Facts are in the past tense, wishes end in `Wanted`.

use crate::ids::{ContainerId, PodUid, SandboxId};

#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Start-up facts are in place.
    Booted,
    Pod(PodNote),
    Runtime(RuntimeNote),
    /// A signal asks the program to end.
    ShutdownWanted,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PodNote {
    /// A source has a pod that is new, or changed; `facts.sources` has it.
    Configured { uid: PodUid },
    /// No source has the pod any more.
    Unconfigured { uid: PodUid },
    /// What the runtime shows of the pod differs from before; `facts.pleg` has it.
    ViewChanged { uid: PodUid },
    /// The first relist has succeeded: planning may begin.
    Relisted,
}

/// What a call of ours changed in the runtime, as soon as it was answered.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeNote {
    SandboxMade { uid: PodUid, id: SandboxId },
    SandboxStopped { uid: PodUid, id: SandboxId },
    SandboxRemoved { uid: PodUid, id: SandboxId },
    ContainerMade { uid: PodUid, id: ContainerId, sandbox: SandboxId },
    ContainerStarted { uid: PodUid, id: ContainerId },
    ContainerStopped { uid: PodUid, id: ContainerId },
    ContainerRemoved { uid: PodUid, id: ContainerId },
}
