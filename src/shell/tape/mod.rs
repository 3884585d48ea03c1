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
use steplet_core::effect::{Call, DiskOp, HelperOp, KernelOp};

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
        },
        Call::Kernel(op) => match op {
            KernelOp::SetCgroups(_) => "SetCgroups",
            KernelOp::RemoveCgroup { .. } => "RemoveCgroup",
            KernelOp::ListCgroups { .. } => "ListCgroups",
            KernelOp::Figures => "Figures",
        },
        Call::Helper(op) => match op {
            HelperOp::SetUpPod(_) => "SetUpPod",
            HelperOp::TearDownPod { .. } => "TearDownPod",
            HelperOp::RemoveTree { .. } => "RemoveTree",
            HelperOp::FetchManifest { .. } => "FetchManifest",
        },
    })
}
