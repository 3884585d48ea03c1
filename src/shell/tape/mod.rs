//! The tape: every event that the core saw and every effect that it had, always on, in a bounded ring of
//! segments that each replay alone. The format is `proto/tape/v1/tape.proto`.

mod cri;
pub mod difference;
pub mod edit;
pub mod frame;
pub mod json;
mod part;
#[allow(clippy::all, clippy::pedantic, missing_docs)] // generated
mod proto;
pub mod reader;
mod recorder;
pub mod replay;
mod ring;
mod taped;
pub mod words;

pub use recorder::Recorder;
pub use ring::{TAPE_BYTES_MIN, TapeJob, compress_segment, sync_file};
pub use taped::Taped;

use std::borrow::Cow;
use steplet_core::effect::{Call, DiskOp, HelperOp, KernelOp, Verb};

/// Names this build: a tape is exact for one build only. Made in build.rs from all that decides what a step
/// does: the sources of core and api, the dependencies, the toolchain.
pub const BUILD: &str = env!("STEPLET_BUILD");

/// Every so many steps the tape holds the whole chained hash and a digest of the core.
const CHECK_STEPS: u64 = 256;

/// A call in a few words: its gRPC path, or the name of the operation.
pub fn call_name(call: &Call) -> Cow<'static, str> {
    Cow::Borrowed(match call {
        Call::Rpc(rpc) => return rpc.path.clone(),
        Call::Disk(op) => match op {
            DiskOp::ReadManifests { .. } => "ReadManifests",
            DiskOp::WatchManifests { .. } => "WatchManifests",
            DiskOp::SetUpPod(_) => "SetUpPod",
            DiskOp::PrepareContainer(_) => "PrepareContainer",
            DiskOp::ReadTail { .. } => "ReadTail",
            DiskOp::Symlink { .. } => "Symlink",
            DiskOp::List { .. } => "List",
            DiskOp::ReadPair { .. } => "ReadPair",
            DiskOp::DropKey { .. } => "DropKey",
        },
        Call::Kernel(op) => match op {
            KernelOp::SetCgroups(_) => "SetCgroups",
            KernelOp::RemoveCgroup { .. } => "RemoveCgroup",
            KernelOp::SetSlices(_) => "SetSlices",
            KernelOp::RemoveSlice { .. } => "RemoveSlice",
            KernelOp::ListCgroups { .. } => "ListCgroups",
            KernelOp::ReadSignals { .. } => "ReadSignals",
            KernelOp::Figures => "Figures",
            KernelOp::SetVerbosity(_) => "SetVerbosity",
        },
        Call::Helper(op) => match op {
            HelperOp::SetUpPod(_) => "SetUpPod",
            HelperOp::TearDownPod { .. } => "TearDownPod",
            HelperOp::RemoveTree { .. } => "RemoveTree",
            HelperOp::FetchManifest { .. } => "FetchManifest",
            HelperOp::KeepChains { .. } => "KeepChains",
            HelperOp::Keep { .. } => "Keep",
            HelperOp::RequestPair { .. } => "RequestPair",
            HelperOp::StorePair { .. } => "StorePair",
            HelperOp::WriteFile { .. } => "WriteFile",
        },
        Call::Api(call) => return api_name(call.verb, &call.path),
    })
}

/// `GET pods`, `PATCH nodes/status`: what is done to which kind of thing.
fn api_name(verb: Verb, path: &str) -> Cow<'static, str> {
    let verb = match verb {
        Verb::Get => "GET",
        Verb::Watch => "WATCH",
        Verb::Post => "POST",
        Verb::Put => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
    };
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.split('/').skip_while(|part| !part.starts_with('v')).skip(1);
    let mut kind = parts.next();
    if kind == Some("namespaces") {
        kind = parts.nth(1);
    }
    let sub = parts.nth(1).map(|sub| format!("/{sub}")).unwrap_or_default();
    format!("{verb} {}{sub}", kind.unwrap_or(path)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_short_names() {
        let check = |verb, path: &str, want: &str| assert_eq!(api_name(verb, path), want, "{path}");
        check(Verb::Watch, "/api/v1/pods?watch=true", "WATCH pods");
        check(Verb::Patch, "/api/v1/nodes/n1/status?fieldManager=v", "PATCH nodes/status");
        check(Verb::Post, "/api/v1/namespaces/default/events", "POST events");
        check(Verb::Delete, "/api/v1/namespaces/default/pods/web", "DELETE pods");
        check(
            Verb::Put,
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
            "PUT leases",
        );
        check(
            Verb::Post,
            "/api/v1/namespaces/d/serviceaccounts/a/token",
            "POST serviceaccounts/token",
        );
        check(Verb::Get, "/version", "GET /version");
    }
}
