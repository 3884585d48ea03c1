//! Everything that the core does to the world, cut by door. Hashed into the chain of the run.

use crate::ids::{RequestId, Token};
use crate::sealed::Sealed;
use crate::time::Span;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Ends in exactly one `Event::Done` unless it is cancelled.
    Call { token: Token, call: Call },
    /// No Done and no Item of this token enters the core any more.
    Cancel(Token),
    /// The whole answer to a request.
    Reply { request: RequestId, reply: Reply },
    /// Answer a request with a container's log, pumped outside the core.
    SendLog { request: RequestId, log: Box<LogQuery> },
    /// The container of a followed log has stopped: finish at the end of the file.
    EndLog { request: RequestId },
    /// Connect a request with a streaming server of the runtime: its answer goes to the client, and if that is an
    /// upgrade all bytes after it both ways, outside the core.
    Stream { request: RequestId, url: String },
    /// Answer a request with a file below `root` as it is, or with the names in a directory there, outside the core.
    /// `path` is relative and has no `..`; links are followed as long as they stay below `root`.
    SendFile { request: RequestId, root: Cow<'static, str>, path: String },
    /// Leave the process with this status; pods go on running.
    Exit(i32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Call {
    Rpc(Rpc),
    Disk(DiskOp),
    Kernel(KernelOp),
    Helper(HelperOp),
    Api(ApiCall),
}

/// A request to the API server. Answer: `Outcome::Api`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiCall {
    pub verb: Verb,
    /// With its query: `/api/v1/nodes/n1/status?fieldManager=kubelet`
    pub path: String,
    /// JSON; empty when the verb has none.
    pub body: Bytes,
    /// Until the whole answer is there; for a watch, until its head is: its end is the server's affair.
    pub within: Span,
    pub lane: Lane,
    /// The answer holds secrets (Secrets, tokens): the door puts the number of a seal in the place of each.
    pub seals: bool,
    /// A secret that the door puts into the body on its way out, at this JSON pointer.
    pub secret: Option<(Cow<'static, str>, Sealed)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    Get,
    /// A GET whose answer is a stream: each line comes as `Item::Line`, and Done at its end has no body.
    Watch,
    Post,
    Put,
    /// `application/strategic-merge-patch+json`
    Patch,
    Delete,
}

/// How fast requests of a kind may leave the core; the doors treat all alike but those of `Bootstrap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lane {
    /// `kubeAPIQPS`
    #[default]
    Main,
    /// `eventRecordQPS`
    Events,
    /// Without a limit: node status and lease.
    Heartbeat,
    /// Without a limit, over a connection of its own: by the credentials of `--bootstrap-kubeconfig`, which are there
    /// to ask for the first certificate and for nothing else.
    Bootstrap,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rpc {
    pub peer: Peer,
    /// `/runtime.v1.RuntimeService/ListContainers`
    pub path: Cow<'static, str>,
    pub body: Bytes,
    /// The deadline; None waits for ever (image pulls).
    pub within: Option<Span>,
    /// A list whose answer may be `Same` as the last one that this peer gave to this path.
    pub same_as_last: bool,
    /// Of CreateContainer and PullImage: what the door puts into `body` on its way out, since it holds secrets.
    pub sealed: Vec<SealedText>,
}

/// A text of a container that holds secrets, in its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedText {
    pub place: Place,
    pub parts: Vec<Content>,
}

/// Where in a CreateContainerRequest, the place being there and empty; or in a PullImageRequest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The variable of this name in `config.envs`.
    Env(String),
    /// This entry of `config.command`.
    Command(u32),
    /// This entry of `config.args`.
    Arg(u32),
    /// `auth`: the login that the image's registry wants. The parts are docker configurations, as pull secrets hold
    /// them; the first that has one counts, and none is fine.
    Login,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Peer {
    Runtime,
    Images,
}

/// Bounded work on the agent's own directories: done on the thread, answered as an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DiskOp {
    /// Read a manifest file, or the files of a directory (no dot names, not recursive, sorted, 10 MiB each).
    /// Files that changed since the last read come as items. Answer: `Manifests`.
    ReadManifests { path: String },
    /// A stream: `PathChanged` whenever a manifest may have changed; ends with an error when the watch breaks.
    WatchManifests { path: String },
    /// Answer: `PodReady`. Only when no volume needs the helper.
    SetUpPod(Box<PodSetup>),
    /// Before a container is created: the files that it mounts.
    PrepareContainer(Box<ContainerFiles>),
    /// The last `most` bytes of a file, all lines or the last `lines`. Answer: `Text`. No link below the directory
    /// `within` is followed, and a path that is not below it is refused.
    ReadTail { within: String, path: String, most: u32, lines: Option<u32>, cri_log: bool },
    /// Make `link` point to `target`, replacing what is there.
    Symlink { link: String, target: String },
    /// Answer: `Names`; a missing directory is empty.
    List { path: String },
    /// The certificate in use, `<dir>/<name>-current.pem`. Answer: `Pair`, None when there is none; `Invalid`: it
    /// cannot be used, or the key beside it is another one's.
    ReadPair { dir: String, name: String },
    /// The key of the last request, `<dir>/<name>.key.tmp`, is of no use any more; gone already is fine.
    DropKey { dir: String, name: String },
}

/// Whom a certificate names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateNames {
    pub common_name: String,
    pub organizations: Vec<String>,
    /// Sorted.
    pub dns_names: Vec<String>,
    /// Sorted as texts.
    pub ips: Vec<String>,
}

/// The directories of a pod and what is mounted below them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodSetup {
    /// `<root-dir>/pods/<uid>`, 0750, with `volumes`, `plugins` and `containers` in it.
    pub pod_dir: String,
    /// `<podLogsDir>/<ns>_<name>_<uid>`, 0755, with a directory for each container.
    pub log_dir: String,
    pub containers: Vec<String>,
    pub volumes: Vec<VolumeSetup>,
    /// Read the node's resolver file at this path (empty: none).
    pub resolv_conf: String,
    /// Read /etc/hosts too.
    pub node_hosts: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeSetup {
    pub name: String,
    pub kind: VolumeKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum VolumeKind {
    /// A directory 0777 below the pod's; `gid` is the pod's fsGroup.
    EmptyDir { path: String, gid: Option<i64> },
    /// The same as a tmpfs of at most this many bytes (0: the kernel's default). Helper only.
    MemoryDir { path: String, size_bytes: u64, gid: Option<i64> },
    /// Checked, or made, by its type. Helper only, unless there is nothing to check: a foreign path may hang.
    HostPath { path: String, kind: HostPathKind },
    /// Files of the API, swapped as a whole: a second setup with other files is the update. `memory`: on a tmpfs.
    /// `gid` is the pod's fsGroup, which then may read them. Helper only.
    Files { path: String, memory: bool, gid: Option<i64>, files: Vec<VolumeFile> },
}

/// A file of a configMap, secret, downwardAPI or projected volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeFile {
    /// Relative to the volume.
    pub path: String,
    pub mode: u32,
    /// Its owner; None: the agent's.
    pub uid: Option<i64>,
    pub content: Content,
}

/// What stands in a file or in a part of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    Plain(Bytes),
    Sealed(Sealed),
    /// The seal is of base64, as a Secret's `data` has it: what that decodes to.
    Decoded(Sealed),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPathKind {
    Unchecked,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerFiles {
    /// `etc-hosts` (0644) with its content, unless the container mounts its own.
    pub etc_hosts: Option<(String, String)>,
    /// The termination log (0666), made empty.
    pub termination_log: Option<String>,
    /// Host directories of subPath mounts that must exist below a volume.
    pub subpaths: Vec<SubPath>,
    /// The container's log directory.
    pub log_dir: String,
}

/// A directory inside a volume, opened without following links out of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubPath {
    pub volume: String,
    pub path: String,
}

/// cgroupfs: bounded reads and writes. Paths are relative to the cgroup root: `kubepods/burstable`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KernelOp {
    /// Make each cgroup, in order, in all controllers, and write its values.
    SetCgroups(Vec<Cgroup>),
    /// Kill what is left in a cgroup and its children and remove it; gone already is fine. `Busy`: try again.
    RemoveCgroup { path: String },
    /// The same where systemd makes cgroups: the last part of each path is the name of a slice.
    SetSlices(Vec<Cgroup>),
    /// As `RemoveCgroup`, for a slice.
    RemoveSlice { path: String },
    /// Child cgroups. Answer: `Names`; a missing one is empty.
    ListCgroups { path: String },
    /// How much is left of what a node can run short of. Answer: `Signals`.
    /// `imagefs` is where the runtime keeps its images, as it said; empty: nowhere that is looked at.
    ReadSignals { root_dir: String, imagefs: String },
    /// Figures of the process itself as Prometheus text: memory, CPU, turns of the loop, the tape. Answer: `Text`.
    Figures,
    /// How much the process logs from now on, as `--v`. Answer: `Done`.
    SetVerbosity(u32),
}

/// Bytes; what cannot be read is 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signals {
    pub memory_capacity: u64,
    /// What is left when all pages go that can: MemTotal less the working set.
    pub memory_available: u64,
    /// Of the file system of the root directory.
    pub nodefs_capacity: u64,
    pub nodefs_available: u64,
    pub nodefs_inodes: u64,
    pub nodefs_inodes_free: u64,
    /// Of the file system of `imagefs`.
    pub imagefs_capacity: u64,
    pub imagefs_available: u64,
    pub imagefs_inodes: u64,
    pub imagefs_inodes_free: u64,
    /// How many processes and threads there may be, and how many there are.
    pub pids_max: u64,
    pub pids: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cgroup {
    pub path: String,
    /// File name and value in this machine's cgroup version: `cpu.shares`, `memory.max`, `pids.max`.
    pub values: Vec<(Cow<'static, str>, String)>,
}

/// Work that may hang, for the helper pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HelperOp {
    /// As `DiskOp::SetUpPod`, for every kind of volume.
    SetUpPod(Box<PodSetup>),
    /// Unmount everything below the pod's directory, then remove it; never crosses a mount.
    TearDownPod { pod_dir: String },
    /// Remove a directory tree of ours (a log directory); never follows a link.
    RemoveTree { path: String },
    /// GET a manifest within 10 s, at most 10 MiB. Answer: `Manifest`, or `Same` for the bytes of last time.
    /// `whole` is the URL when `url` is only what may be shown of it.
    FetchManifest { url: String, whole: Option<Sealed>, headers: Vec<(String, Sealed)> },
    /// The chains of iptables that others count on (`makeIPTablesUtilChains`), of both families: made when `whole`, or
    /// when the canary among them is gone, since somebody has emptied the tables then. Answer: `Chains`.
    KeepChains { whole: bool },
    /// Signs a request for a certificate with the key `<dir>/<name>.key.tmp`, which is made when it is not there and
    /// stays until `StorePair` or `DropKey`, so that a new life of the agent finds its request again.
    /// Answer: `CertificateRequest`.
    RequestPair { dir: String, name: String, names: CertificateNames },
    /// What was issued for that key, in PEM: key and chain become the pair in use. Answer: `Pair`; `Invalid`: it is
    /// not for this key, or not valid any more.
    StorePair { dir: String, name: String, chain: Bytes },
    /// As a whole, and on the disk when it is answered.
    WriteFile { path: String, mode: u32, content: Content },
    /// Keep `set` for times without the API server, then forget `unset`; all of it is durable when it is answered.
    /// `Boot.kept` brings back what is kept.
    Keep { set: Vec<KeptEntry>, unset: Vec<String> },
}

/// An entry of the store for times without the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEntry {
    /// Lower-case letters, digits and `-`.
    pub name: String,
    /// A JSON object.
    pub body: Bytes,
    /// The body holds secrets, as in `ApiCall.seals`: the door puts each in the place of its seal.
    pub sealed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub status: u16,
    pub content_type: Cow<'static, str>,
    pub body: Bytes,
}

/// What `/containerLogs` asked for; the bounds were checked by the core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogQuery {
    /// `<podLogsDir>/<ns>_<name>_<uid>/<container>/<N>.log`
    pub path: String,
    pub follow: bool,
    pub timestamps: bool,
    /// Nanoseconds since 1970: older lines are left out.
    pub since: Option<i64>,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
}
