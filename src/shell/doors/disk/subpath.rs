//! Directories inside a volume, for `subPath` mounts. The volume belongs to the pod, which may fill
//! it with links that lead out; nothing here follows one out.
//!
//! Upstream: SafeMakeDir in pkg/volume/util/subpath (v1.36), with openat2 in place of its walk.

use super::fault;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use steplet_core::event::{Fault, FaultKind};

/// Makes the directory `path`, which is `volume` or lies below it, with the volume's own mode. A
/// file that is there already is fine: it can be mounted too.
pub fn make(volume: &Path, path: &Path) -> Result<(), Fault> {
    let outside = || Fault {
        kind: FaultKind::Invalid,
        message: format!("subpath {} is not within volume {}", path.display(), volume.display()),
    };
    let at = |errno: Errno| match errno {
        Errno::EXDEV | Errno::ELOOP => outside(),
        errno => {
            let error = io::Error::from(errno);
            fault(format_args!("cannot make {}", path.display()), &error)
        }
    };
    let inner = path.strip_prefix(volume).map_err(|_| outside())?;
    if !inner.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(outside());
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open(volume, flags, Mode::empty()).map_err(at)?;
    let mode = Mode::from_bits_truncate(fstat(&root).map_err(at)?.st_mode);
    let mut made = PathBuf::new();
    for part in inner.components() {
        let parent = if made.as_os_str().is_empty() { None } else { Some(look(&root, &made)) };
        let parent = parent.transpose().map_err(at)?;
        let parent = parent.as_ref().unwrap_or(&root);
        made.push(part);
        match look(&root, &made) {
            Err(Errno::ENOENT) => {}
            seen => {
                seen.map_err(at)?;
                continue;
            }
        }
        match mkdirat(parent, Path::new(part.as_os_str()), mode) {
            // A link that leads nowhere: what it names cannot be made without following it.
            Err(Errno::EEXIST) => return Err(outside()),
            other => other.map_err(at)?,
        }
        // The umask may have taken bits away. A descriptor of O_PATH cannot change them.
        let how = how(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW);
        fchmod(openat2(&root, &made, how).map_err(at)?, mode).map_err(at)?;
    }
    Ok(())
}

fn look(root: &OwnedFd, path: &Path) -> nix::Result<OwnedFd> {
    openat2(root, path, how(OFlag::O_PATH))
}

fn how(flags: OFlag) -> OpenHow {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn made_inside_and_never_outside() {
        let scratch = Scratch::new("subpath");
        let volume = scratch.path().join("volume");
        let elsewhere = scratch.path().join("elsewhere");
        fs::create_dir(&volume).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir_all(volume.join("real/deep")).unwrap();
        fs::write(volume.join("file"), "").unwrap();
        symlink("real", volume.join("good-link")).unwrap();
        symlink(&elsewhere, volume.join("bad-link")).unwrap();
        symlink("../elsewhere", volume.join("up-link")).unwrap();
        symlink("nowhere", volume.join("dangling")).unwrap();
        let check = |inner: &str, good: bool| {
            let made = make(&volume, &volume.join(inner));
            assert_eq!(made.is_ok(), good, "{inner}: {made:?}");
        };
        check("", true);
        check("a/b/c", true);
        check("a/b/c", true);
        check("real/deep/er", true);
        check("good-link/deep/down", true);
        check("file", true);
        check("file/below", false);
        check("bad-link", false);
        check("bad-link/x", false);
        check("up-link/x", false);
        check("dangling", false);
        check("dangling/x", false);
        check("a/../../elsewhere/x", false);
        assert_eq!(fs::metadata(volume.join("a/b")).unwrap().mode() & 0o7777, 0o777);
        assert!(volume.join("real/deep/down").is_dir());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(make(&volume, &elsewhere).is_err());
    }
}
