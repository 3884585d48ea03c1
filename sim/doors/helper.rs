//! The helper pool: work that takes its time, and may hang.

use super::disk::{Disk, fault};
use super::kernel::Kernel;
use crate::dice::Dice;
use steplet_core::effect::HelperOp;
use steplet_core::event::{Fault, FaultKind, HelperReply, Outcome};
use steplet_core::time::{Span, Wall};

/// How long an operation takes when nothing is wrong.
pub fn time(op: &HelperOp, dice: &mut Dice) -> Span {
    match op {
        HelperOp::SetUpPod(_) => dice.millis(3, 80),
        HelperOp::TearDownPod { .. } | HelperOp::RemoveTree { .. } => dice.millis(2, 150),
        HelperOp::FetchManifest { .. } => dice.millis(5, 2_000),
        HelperOp::KeepChains { .. } => dice.millis(5, 500),
        HelperOp::Keep { .. } => dice.millis(3, 300),
        HelperOp::RequestPair { .. } => dice.millis(2, 30),
        HelperOp::StorePair { .. } | HelperOp::WriteFile { .. } => dice.millis(2, 150),
    }
}

/// Work on the same path is done one after the other.
pub fn subject(op: &HelperOp) -> &str {
    match op {
        HelperOp::SetUpPod(setup) => &setup.pod_dir,
        HelperOp::TearDownPod { pod_dir } => pod_dir,
        HelperOp::RemoveTree { path } => path,
        HelperOp::FetchManifest { .. } => "the manifest URL",
        HelperOp::KeepChains { .. } => "iptables",
        HelperOp::Keep { .. } => "the offline store",
        HelperOp::RequestPair { .. } | HelperOp::StorePair { .. } => "pki",
        HelperOp::WriteFile { path, .. } => path,
    }
}

/// Does the work, at its end.
pub fn run(op: &HelperOp, disk: &mut Disk, kernel: &mut Kernel, now: Wall) -> Outcome {
    let done = |result: Result<(), Fault>| Outcome::Helper(result.map(|()| HelperReply::Done));
    match op {
        HelperOp::SetUpPod(setup) => {
            Outcome::Helper(disk.set_up_pod(setup).map(HelperReply::PodReady))
        }
        HelperOp::TearDownPod { pod_dir } => done(disk.tear_down_pod(pod_dir)),
        HelperOp::KeepChains { whole } => {
            Outcome::Helper(Ok(HelperReply::Chains(kernel.iptables.keep(*whole))))
        }
        HelperOp::RemoveTree { path } => done(disk.remove_tree(path)),
        HelperOp::RequestPair { name, names, .. } => {
            let writable = disk.writable();
            Outcome::Helper(writable.map(|()| disk.pki.request(name, names)))
        }
        HelperOp::StorePair { name, chain, .. } => {
            let stored = disk.writable().and_then(|()| disk.pki.store(name, chain, now));
            Outcome::Helper(stored.map(HelperReply::Pair))
        }
        HelperOp::WriteFile { path, content, .. } => {
            let writable = disk.writable();
            done(writable.map(|()| disk.write(path, format!("{content:?}").as_bytes())))
        }
        HelperOp::FetchManifest { url, .. } => match disk.manifests.fetch(url) {
            Ok(None) => Outcome::Same,
            Ok(Some(manifest)) => Outcome::Helper(Ok(HelperReply::Manifest(Box::new(manifest)))),
            Err(message) => Outcome::Helper(Err(fault(FaultKind::Other, message))),
        },
        HelperOp::Keep { .. } => done(disk.keep()),
    }
}
