//! What managers say to each other inside one step, cut by fact. Facts are in the past tense, wishes end in `Wanted`.

use crate::ids::PodUid;

#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Start-up facts are in place.
    Booted,
    Pod(PodNote),
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
}
