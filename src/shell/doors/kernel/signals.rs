//! How much is left of what a node can run short of.
//!
//! Upstream: pkg/kubelet/eviction/helpers.go, pkg/kubelet/stats/pidlimit/pidlimit_linux.go (v1.36), and cAdvisor, which
//! measures for it.

use crate::shell::mounts;
use nix::sys::statvfs::statvfs;
use procfs::{Current, LoadAverage, Meminfo};
use std::fs;
use std::path::Path;
use steplet_core::effect::Signals;

/// What cannot be read is 0. A place of images that could make whoever looks wait is not looked at.
pub fn read(root_dir: &str, imagefs: &str) -> Signals {
    let memory = Meminfo::current().ok();
    let nodefs = filesystem(root_dir);
    let imagefs = if is_local(imagefs) { filesystem(imagefs) } else { Filesystem::default() };
    let tasks = LoadAverage::current().map_or(0, |load| load.max);
    Signals {
        memory_capacity: memory.as_ref().map_or(0, |m| m.mem_total),
        // As cAdvisor counts it for the whole machine: what is free, and file pages that nobody used lately.
        memory_available: memory.map_or(0, |m| m.mem_free + m.inactive_file.unwrap_or_default()),
        nodefs_capacity: nodefs.capacity,
        nodefs_available: nodefs.available,
        nodefs_inodes: nodefs.inodes,
        nodefs_inodes_free: nodefs.inodes_free,
        imagefs_capacity: imagefs.capacity,
        imagefs_available: imagefs.available,
        imagefs_inodes: imagefs.inodes,
        imagefs_inodes_free: imagefs.inodes_free,
        pids_max: number("pid_max").min(number("threads-max")),
        pids: tasks.into(),
    }
}

fn is_local(path: &str) -> bool {
    !path.is_empty()
        && mounts::read().is_ok_and(|all| mounts::foreign(Path::new(path), &all).is_none())
}

#[derive(Default)]
struct Filesystem {
    capacity: u64,
    available: u64,
    inodes: u64,
    inodes_free: u64,
}

fn filesystem(path: &str) -> Filesystem {
    let Ok(it) = statvfs(path) else { return Filesystem::default() };
    let bytes = |blocks: u64| blocks.saturating_mul(it.fragment_size());
    Filesystem {
        capacity: bytes(it.blocks()),
        available: bytes(it.blocks_available()),
        inodes: it.files(),
        inodes_free: it.files_available(),
    }
}

fn number(name: &str) -> u64 {
    let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something_left() {
        let Signals { memory_available, memory_capacity, pids, pids_max, .. } = read("/", "");
        assert!(0 < memory_available && memory_available <= memory_capacity);
        assert!(0 < pids && pids < pids_max, "{pids} of {pids_max}");
        let all = read("/", "/");
        assert!(all.nodefs_capacity > 0 && all.imagefs_capacity == all.nodefs_capacity);
        assert_eq!(read("/no/such/directory", "").nodefs_capacity, 0);
    }
}
