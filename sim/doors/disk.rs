//! The files of the node: a tree in memory, with a tmpfs here and there.

use super::manifests::Manifests;
use super::offline::Store;
use super::pki::Pki;
use std::collections::{BTreeMap, BTreeSet};
use steplet_core::effect::{
    ContainerFiles, Content, DiskOp, HostPathKind, PodSetup, VolumeFile, VolumeKind,
};
use steplet_core::event::{DiskReply, Fault, FaultKind, Item, PodReady};

#[derive(Debug, Default)]
pub struct Disk {
    /// Every directory made by the agent or the runtime, parents included.
    dirs: BTreeSet<String>,
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
    /// tmpfs mounts: they keep a directory from being removed, and a reboot empties them.
    mounts: BTreeSet<String>,
    pub manifests: Manifests,
    pub offline: Store,
    pub pki: Pki,
    /// Writes fail.
    pub full: bool,
    pub read_only: bool,
}

pub fn fault(kind: FaultKind, message: impl Into<String>) -> Fault {
    Fault { kind, message: message.into() }
}

/// Whether `path` is `dir` or lies below it.
fn below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Disk {
    /// Does a disk operation. Items come before the answer.
    pub fn run(&mut self, op: &DiskOp, items: &mut Vec<Item>) -> Result<DiskReply, Fault> {
        match op {
            DiskOp::ReadManifests { path } => {
                Ok(DiskReply::Manifests(self.manifests.read(path, items)))
            }
            // A stream: the world answers it when the watch breaks.
            DiskOp::WatchManifests { path } => {
                Err(fault(FaultKind::NotFound, format!("inotify: {path}: no such file")))
            }
            DiskOp::SetUpPod(setup) => self.set_up_pod(setup).map(DiskReply::PodReady),
            DiskOp::PrepareContainer(files) => {
                self.prepare_container(files).map(|()| DiskReply::Done)
            }
            DiskOp::ReadTail { path, most, lines, .. } => {
                let text = self.files.get(path).ok_or_else(|| missing(path))?;
                Ok(DiskReply::Text(tail(text, *most, *lines).to_vec().into()))
            }
            DiskOp::Symlink { link, target } => {
                self.writable()?;
                self.links.insert(link.clone(), target.clone());
                Ok(DiskReply::Done)
            }
            DiskOp::List { path } => Ok(DiskReply::Names(self.names(path))),
            DiskOp::ReadPair { name, .. } => self.pki.read(name).map(DiskReply::Pair),
            DiskOp::DropKey { name, .. } => {
                self.pki.drop_key(name);
                Ok(DiskReply::Done)
            }
        }
    }

    pub fn writable(&self) -> Result<(), Fault> {
        if self.read_only {
            return Err(fault(FaultKind::ReadOnly, "read-only file system (os error 30)"));
        }
        if self.full {
            return Err(fault(FaultKind::NoSpace, "no space left on device (os error 28)"));
        }
        Ok(())
    }

    fn make_dir(&mut self, path: &str) -> Result<(), Fault> {
        if self.dirs.contains(path) {
            return Ok(());
        }
        self.writable()?;
        for (i, _) in path.match_indices('/').skip(1) {
            self.dirs.insert(path[..i].to_owned());
        }
        self.dirs.insert(path.to_owned());
        Ok(())
    }

    pub fn set_up_pod(&mut self, setup: &PodSetup) -> Result<PodReady, Fault> {
        let existed = self.dirs.contains(&format!("{}/volumes", setup.pod_dir));
        for part in ["volumes", "plugins", "containers"] {
            self.make_dir(&format!("{}/{part}", setup.pod_dir))?;
        }
        let mut log_attempts = Vec::new();
        for container in &setup.containers {
            let dir = format!("{}/{container}", setup.log_dir);
            self.make_dir(&dir)?;
            let numbers = self.names(&dir).into_iter().filter_map(|name| {
                name.split_once(".log").and_then(|(number, _)| number.parse::<u32>().ok())
            });
            if let Some(highest) = numbers.max() {
                log_attempts.push((container.clone(), highest));
            }
        }
        for volume in &setup.volumes {
            self.set_up_volume(&volume.kind).map_err(|fault| Fault {
                message: format!(
                    "MountVolume.SetUp failed for volume \"{}\" : {}",
                    volume.name, fault.message
                ),
                ..fault
            })?;
        }
        Ok(PodReady {
            existed,
            log_attempts,
            resolv_conf: (!setup.resolv_conf.is_empty())
                .then(|| "nameserver 10.0.0.1\nsearch example.com\n".to_owned()),
            node_hosts: setup.node_hosts.then(|| "127.0.0.1\tlocalhost\n".to_owned()),
        })
    }

    fn set_up_volume(&mut self, kind: &VolumeKind) -> Result<(), Fault> {
        match kind {
            VolumeKind::EmptyDir { path, .. } => self.make_dir(path),
            VolumeKind::MemoryDir { path, .. } => {
                self.make_dir(path)?;
                self.mounts.insert(path.clone());
                Ok(())
            }
            VolumeKind::HostPath { path, kind } => self.host_path(path, *kind),
            VolumeKind::Files { path, memory, files, .. } => {
                self.make_dir(path)?;
                if *memory {
                    self.mounts.insert(path.clone());
                }
                self.replace_files(path, files)
            }
        }
    }

    /// All or nothing, as the atomic writer has it; the fake has no links to switch.
    fn replace_files(&mut self, dir: &str, files: &[VolumeFile]) -> Result<(), Fault> {
        let bytes = |content: &Content| match content {
            Content::Plain(bytes) => bytes.to_vec(),
            Content::Sealed(seal) => seal.to_string().into_bytes(),
            Content::Decoded(seal) => format!("decoded {seal}").into_bytes(),
        };
        let new = files.iter().map(|file| (format!("{dir}/{}", file.path), bytes(&file.content)));
        let new: BTreeMap<String, Vec<u8>> = new.collect();
        let old = self.files.iter().filter(|(path, _)| below(path, dir));
        if old.eq(&new) {
            return Ok(());
        }
        self.writable()?;
        self.files.retain(|path, _| !below(path, dir));
        new.iter().for_each(|(path, content)| self.write(path, content));
        Ok(())
    }

    /// Brings to its end what is under way in the offline store.
    pub fn keep(&mut self) -> Result<(), Fault> {
        let files = match self.writable() {
            Ok(()) => usize::MAX,
            Err(fault) => {
                self.offline.finish(0);
                return Err(fault);
            }
        };
        self.offline.finish(files);
        Ok(())
    }

    /// What is in a file.
    pub fn read(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// The host has `/srv` and whatever was made before; a missing path is made only when its type says so.
    fn host_path(&mut self, path: &str, kind: HostPathKind) -> Result<(), Fault> {
        let is_dir = self.dirs.contains(path) || below(path, "/srv");
        let is_file = self.files.contains_key(path);
        match kind {
            HostPathKind::Unchecked => Ok(()),
            HostPathKind::DirectoryOrCreate if !is_file => self.make_dir(path),
            HostPathKind::Directory if is_dir => Ok(()),
            HostPathKind::FileOrCreate if !is_dir => {
                self.writable()?;
                self.files.entry(path.to_owned()).or_default();
                Ok(())
            }
            HostPathKind::File if is_file => Ok(()),
            _ => {
                let message = format!("hostPath type check failed: {path} is not a {kind:?}");
                Err(fault(FaultKind::Invalid, message))
            }
        }
    }

    fn prepare_container(&mut self, files: &ContainerFiles) -> Result<(), Fault> {
        self.writable()?;
        if let Some((path, content)) = &files.etc_hosts {
            self.write(path, content.as_bytes());
        }
        if let Some(path) = &files.termination_log {
            self.write(path, b"");
        }
        for subpath in &files.subpaths {
            self.make_dir(&format!("{}/{}", subpath.volume, subpath.path))?;
        }
        if !files.log_dir.is_empty() {
            self.make_dir(&files.log_dir)?;
        }
        Ok(())
    }

    /// A write by somebody else than the agent, who does not mind a full disk.
    pub fn write(&mut self, path: &str, content: &[u8]) {
        if let Some((dir, _)) = path.rsplit_once('/') {
            for (i, _) in dir.match_indices('/').skip(1) {
                self.dirs.insert(dir[..i].to_owned());
            }
            self.dirs.insert(dir.to_owned());
        }
        self.files.insert(path.to_owned(), content.to_vec());
    }

    /// A pod's directory: mounts first, then the tree.
    pub fn tear_down_pod(&mut self, pod_dir: &str) -> Result<(), Fault> {
        if self.read_only {
            return self.writable();
        }
        self.mounts.retain(|mount| !below(mount, pod_dir));
        self.remove_tree(pod_dir)
    }

    /// Space is not needed to remove things.
    pub fn remove_tree(&mut self, path: &str) -> Result<(), Fault> {
        if self.read_only {
            return self.writable();
        }
        if let Some(mount) = self.mounts.iter().find(|mount| below(mount, path)) {
            return Err(fault(FaultKind::Busy, format!("{mount} is a mount point")));
        }
        self.dirs.retain(|dir| !below(dir, path));
        self.files.retain(|file, _| !below(file, path));
        self.links.retain(|link, _| !below(link, path));
        Ok(())
    }

    /// What lies directly in a directory, sorted.
    pub fn names(&self, dir: &str) -> Vec<String> {
        let prefix = format!("{dir}/");
        let inside = |path: &String| {
            let rest = path.strip_prefix(&prefix)?;
            Some(rest.split('/').next().unwrap_or_default().to_owned())
        };
        let end = format!("{dir}0"); // '0' follows '/' in ASCII
        let all = (self.dirs.range(prefix.clone()..end.clone()))
            .chain(self.files.range(prefix.clone()..end.clone()).map(|(path, _)| path))
            .chain(self.links.range(prefix.clone()..end).map(|(path, _)| path));
        let names: BTreeSet<String> = all.filter_map(inside).collect();
        names.into_iter().collect()
    }

    /// What lived in memory is gone; what was written stays.
    pub fn reboot(&mut self) {
        for mount in std::mem::take(&mut self.mounts) {
            self.files.retain(|file, _| !below(file, &mount));
            self.dirs.retain(|dir| *dir == mount || !below(dir, &mount));
        }
    }
}

fn missing(path: &str) -> Fault {
    fault(FaultKind::NotFound, format!("{path}: no such file or directory"))
}

/// The last `most` bytes, and of those the last `lines` lines.
fn tail(text: &[u8], most: u32, lines: Option<u32>) -> &[u8] {
    let text = &text[text.len().saturating_sub(most as usize)..];
    let Some(lines) = lines else { return text };
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let mut ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match lines.checked_sub(1).and_then(|skip| ends.nth(skip as usize)) {
        Some((newline, _)) => &text[newline + 1..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> PodSetup {
        PodSetup {
            pod_dir: "/k/pods/u1".into(),
            log_dir: "/log/ns_web_u1".into(),
            containers: vec!["app".into()],
            ..PodSetup::default()
        }
    }

    #[test]
    fn a_pods_directories_are_made_listed_and_removed() {
        let mut disk = Disk::default();
        let ready = disk.set_up_pod(&setup()).expect("there is room");
        assert!(ready.log_attempts.is_empty());
        assert_eq!(disk.names("/k/pods"), ["u1"]);
        disk.write("/log/ns_web_u1/app/2.log", b"");
        disk.write("/log/ns_web_u1/app/10.log.20261130-120000", b"");
        let ready = disk.set_up_pod(&setup()).expect("again is fine");
        assert_eq!(ready.log_attempts, [("app".to_owned(), 10)]);
        disk.tear_down_pod("/k/pods/u1").expect("nothing is in the way");
        assert!(disk.names("/k/pods").is_empty());
        assert_eq!(disk.names("/log"), ["ns_web_u1"]);
    }

    #[test]
    fn a_full_disk_takes_nothing_but_gives_space_back() {
        let mut disk = Disk { full: true, ..Disk::default() };
        assert_eq!(disk.set_up_pod(&setup()).map_err(|f| f.kind), Err(FaultKind::NoSpace));
        assert!(disk.tear_down_pod("/k/pods/u1").is_ok());
        let mut disk = Disk { read_only: true, ..Disk::default() };
        assert_eq!(disk.tear_down_pod("/k/pods/u1").map_err(|f| f.kind), Err(FaultKind::ReadOnly));
    }

    #[test]
    fn files_of_a_volume_are_replaced_as_a_whole() {
        let mut disk = Disk::default();
        let volume = |files: &[(&str, &str)]| VolumeKind::Files {
            path: "/v".into(),
            memory: true,
            gid: None,
            files: (files.iter())
                .map(|(path, text)| VolumeFile {
                    path: path.to_string(),
                    mode: 0o644,
                    uid: None,
                    content: Content::Plain(text.as_bytes().to_vec().into()),
                })
                .collect(),
        };
        disk.set_up_volume(&volume(&[("a", "1"), ("d/b", "2")])).expect("there is room");
        assert_eq!(disk.read("/v/d/b"), Some(&b"2"[..]));
        disk.full = true;
        assert!(disk.set_up_volume(&volume(&[("a", "1"), ("d/b", "2")])).is_ok(), "no change");
        assert!(disk.set_up_volume(&volume(&[("a", "3")])).is_err());
        disk.full = false;
        disk.set_up_volume(&volume(&[("a", "3")])).expect("there is room");
        assert_eq!((disk.read("/v/a"), disk.read("/v/d/b")), (Some(&b"3"[..]), None));
        disk.reboot();
        assert_eq!(disk.read("/v/a"), None);
    }

    #[test]
    fn tails_are_cut_by_bytes_then_by_lines() {
        for (text, most, lines, want) in [
            ("a\nb\nc\n", 100, Some(2), "b\nc\n"),
            ("a\nb\nc\n", 100, Some(9), "a\nb\nc\n"),
            ("a\nb\nc\n", 2, Some(2), "c\n"),
            ("abc", 2, None, "bc"),
            ("", 2, Some(1), ""),
        ] {
            assert_eq!(tail(text.as_bytes(), most, lines), want.as_bytes(), "{text:?}");
        }
    }
}
