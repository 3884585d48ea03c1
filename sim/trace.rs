//! What really happened in the world, for the judges: the runtime's own account, not what the agent
//! was told.

use steplet_core::time::Wall;

/// A change inside the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    SandboxRan(SandboxFact),
    SandboxStopped { sandbox: String, cause: Cause },
    SandboxRemoved { sandbox: String },
    ContainerCreated(Box<ContainerFact>),
    ContainerStarted { container: String },
    ContainerExited { container: String, exit_code: i32, cause: Cause },
    ContainerRemoved { container: String, cause: Cause },
    ImagePulled { image: String },
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
