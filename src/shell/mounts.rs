//! What is mounted where, from `/proc/self/mountinfo`.
//!
//! Source: proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    /// `tmpfs`, `cgroup`, `cgroup2`, ...
    pub kind: String,
    /// Options of the filesystem; those of a v1 cgroup name its controllers.
    pub options: Vec<String>,
}

/// All mounts of this process's namespace, in the order in which they were made.
pub fn read() -> io::Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let point = before.split(' ').nth(4)?;
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    Some(Mount {
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        kind: kind.to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
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

    #[test]
    fn lines_of_mountinfo() {
        let check = |line, point: &str, kind: &str, options: &[&str]| {
            let mount = parse(line).expect("a mount");
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
    fn this_machine_has_a_proc() {
        assert!(read().unwrap().iter().any(|m| m.kind == "proc"));
    }
}
