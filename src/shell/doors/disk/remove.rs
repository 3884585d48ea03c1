//! Taking a pod's directory away: unmount what lies below it, then remove it without ever crossing
//! a mount.

use super::fault;
use crate::shell::mounts;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::mount::{MntFlags, umount2};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use steplet_core::event::Fault;

/// Directories inside directories, each with an open descriptor. A container may have made a tree that
/// is deeper than any number of descriptors: what lies deeper is hung below the top.
const DEPTH_MAX: usize = 32;

/// Unmounts everything below a pod's directory and removes it. Gone already is fine.
///
/// Errors: `Busy` when something below is in use or was mounted meanwhile.
pub fn tear_down(pod_dir: &Path) -> Result<(), Fault> {
    for target in mounts_below(pod_dir)? {
        umount2(&target, MntFlags::UMOUNT_NOFOLLOW).map_err(|errno| {
            fault(format_args!("cannot unmount {}", target.display()), &io::Error::from(errno))
        })?;
    }
    remove_tree(pod_dir)
}

/// The mounts below a directory, the last one first, as they have to be unmounted.
fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>, Fault> {
    let all = mounts::read().map_err(|error| fault("cannot read the mounts", &error))?;
    let below = |path: &PathBuf| path != dir && path.starts_with(dir);
    let mut targets: Vec<_> = all.into_iter().map(|m| m.point).filter(below).collect();
    targets.reverse();
    Ok(targets)
}

/// Removes a tree. Links are removed, never followed; a mount in the way is `Busy`. Gone already is
/// fine.
pub fn remove_tree(path: &Path) -> Result<(), Fault> {
    let at = |errno: Errno| {
        let code = if errno == Errno::EXDEV { libc::EBUSY } else { errno as i32 };
        let error = io::Error::from_raw_os_error(code);
        fault(format_args!("cannot remove {}", path.display()), &error)
    };
    let how = OpenHow::new().flags(FLAGS).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let how_to_remove = match openat2(AT_FDCWD, path, how) {
        Ok(top) => {
            empty(top).map_err(at)?;
            UnlinkatFlags::RemoveDir
        }
        Err(Errno::ENOENT) => return Ok(()),
        // Not a directory, or a link.
        Err(Errno::ENOTDIR | Errno::ELOOP) => UnlinkatFlags::NoRemoveDir,
        Err(errno) => return Err(at(errno)),
    };
    gone(unlinkat(AT_FDCWD, path, how_to_remove)).map_err(at)
}

/// Empties a directory, depth first, by descriptors: no path is walked twice.
fn empty(top: OwnedFd) -> nix::Result<()> {
    let mut stack = vec![(top, CString::default())];
    let mut raised = 0;
    while let Some((dir, _)) = stack.last() {
        if let Some(name) = empty_but_for_one(dir)? {
            if stack.len() == DEPTH_MAX {
                raise(dir, &name, &stack[0].0, &mut raised)?;
                continue;
            }
            let child = open_below(dir, &name)?;
            stack.push((child, name));
        } else if let Some((_, name)) = stack.pop()
            && let Some((parent, _)) = stack.last()
        {
            gone(unlinkat(parent, name.as_c_str(), UnlinkatFlags::RemoveDir))?;
        }
    }
    Ok(())
}

/// Moves a directory right below the top, under a number that is no name there yet.
fn raise(dir: &OwnedFd, name: &CStr, top: &OwnedFd, number: &mut u64) -> nix::Result<()> {
    loop {
        *number += 1;
        match renameat(dir, name, top, number.to_string().as_str()) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
            other => return gone(other),
        }
    }
}

/// Removes the entries of a directory, up to a directory that is not empty: its name. `None`: all
/// are gone.
fn empty_but_for_one(dir: &OwnedFd) -> nix::Result<Option<CString>> {
    loop {
        let mut clean = true;
        // A descriptor of its own: reading moves the position.
        for entry in Dir::from_fd(open_below(dir, c".")?)?.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            clean = false;
            let is_dir = match entry.file_type() {
                Some(kind) => kind == Type::Directory,
                None => open_below(dir, name).is_ok(),
            };
            if !is_dir {
                gone(unlinkat(dir, name, UnlinkatFlags::NoRemoveDir))?;
                continue;
            }
            match gone(unlinkat(dir, name, UnlinkatFlags::RemoveDir)) {
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => return Ok(Some(name.to_owned())),
                other => other?,
            }
        }
        // Removing may make a listing skip entries, so only an empty one is believed.
        if clean {
            return Ok(None);
        }
    }
}

const FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// `EXDEV` for a mount, a bind mount of the same filesystem included.
fn open_below(dir: &OwnedFd, name: &CStr) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(dir, name, OpenHow::new().flags(FLAGS).resolve(resolve))
}

fn gone(result: nix::Result<()>) -> nix::Result<()> {
    match result {
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::doors::may_mount::may_mount;
    use crate::shell::scratch::Scratch;
    use nix::mount::{MsFlags, mount};
    use std::fs;
    use std::os::unix::fs::symlink;
    use steplet_core::event::FaultKind;

    fn tree(top: &Path) {
        fs::create_dir_all(top.join("a/b/c/d")).unwrap();
        fs::create_dir_all(top.join("a/empty")).unwrap();
        for n in 0..300 {
            fs::write(top.join(format!("a/b/file-{n}")), "x").unwrap();
        }
    }

    #[test]
    fn a_tree_goes_and_what_its_links_name_stays() {
        let scratch = Scratch::new("remove");
        let keep = scratch.path().join("keep");
        fs::create_dir(&keep).unwrap();
        fs::write(keep.join("file"), "").unwrap();
        let top = scratch.path().join("pod");
        tree(&top);
        symlink(&keep, top.join("a/link-to-dir")).unwrap();
        symlink(keep.join("file"), top.join("link-to-file")).unwrap();
        symlink(&top, scratch.path().join("link")).unwrap();
        remove_tree(&scratch.path().join("link")).unwrap();
        assert!(top.exists(), "a link to the tree was followed");
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        remove_tree(&top).unwrap();
        assert!(keep.join("file").exists());
    }

    /// Deeper than a path can be long, as `mkdir d; cd d` in a loop makes it.
    #[test]
    fn no_tree_is_too_deep() {
        let scratch = Scratch::new("deep");
        let top = scratch.path().join("pod");
        fs::create_dir_all(top.join("2/taken")).unwrap();
        fs::write(top.join("1"), "").unwrap();
        let how = OpenHow::new().flags(FLAGS);
        let mut dir = openat2(AT_FDCWD, &top, how).unwrap();
        let name = CString::new("d".repeat(60)).unwrap();
        for _ in 0..7 * DEPTH_MAX {
            nix::sys::stat::mkdirat(&dir, name.as_c_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
            dir = open_below(&dir, &name).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn mounts_are_unmounted_and_never_crossed() {
        if !may_mount("shell::doors::disk::remove::tests::mounts_are_unmounted_and_never_crossed") {
            return;
        }
        let scratch = Scratch::new("tear_down");
        let keep = scratch.path().join("keep");
        let top = scratch.path().join("pod");
        tree(&top);
        fs::create_dir(&keep).unwrap();
        fs::write(keep.join("file"), "").unwrap();
        let point = top.join("a/empty");
        let none: Option<&str> = None;
        mount(Some(&keep), &point, none, MsFlags::MS_BIND, none).unwrap();
        let busy = remove_tree(&top).unwrap_err();
        assert_eq!(busy.kind, FaultKind::Busy, "{busy:?}");
        assert!(keep.join("file").exists(), "a mount was crossed");
        tear_down(&top).unwrap();
        assert!(!top.exists() && keep.join("file").exists());
    }
}
