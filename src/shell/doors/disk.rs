//! Files of the agent's own: bounded work that is done on the thread and answered as an event.

mod atomic_writer;
mod manifests;
mod pod_dirs;
mod remove;
mod subpath;
mod tail;

use manifests::Found;
pub use manifests::{Loaded, load, understand};
pub use pod_dirs::{make_dirs, open_regular, prepare_container, set_up};
pub use remove::{remove_tree, tear_down};

use super::pki::Place;
use super::{Door, Inbox, Job, fault, reason};
use crate::shell::vault::Opened;
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use steplet_core::effect::DiskOp;
use steplet_core::event::{
    DiskReply, Fault, FaultKind, HelperReply, Item, Manifest, ManifestError, Outcome, SetAside,
};
use steplet_core::ids::Token;

/// Names in the answer to `List`.
const NAMES_MAX: usize = 100_000;

const CHANGES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF);
/// The watch is over: what it watched is not there any more.
const ENDS: AddWatchFlags = AddWatchFlags::IN_DELETE_SELF
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_UNMOUNT)
    .union(AddWatchFlags::IN_IGNORED);

pub struct Disk {
    registry: Registry,
    watches: BTreeMap<Token, Watch>,
    scans: VecDeque<Scan>,
    /// For each manifest path, the digest of each file as the core knows it.
    known: BTreeMap<String, BTreeMap<String, u64>>,
    /// What must not be decoded.
    set_aside: Vec<SetAside>,
}

struct Watch {
    inotify: Inotify,
    dir: PathBuf,
    /// The one file in the directory that counts; `None` for all.
    file: Option<OsString>,
}

/// A reading of manifests that goes on from turn to turn.
struct Scan {
    token: Token,
    path: String,
    left: VecDeque<Found>,
    names: Vec<String>,
    /// Files that a helper reads.
    away: usize,
}

/// What the caller has to see to.
pub enum Next {
    /// Nothing: the answer is in the inbox, or will be.
    Answered,
    /// The work may hang, and belongs to a helper.
    Helper(Job),
}

impl Disk {
    pub fn new(registry: Registry, set_aside: Vec<SetAside>) -> Disk {
        let (watches, scans, known) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        Disk { registry, watches, scans, known, set_aside }
    }

    pub fn call(&mut self, token: Token, op: DiskOp, inbox: &mut Inbox) -> Next {
        let reply = match op {
            DiskOp::ReadManifests { path } => return self.start_scan(token, path, inbox),
            DiskOp::WatchManifests { path } => match self.watch(token, Path::new(&path)) {
                Ok(()) => return Next::Answered,
                Err(fault) => Err(fault),
            },
            // Nothing is sealed in a setup that needs no helper.
            DiskOp::SetUpPod(setup) => {
                pod_dirs::set_up(&setup, &Opened::default()).map(DiskReply::PodReady)
            }
            DiskOp::PrepareContainer(files) => {
                if !pod_dirs::is_quick_container(&files) {
                    return Next::Helper(Job::PrepareContainer(files));
                }
                pod_dirs::prepare_container(&files).map(|()| DiskReply::Done)
            }
            DiskOp::ReadTail { within, path, most, lines, cri_log } => {
                let (within, path) = (Path::new(&within), Path::new(&path));
                tail::read(within, path, most, lines, cri_log).map(DiskReply::Text)
            }
            DiskOp::Symlink { link, target } => {
                point(Path::new(&link), &target).map(|()| DiskReply::Done)
            }
            DiskOp::List { path } => list(Path::new(&path)).map(DiskReply::Names),
            DiskOp::ReadPair { dir, name } => {
                let pair = Place::new(&dir, &name).read();
                pair.map(|pair| DiskReply::Pair(pair.map(Box::new)))
            }
            DiskOp::DropKey { dir, name } => {
                Place::new(&dir, &name).drop_key().map(|()| DiskReply::Done)
            }
        };
        inbox.done(token, Outcome::Disk(reply));
        Next::Answered
    }

    /// The core gave the call up. What it has seen of a scan is no longer known, so it is told
    /// again.
    pub fn cancel(&mut self, token: Token) {
        self.watches.remove(&token);
        self.scans.retain(|scan| {
            let other = scan.token != token;
            if !other {
                self.known.remove(&scan.path);
            }
            other
        });
    }

    /// The core may not have seen what was given to it last.
    pub fn forget_known(&mut self) {
        self.known.clear();
    }

    fn start_scan(&mut self, token: Token, path: String, inbox: &mut Inbox) -> Next {
        match manifests::list(Path::new(&path)) {
            Ok(Some(files)) => {
                let left = files.into();
                self.scans.push_back(Scan { token, path, left, names: Vec::new(), away: 0 });
                self.finish(token, inbox);
            }
            Ok(None) => {
                self.known.remove(&path);
                inbox.done(token, Outcome::Disk(Ok(DiskReply::Manifests(None))));
            }
            Err(fault) => inbox.done(token, Outcome::Disk(Err(fault))),
        }
        Next::Answered
    }

    /// Whether files wait to be read.
    pub fn busy(&self) -> bool {
        self.scans.iter().any(|scan| !scan.left.is_empty())
    }

    /// Reads the next manifest file. `Helper`: a long one, for the scan and the file named.
    pub fn read_one(&mut self, inbox: &mut Inbox) -> Option<(Token, String, Job)> {
        let scan = self.scans.iter_mut().find(|scan| !scan.left.is_empty())?;
        let Found { name, path, foreign } = scan.left.pop_front().expect("found by it");
        let known = self.known.get(&scan.path).and_then(|files| files.get(&name)).copied();
        let token = scan.token;
        let loaded = match foreign {
            true => Loaded::Long,
            false => manifests::load_quickly(&name, &path, known, &self.set_aside),
        };
        match loaded {
            Loaded::Long => {
                scan.away += 1;
                let path = path.to_string_lossy().into_owned();
                return Some((token, name.clone(), Job::LoadManifest { name, path, known }));
            }
            loaded => self.loaded(token, name, loaded, inbox),
        }
        None
    }

    /// A helper has read a long manifest.
    pub fn loaded_away(&mut self, token: Token, name: String, outcome: Outcome, inbox: &mut Inbox) {
        let Some(scan) = self.scans.iter_mut().find(|scan| scan.token == token) else { return };
        scan.away -= 1;
        let loaded = match outcome {
            Outcome::Same => Loaded::Same,
            Outcome::Helper(Ok(HelperReply::Manifest(manifest))) => Loaded::New(manifest),
            Outcome::Helper(Ok(_)) => Loaded::Not,
            Outcome::Helper(Err(Fault { message, .. })) => {
                let content = Err(ManifestError { line: 0, message });
                Loaded::New(Box::new(Manifest { name: name.clone(), digest: 0, content }))
            }
            Outcome::Rpc(_) | Outcome::Disk(_) | Outcome::Kernel(_) | Outcome::Api(_) => {
                Loaded::Not
            }
        };
        self.loaded(token, name, loaded, inbox);
    }

    fn loaded(&mut self, token: Token, name: String, loaded: Loaded, inbox: &mut Inbox) {
        let Some(scan) = self.scans.iter_mut().find(|scan| scan.token == token) else { return };
        match loaded {
            Loaded::Not | Loaded::Long => {}
            Loaded::Same => scan.names.push(name),
            Loaded::New(manifest) => {
                let known = self.known.entry(scan.path.clone()).or_default();
                known.insert(name.clone(), manifest.digest);
                inbox.item(token, Item::Manifest(manifest));
                scan.names.push(name);
            }
        }
        self.finish(token, inbox);
    }

    /// Ends a scan when no file of it is left.
    fn finish(&mut self, token: Token, inbox: &mut Inbox) {
        let over = |scan: &Scan| scan.token == token && scan.left.is_empty() && scan.away == 0;
        let Some(at) = self.scans.iter().position(over) else { return };
        let mut scan = self.scans.remove(at).expect("found above");
        scan.names.sort();
        if let Some(known) = self.known.get_mut(&scan.path) {
            known.retain(|name, _| scan.names.binary_search(name).is_ok());
        }
        inbox.done(token, Outcome::Disk(Ok(DiskReply::Manifests(Some(scan.names)))));
    }

    fn watch(&mut self, token: Token, path: &Path) -> Result<(), Fault> {
        let at = |error: io::Error| fault(format_args!("cannot watch {}", path.display()), &error);
        let (dir, file) = match (path.parent(), path.file_name()) {
            // A file is replaced as a whole by most writers, so its directory is watched.
            (Some(dir), Some(name)) if fs::metadata(path).map_err(at)?.is_file() => {
                (dir, Some(name.to_owned()))
            }
            _ => (path, None),
        };
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(|errno| at(errno.into()))?;
        inotify
            .add_watch(dir, CHANGES | AddWatchFlags::IN_ONLYDIR)
            .map_err(|errno| at(errno.into()))?;
        let raw = inotify.as_fd().as_raw_fd();
        let slot = Door::Disk.token(0);
        self.registry.register(&mut SourceFd(&raw), slot, Interest::READABLE).map_err(at)?;
        self.watches.insert(token, Watch { inotify, dir: dir.to_owned(), file });
        Ok(())
    }

    /// Something happened at a watched path.
    pub fn ready(&mut self, inbox: &mut Inbox) {
        self.watches.retain(|token, watch| {
            let (changed, ended) = watch.read();
            if changed {
                inbox.item(*token, Item::PathChanged);
            }
            if let Some(message) = &ended {
                let fault = Fault { kind: FaultKind::NotFound, message: message.clone() };
                inbox.done(*token, Outcome::Disk(Err(fault)));
            }
            ended.is_none()
        });
    }
}

impl Watch {
    /// Whether a manifest may have changed, and why the watch is over if it is.
    fn read(&self) -> (bool, Option<String>) {
        let mut changed = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => {
                    changed |= events.iter().any(|event| self.counts(event));
                    if events.iter().any(|event| event.mask.intersects(ENDS)) {
                        let gone = format!("{} was removed or replaced", self.dir.display());
                        return (changed, Some(gone));
                    }
                }
                Err(Errno::EAGAIN) => return (changed, None),
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    let what = format!("cannot watch {}: {}", self.dir.display(), errno.desc());
                    return (changed, Some(what));
                }
            }
        }
    }

    fn counts(&self, event: &InotifyEvent) -> bool {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return true;
        }
        let Some(name) = &event.name else { return false };
        match &self.file {
            Some(file) if file != name => return false,
            None if name.as_encoded_bytes().starts_with(b".") => return false,
            Some(_) | None => {}
        }
        // A file that was just made is still being written, and its closing is announced too. A
        // link is whole.
        let made = event.mask.contains(AddWatchFlags::IN_CREATE);
        let half = |path| fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.nlink() == 1);
        !(made && half(self.dir.join(name)))
    }
}

fn point(link: &Path, target: &str) -> Result<(), Fault> {
    let at =
        |error: io::Error| fault(format_args!("cannot make the link {}", link.display()), &error);
    if fs::read_link(link).is_ok_and(|now| now == Path::new(target)) {
        return Ok(());
    }
    if let Some(parent) = link.parent() {
        pod_dirs::make_dirs(parent, 0o755)?;
    }
    // Made beside it and moved: readers see the old one or the new one.
    let mut beside = link.as_os_str().to_owned();
    beside.push(".new");
    match symlink(target, &beside) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(&beside).and_then(|()| symlink(target, &beside)).map_err(at)?;
        }
        other => other.map_err(at)?,
    }
    fs::rename(&beside, link).map_err(at)
}

fn list(path: &Path) -> Result<Vec<String>, Fault> {
    let at = |error: io::Error| fault(format_args!("cannot read {}", path.display()), &error);
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(at)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        if names.len() == NAMES_MAX {
            log::warn!("{} has over {NAMES_MAX} entries: the rest is left out", path.display());
            break;
        }
        names.push(entry.map_err(at)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
