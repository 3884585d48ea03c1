//! What a helper process does: one job after another, each of which may hang.
//!
//! Jobs and answers go over a socket: four bytes of length, lowest first, then postcard.

use super::disk::{self, Loaded};
use super::{chains, fetch, kernel, plugin};
use crate::shell::doors::api::ExecPlugin;
use crate::shell::doors::api::seal::Unopened;
use crate::shell::doors::{pki, reason};
use crate::shell::offline::{self, Store};
use crate::shell::tape::TapeJob;
use crate::shell::vault::{Opened, SealLost, Secret, Vault, shown_url};
use crate::shell::{boot, memory};
use bytes::Bytes;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::ToSocketAddrs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use steplet_core::effect::{
    CertificateNames, ContainerFiles, Content, HelperOp, KernelOp, PodSetup, VolumeKind,
    VolumeSetup,
};
use steplet_core::event::{DiskReply, Fault, FaultKind, HelperReply, Outcome};

/// Bytes of one job or answer: a manifest of 10 MiB can grow fourfold in its canonical form.
pub const FRAME_MAX: usize = 64 << 20;

thread_local! {
    /// Where cgroups are mounted does not change while a helper lives.
    static CGROUPS: kernel::Kernel = kernel::Kernel::new();
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Job {
    SetUpPod(Box<PodSetup>, Opened),
    TearDownPod {
        pod_dir: String,
    },
    RemoveTree {
        path: String,
    },
    FetchManifest {
        url: Secret,
        headers: Vec<(String, Secret)>,
        known: Option<u64>,
    },
    PrepareContainer(Box<ContainerFiles>),
    LoadManifest {
        name: String,
        path: String,
        known: Option<u64>,
    },
    KeepChains {
        whole: bool,
    },
    /// A change of the offline store.
    Keep(Box<offline::Change>),
    /// A write to a cgroup that can make the kernel reclaim memory first.
    Kernel(KernelOp),
    Tape(TapeJob),
    /// The addresses of a host, each with the port. Answer: `Names`.
    LookUp {
        host: String,
        port: u16,
    },
    /// What a credential plugin prints. Answer: `Text`.
    AskPlugin(Box<ExecPlugin>),
    RequestPair {
        place: pki::Place,
        names: CertificateNames,
    },
    StorePair {
        place: pki::Place,
        chain: Bytes,
    },
    WriteFile {
        path: String,
        mode: u32,
        content: Content,
        opened: Opened,
    },
}

impl Job {
    /// Opens what is sealed in it. Errors: a seal that this vault did not give; no store to keep something in.
    pub fn of(op: HelperOp, vault: &Vault, offline: Option<&Store>) -> Result<Job, Fault> {
        let lost = |lost: SealLost| Fault { kind: FaultKind::SealLost, message: lost.to_string() };
        Ok(match op {
            HelperOp::SetUpPod(setup) => {
                let files = setup.volumes.iter().flat_map(|volume| match &volume.kind {
                    VolumeKind::Files { files, .. } => &files[..],
                    _ => &[],
                });
                let opened = Opened::of(files.map(|file| &file.content), vault).map_err(lost)?;
                Job::SetUpPod(setup, opened)
            }
            HelperOp::TearDownPod { pod_dir } => Job::TearDownPod { pod_dir },
            HelperOp::RemoveTree { path } => Job::RemoveTree { path },
            HelperOp::KeepChains { whole } => Job::KeepChains { whole },
            HelperOp::FetchManifest { url, whole, headers } => {
                let url = whole.map_or(Ok(Secret::from(url)), |seal| vault.open(seal));
                let headers = headers.into_iter();
                let headers = headers.map(|(name, seal)| Ok((name, vault.open(seal)?)));
                let headers = headers.collect::<Result<_, _>>().map_err(lost)?;
                Job::FetchManifest { url: url.map_err(lost)?, headers, known: None }
            }
            HelperOp::Keep { set, unset } => {
                let odd =
                    |message: &str| Fault { kind: FaultKind::Invalid, message: message.into() };
                let store = offline.ok_or_else(|| odd("there is no offline store"))?;
                let change = store.change(set, unset, vault).map_err(|why| match why {
                    Unopened::Lost(seal) => lost(seal),
                    Unopened::Odd => odd("an entry of the offline store makes no sense"),
                })?;
                Job::Keep(Box::new(change))
            }
            HelperOp::RequestPair { dir, name, names } => {
                Job::RequestPair { place: pki::Place::new(&dir, &name), names }
            }
            HelperOp::StorePair { dir, name, chain } => {
                Job::StorePair { place: pki::Place::new(&dir, &name), chain }
            }
            HelperOp::WriteFile { path, mode, content } => {
                let opened = Opened::of([&content], vault).map_err(lost)?;
                Job::WriteFile { path, mode, content, opened }
            }
        })
    }

    /// Jobs on the same thing are done one after the other, so that a hung one holds up its own
    /// kind only.
    pub fn subject(&self) -> Option<&str> {
        match self {
            Job::SetUpPod(setup, _) => Some(&setup.pod_dir),
            Job::TearDownPod { pod_dir } => Some(pod_dir),
            Job::RemoveTree { path } | Job::LoadManifest { path, .. } => Some(path),
            Job::FetchManifest { url, .. } => Some(url.expose()),
            Job::PrepareContainer(files) => files.subpaths.first().map(|sub| &*sub.volume),
            Job::KeepChains { .. } => Some("iptables"),
            // systemd may not answer, and that is no reason for other cgroups to wait.
            Job::Kernel(KernelOp::SetSlices(_) | KernelOp::RemoveSlice { .. }) => Some("systemd"),
            Job::Kernel(_) => Some("cgroup"),
            Job::Tape(_) => Some("tape"),
            Job::Keep(_) => Some("offline store"),
            Job::LookUp { host, .. } => Some(host),
            Job::AskPlugin(plugin) => Some(&plugin.command),
            Job::RequestPair { .. } | Job::StorePair { .. } => Some("pki"),
            Job::WriteFile { path, .. } => Some(path),
        }
    }

    /// Whether it touches what is not ours, and may hang: a mount of somebody, a server.
    pub fn is_foreign(&self) -> bool {
        match self {
            Job::SetUpPod(setup, _) => {
                let host = |v: &VolumeSetup| matches!(v.kind, VolumeKind::HostPath { .. });
                setup.volumes.iter().any(host)
            }
            Job::PrepareContainer(_) | Job::LoadManifest { .. } | Job::FetchManifest { .. } => true,
            Job::TearDownPod { .. }
            | Job::RemoveTree { .. }
            | Job::Kernel(_)
            | Job::Tape(_)
            | Job::Keep(_) => false,
            Job::RequestPair { .. } | Job::StorePair { .. } | Job::WriteFile { .. } => false,
            // They end in time, and without them the node is lost.
            Job::LookUp { .. } | Job::AskPlugin(_) | Job::KeepChains { .. } => false,
        }
    }

    /// In messages.
    pub fn name(&self) -> &'static str {
        match self {
            Job::SetUpPod(..) => "set up the pod's directories",
            Job::TearDownPod { .. } => "remove the pod's directories",
            Job::RemoveTree { .. } => "remove a directory",
            Job::FetchManifest { .. } => "fetch a manifest",
            Job::PrepareContainer(_) => "make the container's files",
            Job::LoadManifest { .. } => "read a manifest",
            Job::KeepChains { .. } => "keep the chains of iptables",
            Job::Kernel(_) => "write to a cgroup",
            Job::Tape(_) => "tend the tape",
            Job::Keep(_) => "write the offline store",
            Job::LookUp { .. } => "look up a name",
            Job::AskPlugin(_) => "ask a credential plugin",
            Job::RequestPair { .. } => "sign a certificate request",
            Job::StorePair { .. } => "store a certificate",
            Job::WriteFile { .. } => "write a file",
        }
    }

    /// The outcome of the job when it was not even done.
    pub fn failed(&self, fault: Fault) -> Outcome {
        match self {
            Job::PrepareContainer(_) | Job::LookUp { .. } | Job::AskPlugin(_) => {
                Outcome::Disk(Err(fault))
            }
            Job::Kernel(_) => Outcome::Kernel(Err(fault)),
            Job::SetUpPod(..)
            | Job::TearDownPod { .. }
            | Job::RemoveTree { .. }
            | Job::FetchManifest { .. }
            | Job::LoadManifest { .. }
            | Job::KeepChains { .. }
            | Job::Keep(_)
            | Job::RequestPair { .. }
            | Job::StorePair { .. }
            | Job::WriteFile { .. }
            | Job::Tape(_) => Outcome::Helper(Err(fault)),
        }
    }

    /// Does the job in this process.
    pub fn run(self) -> Outcome {
        let helper =
            |result: Result<(), Fault>| Outcome::Helper(result.map(|()| HelperReply::Done));
        match self {
            Job::SetUpPod(setup, opened) => {
                Outcome::Helper(disk::set_up(&setup, &opened).map(HelperReply::PodReady))
            }
            Job::TearDownPod { pod_dir } => helper(disk::tear_down(Path::new(&pod_dir))),
            Job::RemoveTree { path } => helper(disk::remove_tree(Path::new(&path))),
            Job::FetchManifest { url, headers, known } => match fetch::fetch(&url, &headers) {
                Ok(bytes) => answer(disk::understand(&shown_url(url.expose()), &bytes, known)),
                Err(fault) => Outcome::Helper(Err(fault)),
            },
            Job::PrepareContainer(files) => {
                Outcome::Disk(disk::prepare_container(&files).map(|()| DiskReply::Done))
            }
            Job::LoadManifest { name, path, known } => {
                answer(disk::load(&name, Path::new(&path), known))
            }
            Job::KeepChains { whole } => {
                Outcome::Helper(Ok(HelperReply::Chains(chains::keep(whole))))
            }
            Job::Keep(change) => helper(change.run()),
            Job::Kernel(op) => Outcome::Kernel(CGROUPS.with(|kernel| kernel.apply(&op))),
            Job::LookUp { host, port } => Outcome::Disk(look_up(&host, port).map(DiskReply::Names)),
            Job::AskPlugin(asked) => {
                Outcome::Disk(plugin::ask(&asked).map(|text| DiskReply::Text(text.into())))
            }
            Job::RequestPair { place, names } => {
                let request = place.request(&names);
                Outcome::Helper(request.map(|(digest, pem)| HelperReply::CertificateRequest {
                    digest,
                    pem: pem.into(),
                }))
            }
            Job::StorePair { place, chain } => {
                Outcome::Helper(place.store(&chain).map(|pair| HelperReply::Pair(Box::new(pair))))
            }
            Job::WriteFile { path, mode, content, opened } => {
                let bytes = opened.content(&content).map_err(pki::invalid);
                helper(bytes.and_then(|bytes| pki::write_whole(Path::new(&path), mode, &bytes)))
            }
            Job::Tape(job) => helper(job.run().map_err(|error| super::fault("tape", &error))),
        }
    }
}

fn look_up(host: &str, port: u16) -> Result<Vec<String>, Fault> {
    let found = (host, port).to_socket_addrs().map_err(|error| {
        let message = format!("its name cannot be looked up: {}", reason(&error));
        Fault { kind: FaultKind::Other, message }
    })?;
    Ok(found.map(|address| address.to_string()).collect())
}

fn answer(loaded: Loaded) -> Outcome {
    match loaded {
        Loaded::Same => Outcome::Same,
        Loaded::New(manifest) => Outcome::Helper(Ok(HelperReply::Manifest(manifest))),
        Loaded::Not | Loaded::Long => Outcome::Helper(Ok(HelperReply::Done)),
    }
}

/// The `steplet helper` process: answers jobs on its standard input, a socket, until the agent
/// closes it. `parent` is the process id of the agent. Returns the exit status.
pub fn serve(parent: u32) -> i32 {
    // Ends with the agent even while it hangs in a system call that can be interrupted.
    let tied = prctl::set_pdeathsig(Signal::SIGKILL);
    if tied.is_err() || std::os::unix::process::parent_id() != parent {
        return 1;
    }
    let _ = prctl::set_name(c"steplet-helper");
    if let Err(error) = boot::limit_helper() {
        log::warn!("helper: cannot limit itself: {error}");
    }
    // Start-up has touched half of the program; a job needs little of it.
    memory::forget_program();
    let socket = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    match socket.and_then(serve_jobs) {
        Ok(()) => 0,
        Err(error) => {
            log::error!("helper: {error}");
            1
        }
    }
}

fn serve_jobs(mut socket: UnixStream) -> io::Result<()> {
    let mut serve = || -> io::Result<()> {
        while let Some(frame) = read_frame(&mut socket)? {
            let job: Job = postcard::from_bytes(&frame).map_err(io::Error::other)?;
            socket.write_all(&encode_answer(&job.run()))?;
        }
        Ok(())
    };
    match serve() {
        // The agent has ended without waiting for the last answer.
        Err(error)
            if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// `None` at the end of the stream.
fn read_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    let mut frame = Vec::new();
    from.take(length as u64).read_to_end(&mut frame)?;
    if frame.len() < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(Some(frame)) }
}

/// A job or an answer with its length before it.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).expect("plain data always encodes");
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

/// An answer that is too long becomes one that says so.
fn encode_answer(outcome: &Outcome) -> Vec<u8> {
    let frame = encode(outcome);
    if frame.len() <= FRAME_MAX {
        return frame;
    }
    let message = format!("the answer is larger than {FRAME_MAX} bytes");
    encode(&Outcome::Helper(Err(Fault { kind: FaultKind::Invalid, message })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_does_not_wait_for_the_answer_is_no_failure() {
        let (mut agent, helper) = UnixStream::pair().unwrap();
        let serving = std::thread::spawn(|| serve_jobs(helper));
        let job = Job::LoadManifest { name: "a".into(), path: "/nonexistent".into(), known: None };
        agent.write_all(&encode(&job)).unwrap();
        // Some of the answer is there, the rest is never read.
        agent.read_exact(&mut [0]).unwrap();
        drop(agent);
        assert!(serving.join().unwrap().is_ok());
    }
}
