//! What managers say to each other inside one step, cut by fact. Facts are in the past tense, wishes end in `Wanted`.

use crate::event::PodReady;
use crate::ids::{ContainerId, PodUid, SandboxId};
use crate::managers::containers::image::ImageUser;
use crate::managers::pods::plan::Step;
use crate::managers::volumes::objects::Key;
use crate::managers::volumes::tokens::TokenKey;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    Pod(PodNote),
    Step(StepNote),
    Runtime(RuntimeNote),
    Image(ImageNote),
    Volume(VolumeNote),
    /// Something that an operator should read: a Kubernetes event.
    Said(Box<Said>),
    /// The Node is registered, or is another one than before: `facts.node` has it.
    NodeKnown,
    /// A pod wants to know the labels of the Node as they are now.
    NodeLookWanted,
    /// They are known, or cannot be.
    NodeLooked,
    /// The API server answers again after a call that it did not.
    ApiBack,
    /// Files and the URL were read, whatever is with the API server.
    ManifestsRead,
    /// The API server has pods that its list did not tell of.
    PartialList,
    /// Only the runtime has this pod: whether the API server has it too is to be asked.
    Stranger {
        uid: PodUid,
    },
    /// The API server was asked: it does not have this pod.
    StrangerGone {
        uid: PodUid,
    },
    /// What the API server has given for pods is other than before.
    Learned(Learned),
    /// A signal asks the program to end.
    ShutdownWanted,
}

/// Something of the API server that pods need beside themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Learned {
    Object(Key),
    Token(TokenKey),
    Services,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PodNote {
    /// A source has a pod that is new, or changed; `facts.sources` has it.
    Configured { uid: PodUid },
    /// No source has the pod any more.
    Unconfigured { uid: PodUid },
    /// The API server has another status of a pod of its own, or has taken ours: `facts.sources` has it.
    ObjectChanged { uid: PodUid },
    /// It has other pictures of static pods.
    MirrorsChanged,
    /// All sources have been read at least once.
    SourcesReady,
    /// The runtime was looked at: `facts.pleg` is fresh for this pod.
    Inspected { uid: PodUid },
    /// The runtime answers again, or for the first time.
    RuntimeBack,
    /// The runtime has said what it is: its name stands in container IDs, its cgroup driver is ours.
    RuntimeNamed,
    /// What the worker knows of the pod changed: its status is to be computed again.
    Progressed { uid: PodUid },
    /// No removal of this pod's files or cgroup is under way any more.
    Swept { uid: PodUid },
    /// The worker has let go of the pod: nothing of it runs, its directories and cgroup are gone.
    Forgotten { uid: PodUid },
}

/// Between the workers, who decide, and the runtime manager, who carries out one step a pod at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum StepNote {
    Wanted {
        uid: PodUid,
        step: Box<Step>,
    },
    /// Ends what has no effect in the runtime yet; a call that may have one is waited for.
    CancelWanted {
        uid: PodUid,
    },
    /// What is being stopped gets no more than this, from now on.
    HastenWanted {
        uid: PodUid,
        grace_seconds: i64,
    },
    Done {
        uid: PodUid,
        result: Result<StepDone, StepError>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum StepDone {
    SetUp(PodReady),
    Started { container: Box<str> },
    Other,
    Cancelled,
}

/// Why a step failed: a reason as upstream has them (pkg/kubelet/container/sync_result.go), shown as the waiting
/// reason of the container.
#[derive(Clone, Debug, PartialEq)]
pub struct StepError {
    pub container: Option<Box<str>>,
    pub reason: &'static str,
    pub message: String,
}

/// What a call of ours changed in the runtime, as soon as it was answered.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeNote {
    SandboxMade { uid: PodUid, id: SandboxId },
    SandboxStopped { uid: PodUid, id: SandboxId },
    SandboxRemoved { uid: PodUid, id: SandboxId },
    ContainerMade { uid: PodUid, id: ContainerId, sandbox: SandboxId, name: Box<str>, attempt: u32 },
    ContainerStarted { uid: PodUid, id: ContainerId },
    ContainerStopped { uid: PodUid, id: ContainerId },
    ContainerRemoved { uid: PodUid, id: ContainerId },
}

#[derive(Clone, Debug, PartialEq)]
pub enum ImageNote {
    /// The image of this container must be present, by its pull policy.
    Wanted {
        uid: PodUid,
        container: Box<str>,
        /// `spec.containers{name}`, for events.
        field: Box<str>,
        image: Box<str>,
        policy: Box<str>,
    },
    /// The pod no longer waits for it. A pull that is under way goes on.
    Unwanted {
        uid: PodUid,
    },
    Ready {
        uid: PodUid,
        result: Result<ImageFound, StepError>,
    },
}

/// Between the runtime manager, which sets up pods, and the manager of volumes, which has what is in them.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeNote {
    /// The pod is to be set up: what its volumes hold must be at hand in `facts.volumes`.
    Wanted {
        uid: PodUid,
    },
    /// The pod no longer waits for it.
    Unwanted {
        uid: PodUid,
    },
    Ready {
        uid: PodUid,
        result: Result<(), StepError>,
    },
    /// Seals of the pod's secrets open nothing any more.
    SecretsLost {
        uid: PodUid,
    },
}

/// An image as the runtime has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageFound {
    /// What CreateContainer is given.
    pub id: Box<str>,
    pub user: ImageUser,
}

/// A Kubernetes event about a pod, one of its containers, or (`uid` None) the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub uid: Option<PodUid>,
    /// `spec.containers{name}` when it is about a container.
    pub field: String,
    pub warning: bool,
    pub reason: Cow<'static, str>,
    pub message: String,
}
