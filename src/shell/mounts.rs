//! What is mounted where, from `/proc/self/mountinfo`.
//!
//! Source: proc_pid_mountinfo(5).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Filesystems on which a call can wait for another machine, or for another program, without end.
const FOREIGN: [&str; 18] = [
    "9p",
    "afs",
    "autofs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse",
    "fuseblk",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "smb3",
];
/// Links that are followed on the way to one file, as the kernel does.
const LINKS_MAX: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    /// `tmpfs`, `cgroup`, `cgroup2`, ...
    pub kind: String,
    /// Options of the filesystem; those of a v1 cgroup name its controllers.
    pub options: Vec<String>,
    /// What is mounted below it shows at its peers too (`shared:N`).
    pub shared: bool,
}

/// All mounts of this process's namespace, in the order in which they were made.
pub fn read() -> io::Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

/// Whether a mount below this path, which has no links in it, shows at the peers of the mount that it is on.
pub fn is_shared(path: &Path, mounts: &[Mount]) -> bool {
    on(path, mounts).is_some_and(|mount| mount.shared)
}

/// The mount that a path without links is on: of two at one place the later one shows.
fn on<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let on = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    let on = on.enumerate().max_by_key(|(nth, m)| (m.point.components().count(), *nth));
    on.map(|(_, mount)| mount)
}

/// The first mount on the way to an absolute path that can make whoever goes there wait without end.
/// Links on the way are followed; nothing on such a mount is touched.
pub fn foreign<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let parts = |path: &Path| -> VecDeque<OsString> {
        let parts =
            path.components().filter(|c| !matches!(c, Component::CurDir | Component::RootDir));
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut at, mut left, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = left.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        if let Some(mount) = on(&at, mounts)
            && (FOREIGN.contains(&&*mount.kind) || mount.kind.starts_with("fuse."))
        {
            return Some(mount);
        }
        if links < LINKS_MAX
            && let Ok(target) = fs::read_link(&at)
        {
            links += 1;
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            parts(&target).into_iter().rev().for_each(|part| left.push_front(part));
        }
    }
    None
}

fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(4);
    let point = before.next()?;
    let shared = before.skip(1).any(|tag| tag.starts_with("shared:"));
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    Some(Mount {
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        kind: kind.to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
        shared,
    })
}

/// The kernel writes blank, tab, newline and backslash as a backslash with three octal digits.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    while let [first, rest @ ..] = bytes {
        let octal = rest.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match octal.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                out.push(byte);
                bytes = &rest[3..];
            }
            _ => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn lines_of_mountinfo() {
        let check = |line: &str, point: &str, kind: &str, options: &[&str]| {
            let mount = parse(line).expect("a mount");
            assert_eq!(mount.shared, line.contains("shared:5"));
            assert_eq!(mount.point, PathBuf::from(point));
            assert_eq!(
                (&*mount.kind, mount.options),
                (kind, options.iter().map(|o| (*o).to_owned()).collect())
            );
        };
        let cgroup = "33 32 0:29 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct";
        check(cgroup, "/sys/fs/cgroup/cpu", "cgroup", &["rw", "cpu", "cpuacct"]);
        let shared = "9 1 8:2 /sub /a\\040b\\134c rw shared:5 master:1 - ext4 /dev/sda2 rw";
        check(shared, "/a b\\c", "ext4", &["rw"]);
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn ways_that_lead_to_a_foreign_filesystem() {
        let scratch = Scratch::new("mounts");
        let dir = scratch.path().canonicalize().unwrap();
        let mount = |point: &Path, kind: &str| Mount {
            point: point.to_owned(),
            kind: kind.to_owned(),
            options: Vec::new(),
            shared: false,
        };
        let mounts = [
            mount(Path::new("/"), "ext4"),
            mount(&dir.join("far"), "nfs4"),
            mount(&dir.join("far/near"), "tmpfs"),
            mount(&dir.join("user"), "fuse.sshfs"),
            mount(&dir.join("covered"), "cifs"),
            mount(&dir.join("covered"), "xfs"),
        ];
        symlink("far/a", dir.join("link")).unwrap();
        symlink(&dir, dir.join("here")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        let check = |path: &str, want: Option<&str>| {
            let found = foreign(&dir.join(path), &mounts);
            assert_eq!(found.map(|mount| &*mount.kind), want, "{path}");
        };
        check("near", None);
        check("far", Some("nfs4"));
        check("farther", None);
        // The way there leads through it.
        check("far/near/file", Some("nfs4"));
        check("user/x", Some("fuse.sshfs"));
        check("covered/x", None);
        check("link", Some("nfs4"));
        check("here/link", Some("nfs4"));
        check("here/here/near", None);
        check("x/../far", Some("nfs4"));
        check("loop", None);
        assert_eq!(foreign(Path::new("/proc/self/status"), &mounts), None);
    }

    #[test]
    fn this_machine_has_a_proc() {
        assert!(read().unwrap().iter().any(|m| m.kind == "proc"));
    }
}
