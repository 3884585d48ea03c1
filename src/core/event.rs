//! Everything that the core learns from the world, cut by door. Recorded on the tape before its step.

use crate::effect::{CertificateNames, KeptEntry, Signals};
use crate::ids::{RequestId, Token};
use crate::sealed::Sealed;
use crate::settings::Settings;
use crate::time::{Span, Wall};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Everything that start-up read. The first event of a run, once.
    Boot(Box<Boot>),
    /// The deadline that the core asked for has come.
    Tick,
    /// The answer to a call: exactly one for each that was not cancelled.
    Done {
        token: Token,
        outcome: Outcome,
    },
    /// A part of a stream, before its Done.
    Item {
        token: Token,
        item: Item,
    },
    /// An HTTP request whose head has arrived whole.
    Request(Box<Request>),
    /// The client of a request that was not yet answered in full has left.
    Gone {
        request: RequestId,
    },
    Signal(Signal),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    pub seed: u64,
    pub settings: Settings,
    pub machine: Machine,
    /// Manifests that brought the program down three times in five minutes; they are not read.
    pub set_aside: Vec<SetAside>,
    /// What was kept for times without the API server (`HelperOp::Keep`), by name.
    pub kept: Vec<KeptEntry>,
}

/// An input that is ignored from now on, until its content changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetAside {
    /// The manifest's file name, or the URL it came from.
    pub name: String,
    pub digest: u64,
}

/// Facts of the machine that do not change while the program runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpus: u32,
    /// MemTotal in bytes.
    pub memory_bytes: u64,
    pub boot_id: String,
    pub machine_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// GOARCH: amd64, arm64, ...
    pub architecture: String,
    /// Addresses of this node, preferred family first; the IPs of pods on the host network.
    pub host_ips: Vec<String>,
    /// 1 (also hybrid) or 2.
    pub cgroup_version: u8,
    /// Controllers that the cgroup root offers: cpu, cpuset, memory, hugetlb, pids.
    pub controllers: Vec<String>,
    /// Sizes that the kernel offers, in bytes, ascending.
    pub hugepage_sizes: Vec<u64>,
    /// Bytes that the kernel had set aside in pages of each of these sizes when the program started.
    pub hugepage_bytes: Vec<u64>,
    /// SMBIOS, or empty.
    pub system_uuid: String,
    /// SwapTotal in bytes.
    pub swap_bytes: u64,
    /// Existing /sys/devices/system/cpu/cpu<N>/thermal_throttle directories: masked in containers.
    pub thermal_throttle: Vec<String>,
    /// The kernel enforces AppArmor profiles.
    pub app_armor: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// A list that equals the one answered last time: it was not decoded.
    Same,
    Rpc(Result<Bytes, RpcError>),
    Disk(Result<DiskReply, Fault>),
    Kernel(Result<KernelReply, Fault>),
    Helper(Result<HelperReply, Fault>),
    /// The error is why no whole answer came: no connection, a deadline, a cut.
    Api(Result<ApiReply, String>),
}

/// What the API server answered, whatever its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApiReply {
    /// Of HTTP: 200, 404, 409, ...
    pub status: u16,
    /// `Retry-After`
    pub retry_after: Option<Span>,
    /// JSON; empty after a stream that has come to its end.
    pub body: Bytes,
}

/// A gRPC status other than OK.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// The number of the gRPC status code: 4 DeadlineExceeded, 5 NotFound, 14 Unavailable, ...
    pub code: i32,
    pub message: String,
}

impl RpcError {
    pub const INVALID_ARGUMENT: i32 = 3;
    pub const DEADLINE_EXCEEDED: i32 = 4;
    pub const NOT_FOUND: i32 = 5;
    pub const ALREADY_EXISTS: i32 = 6;
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    pub const UNIMPLEMENTED: i32 = 12;
    pub const UNAVAILABLE: i32 = 14;
    /// From the door: a secret of the request is not in the vault any more.
    pub const DATA_LOSS: i32 = 15;
}

/// An error of the operating system, cut by what the core can do differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub kind: FaultKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    NotFound,
    NoSpace,
    ReadOnly,
    Denied,
    Busy,
    TimedOut,
    /// The input itself is wrong (a hostPath of the wrong type, an answer that is too large).
    Invalid,
    /// A secret is not in the vault any more: its source has to be read again.
    SealLost,
    Other,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DiskReply {
    Done,
    /// The names now at the manifest path, sorted; `None` when the path does not exist. The files that
    /// changed since the last read came before, one `Item::Manifest` each.
    Manifests(Option<Vec<String>>),
    PodReady(PodReady),
    Text(Bytes),
    /// Directory entries, sorted, bounded.
    Names(Vec<String>),
    Pair(Option<Box<Pair>>),
}

/// A certificate of the node whose key is at hand, as far as decisions need it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub not_before: Wall,
    pub not_after: Wall,
    pub names: CertificateNames,
    /// Of the certificate.
    pub digest: u64,
}

/// What setting up a pod's directories found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodReady {
    /// The pod's directory was there before: an earlier life of the agent was at work on it.
    pub existed: bool,
    /// For each container asked for, the highest N of `<N>.log` (or its rotated forms) that exists.
    pub log_attempts: Vec<(String, u32)>,
    /// The node's resolver file, None when it is absent or unreadable.
    pub resolv_conf: Option<String>,
    /// The node's /etc/hosts, read only when the pod is on the host network.
    pub node_hosts: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KernelReply {
    Done,
    /// Names of the child cgroups, sorted.
    Names(Vec<String>),
    Text(Bytes),
    Signals(Signals),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HelperReply {
    Done,
    PodReady(PodReady),
    /// A manifest fetched from the URL; `Outcome::Same` stands for unchanged bytes.
    Manifest(Box<Manifest>),
    Chains(Chains),
    /// `digest` is of the public key and the names: the same key makes the same one.
    CertificateRequest {
        digest: String,
        pem: Bytes,
    },
    Pair(Box<Pair>),
}

/// What became of the KUBE- chains. An error of kind `NotFound`: there is no such program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chains {
    pub ipv4: Result<Kept, Fault>,
    pub ipv6: Result<Kept, Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// They were there.
    There,
    /// Some of them had to be made.
    Made,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Item {
    /// A file that is new or whose content changed.
    Manifest(Box<Manifest>),
    /// Something happened at the watched path.
    PathChanged,
    /// A line of a watch, without its end.
    Line(Bytes),
}

/// One manifest, already brought from YAML or JSON to canonical JSON by the door.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// File name without its directory, or the URL.
    pub name: String,
    /// Hash of the bytes as read.
    pub digest: u64,
    pub content: Result<ManifestJson, ManifestError>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestJson {
    pub json: Bytes,
    /// Line (from 1) of each path such as `spec.containers[0].image`, for error messages; sorted by path.
    pub lines: Vec<(String, u32)>,
}

/// Why a manifest could not be read: `line` is 0 when it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestError {
    pub line: u32,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: RequestId,
    pub listener: Listener,
    pub method: String,
    /// Percent-decoded path, without the query.
    pub path: String,
    /// Decoded key-value pairs of the query, in order.
    pub query: Vec<(String, String)>,
    /// Whether the peer's address is a loopback address.
    pub loopback: bool,
    /// Who its client certificate names, or why that does not count; None without one.
    pub certificate: Option<Result<User, String>>,
    /// Its bearer token.
    pub bearer: Option<Sealed>,
    /// It wants another protocol on its connection: a stream of bytes both ways.
    pub upgrade: bool,
    /// Of a PUT: the first kilobyte.
    pub body: Bytes,
}

/// Somebody who asks, as Kubernetes knows users.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Listener {
    /// port (10250): TLS.
    Secure,
    /// readOnlyPort (10255): plain text, open handlers only.
    ReadOnly,
    /// healthzPort (10248).
    Healthz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    Terminate,
    Interrupt,
}
