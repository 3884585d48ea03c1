//! The directories and files of a pod on the node.
//!
//! Upstream: pkg/kubelet/kubelet_pods.go, pkg/volume/emptydir, pkg/volume/hostpath (v1.36).
//! Everything here may be done again: a restart of the agent sets up pods that run.

use super::atomic_writer::{self, NewFile};
use super::{fault, reason};
use crate::shell::vault::Opened;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::{Gid, chown};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use steplet_core::effect::{ContainerFiles, HostPathKind, PodSetup, VolumeFile, VolumeKind};
use steplet_core::event::{Fault, FaultKind, PodReady};

/// What is read of the node's resolver file and hosts file at most.
const NODE_FILE_MAX: u64 = 256 * 1024;
/// Log files looked at in one container's directory at most.
const LOG_FILES_MAX: usize = 10_000;

/// Makes the directories and volumes of a pod and looks at what the containers need to know. `opened`: what is
/// sealed in it.
pub fn set_up(setup: &PodSetup, opened: &Opened) -> Result<PodReady, Fault> {
    let pod = Path::new(&setup.pod_dir);
    let existed = pod.exists();
    for dir in [pod, &pod.join("volumes"), &pod.join("plugins"), &pod.join("containers")] {
        make_dirs(dir, 0o750)?;
    }
    for name in &setup.containers {
        make_dirs(&pod.join("containers").join(name), 0o750)?;
    }
    let mut ready = PodReady { existed, ..PodReady::default() };
    make_dirs(Path::new(&setup.log_dir), 0o755)?;
    for name in &setup.containers {
        let dir = Path::new(&setup.log_dir).join(name);
        make_dirs(&dir, 0o755)?;
        if let Some(attempt) = last_log(&dir)? {
            ready.log_attempts.push((name.clone(), attempt));
        }
    }
    for volume in &setup.volumes {
        set_up_volume(&volume.kind, opened).map_err(|fault| Fault {
            // The words of pkg/volume/util/operationexecutor, blank before the colon included.
            message: format!(
                "MountVolume.SetUp failed for volume \"{}\" : {}",
                volume.name, fault.message
            ),
            ..fault
        })?;
    }
    if !setup.resolv_conf.is_empty() {
        ready.resolv_conf = read_text(Path::new(&setup.resolv_conf));
    }
    if setup.node_hosts {
        ready.node_hosts = read_text(Path::new("/etc/hosts"));
    }
    Ok(ready)
}

/// Makes a directory and those above it that are missing; one that is there keeps its mode.
pub fn make_dirs(path: &Path, mode: u32) -> Result<(), Fault> {
    let at = |error: io::Error| fault(format_args!("cannot make {}", path.display()), &error);
    match DirBuilder::new().mode(mode).create(path) {
        // The umask may have taken bits away.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)).map_err(at),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let is_dir = fs::metadata(path).map_err(at)?.is_dir();
            if is_dir { Ok(()) } else { Err(at(io::Error::from_raw_os_error(libc::ENOTDIR))) }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => match path.parent() {
            Some(parent) if parent != Path::new("") => {
                make_dirs(parent, mode)?;
                make_dirs(path, mode)
            }
            Some(_) | None => Err(at(error)),
        },
        Err(error) => Err(at(error)),
    }
}

/// The highest N of `<N>.log` and `<N>.log.<rotated>` in a container's log directory.
fn last_log(dir: &Path) -> Result<Option<u32>, Fault> {
    let at = |error: io::Error| fault(format_args!("cannot read {}", dir.display()), &error);
    let mut last = None;
    for (count, entry) in fs::read_dir(dir).map_err(at)?.enumerate() {
        if count == LOG_FILES_MAX {
            log::warn!("{} has over {LOG_FILES_MAX} files: the rest is left out", dir.display());
            break;
        }
        last = last.max(log_attempt(&entry.map_err(at)?.file_name().to_string_lossy()));
    }
    Ok(last)
}

fn log_attempt(name: &str) -> Option<u32> {
    let (number, rest) = name.split_once('.')?;
    let is_log = rest == "log" || rest.starts_with("log.");
    let digits = number.bytes().all(|b| b.is_ascii_digit());
    if is_log && digits { number.parse().ok() } else { None }
}

/// A text file of the node; absent, unreadable and unreasonable are the same to the caller.
fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = open_regular(path).map_err(|error| {
        log::warn!("Cannot read {}: {}", path.display(), reason(&error));
    });
    file.ok()?.take(NODE_FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens a regular file for reading. Whatever else lies there (a FIFO, a device) is refused, not
/// waited for.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // It may have been replaced between the look and the opening.
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

fn set_up_volume(kind: &VolumeKind, opened: &Opened) -> Result<(), Fault> {
    match kind {
        VolumeKind::EmptyDir { path, gid } => {
            make_dirs(Path::new(path), 0o750)?;
            open_to_all(Path::new(path), *gid)
        }
        VolumeKind::MemoryDir { path, size_bytes, gid } => {
            make_dirs(Path::new(path), 0o750)?;
            mount_tmpfs(Path::new(path), *size_bytes)?;
            open_to_all(Path::new(path), *gid)
        }
        VolumeKind::HostPath { path, kind } => check_host_path(Path::new(path), *kind),
        VolumeKind::Files { path, memory, gid, files } => {
            let path = Path::new(path);
            make_dirs(path, 0o750)?;
            if *memory {
                mount_tmpfs(path, 0)?;
            }
            open_to_all(path, *gid)?;
            let files = files.iter().map(|file| new_file(file, opened));
            let gid = gid.map(id).transpose()?;
            atomic_writer::write(path, &files.collect::<Result<Vec<_>, _>>()?, gid)
        }
    }
}

fn new_file<'a>(file: &'a VolumeFile, opened: &Opened) -> Result<NewFile<'a>, Fault> {
    let uid = file.uid.map(id).transpose()?;
    let content = opened.content(&file.content).map_err(|why| Fault {
        kind: FaultKind::Invalid,
        message: format!("cannot write {}: {why}", file.path),
    })?;
    Ok(NewFile { path: &file.path, mode: file.mode, uid, content })
}

/// A user or a group.
fn id(id: i64) -> Result<u32, Fault> {
    let message = || format!("user or group {id} is out of range");
    u32::try_from(id).map_err(|_| Fault { kind: FaultKind::Invalid, message: message() })
}

/// Everybody may write; with a group, files made in it belong to that group.
fn open_to_all(path: &Path, gid: Option<i64>) -> Result<(), Fault> {
    let at = |error: io::Error| fault(format_args!("cannot set up {}", path.display()), &error);
    let seen = fs::metadata(path).map_err(at)?;
    // A tmpfs comes with the sticky bit, and upstream lets it keep that.
    let mut mode = seen.mode() & 0o7777 | 0o777;
    if let Some(gid) = gid {
        let gid = id(gid)?;
        mode |= 0o2000;
        if seen.gid() != gid {
            chown(path, None, Some(Gid::from_raw(gid))).map_err(|e| at(e.into()))?;
        }
    }
    // After the change of group, which takes the setgid bit away.
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(at)
}

fn mount_tmpfs(path: &Path, size_bytes: u64) -> Result<(), Fault> {
    let at = |error: io::Error| fault(format_args!("cannot mount {}", path.display()), &error);
    if is_tmpfs_mount(path).map_err(at)? {
        return Ok(());
    }
    let size = (size_bytes > 0).then(|| format!("size={size_bytes}"));
    let none = MsFlags::empty();
    mount(Some("tmpfs"), path, Some("tmpfs"), none, size.as_deref()).map_err(|e| at(e.into()))
}

fn is_tmpfs_mount(path: &Path) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(path);
    let crosses = fs::metadata(path)?.dev() != fs::metadata(parent)?.dev();
    Ok(crosses && statfs(path)?.filesystem_type() == TMPFS_MAGIC)
}

fn check_host_path(path: &Path, kind: HostPathKind) -> Result<(), Fault> {
    if kind == HostPathKind::Unchecked {
        // Not even looked at, as upstream: it may be made later, and it may hang.
        return Ok(());
    }
    let at = |error: io::Error| fault(format_args!("cannot make {}", path.display()), &error);
    let seen = fs::metadata(path).ok();
    let missing = seen.is_none();
    let what = seen.map(|metadata| metadata.file_type());
    let (good, noun) = match kind {
        HostPathKind::Unchecked => return Ok(()),
        HostPathKind::DirectoryOrCreate if missing => return make_dirs(path, 0o755),
        HostPathKind::FileOrCreate if missing => {
            let made = OpenOptions::new().create(true).append(true).mode(0o644).open(path);
            return made.map(drop).map_err(at);
        }
        HostPathKind::DirectoryOrCreate | HostPathKind::Directory => {
            (what.is_some_and(|t| t.is_dir()), "directory")
        }
        HostPathKind::FileOrCreate | HostPathKind::File => {
            (what.is_some_and(|t| t.is_file()), "file")
        }
        HostPathKind::Socket => (what.is_some_and(|t| t.is_socket()), "socket file"),
        HostPathKind::CharDevice => (what.is_some_and(|t| t.is_char_device()), "character device"),
        HostPathKind::BlockDevice => (what.is_some_and(|t| t.is_block_device()), "block device"),
    };
    if good {
        return Ok(());
    }
    let message = format!("hostPath type check failed: {} is not a {noun}", path.display());
    Err(Fault { kind: FaultKind::Invalid, message })
}

/// Whether the files may be made on the thread: none lies in a volume, which may be a foreign
/// filesystem.
pub fn is_quick_container(files: &ContainerFiles) -> bool {
    files.subpaths.is_empty()
}

/// Makes what a container mounts, just before it is created.
pub fn prepare_container(files: &ContainerFiles) -> Result<(), Fault> {
    make_dirs(Path::new(&files.log_dir), 0o755)?;
    if let Some((path, content)) = &files.etc_hosts {
        // In place: containers that run have this very file mounted.
        write_file(Path::new(path), content.as_bytes(), 0o644)?;
    }
    if let Some(path) = &files.termination_log {
        let path = Path::new(path);
        if let Some(parent) = path.parent() {
            make_dirs(parent, 0o750)?;
        }
        write_file(path, b"", 0o666)?;
    }
    for subpath in &files.subpaths {
        let volume = Path::new(&subpath.volume);
        super::subpath::make(volume, &volume.join(&subpath.path))?;
    }
    Ok(())
}

fn write_file(path: &Path, content: &[u8], mode: u32) -> Result<(), Fault> {
    let at = |error: io::Error| fault(format_args!("cannot write {}", path.display()), &error);
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(mode);
    let mut file = open.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).map_err(at)?;
    file.write_all(content).map_err(at)?;
    file.set_permissions(Permissions::from_mode(mode)).map_err(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use steplet_core::effect::VolumeSetup;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn attempts_of_log_files() {
        let check = |name, want| assert_eq!(log_attempt(name), want, "{name}");
        check("0.log", Some(0));
        check("12.log", Some(12));
        check("3.log.20261130-150405", Some(3));
        check("3.log.20261130-150405.gz", Some(3));
        check("x.log", None);
        check("+1.log", None);
        check(".log", None);
        check("5.logs", None);
        check("99999999999.log", None);
    }

    #[test]
    fn a_pod_is_set_up_twice_alike() {
        let scratch = Scratch::new("pod_dirs");
        let at = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
        let setup = PodSetup {
            pod_dir: at("pods/u1"),
            log_dir: at("logs/default_web_u1"),
            containers: vec!["a".into(), "b".into()],
            volumes: vec![
                VolumeSetup {
                    name: "cache".into(),
                    kind: VolumeKind::EmptyDir {
                        path: at("pods/u1/volumes/kubernetes.io~empty-dir/cache"),
                        gid: None,
                    },
                },
                VolumeSetup {
                    name: "made".into(),
                    kind: VolumeKind::HostPath {
                        path: at("host/dir"),
                        kind: HostPathKind::DirectoryOrCreate,
                    },
                },
            ],
            resolv_conf: at("resolv.conf"),
            node_hosts: true,
        };
        fs::write(scratch.path().join("resolv.conf"), "nameserver 10.0.0.1\n").unwrap();
        for round in 0..2 {
            let ready = set_up(&setup, &Opened::default()).unwrap();
            assert_eq!(ready.resolv_conf.as_deref(), Some("nameserver 10.0.0.1\n"));
            assert!(ready.node_hosts.is_some());
            let want = if round == 0 { vec![] } else { vec![("b".to_owned(), 7)] };
            assert_eq!(ready.log_attempts, want);
            fs::write(scratch.path().join("logs/default_web_u1/b/7.log"), "").unwrap();
        }
        for (name, want) in [
            ("pods/u1", 0o750),
            ("pods/u1/volumes", 0o750),
            ("pods/u1/plugins", 0o750),
            ("pods/u1/containers/a", 0o750),
            ("pods/u1/volumes/kubernetes.io~empty-dir", 0o750),
            ("pods/u1/volumes/kubernetes.io~empty-dir/cache", 0o777),
            ("logs/default_web_u1/a", 0o755),
            ("host/dir", 0o755),
        ] {
            assert_eq!(mode(&scratch.path().join(name)), want, "{name}");
        }
    }

    #[test]
    fn host_path_types() {
        let scratch = Scratch::new("host_path");
        let dir = scratch.path();
        fs::write(dir.join("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        let check = |name: &str, kind, want: Option<&str>| {
            let path = if name.starts_with('/') { name.into() } else { dir.join(name) };
            let got = check_host_path(&path, kind).err().map(|fault| fault.message);
            let path = path.display();
            let want = want.map(|w| format!("hostPath type check failed: {path} is not a {w}"));
            assert_eq!(got, want, "{name} {kind:?}");
        };
        check("gone", HostPathKind::Unchecked, None);
        check("gone", HostPathKind::Directory, Some("directory"));
        check("gone", HostPathKind::File, Some("file"));
        check("file", HostPathKind::Directory, Some("directory"));
        check("file", HostPathKind::DirectoryOrCreate, Some("directory"));
        check("file", HostPathKind::File, None);
        check("file", HostPathKind::FileOrCreate, None);
        check("file", HostPathKind::Socket, Some("socket file"));
        check("socket", HostPathKind::Socket, None);
        check("socket", HostPathKind::CharDevice, Some("character device"));
        check("socket", HostPathKind::BlockDevice, Some("block device"));
        check("/dev/null", HostPathKind::CharDevice, None);
        check("/dev/null", HostPathKind::File, Some("file"));
        check("new-file", HostPathKind::FileOrCreate, None);
        check("new-file", HostPathKind::File, None);
        check("a/b/c", HostPathKind::DirectoryOrCreate, None);
        assert_eq!((mode(&dir.join("new-file")), mode(&dir.join("a/b/c"))), (0o644, 0o755));
    }

    #[test]
    fn container_files() {
        let scratch = Scratch::new("container_files");
        let at = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
        let files = ContainerFiles {
            etc_hosts: Some((at("etc-hosts"), "127.0.0.1\tlocalhost\n".into())),
            termination_log: Some(at("containers/a/0123abcd")),
            subpaths: vec![],
            log_dir: at("logs/a"),
        };
        fs::write(scratch.path().join("etc-hosts"), "something longer than the new text").unwrap();
        let before = fs::metadata(scratch.path().join("etc-hosts")).unwrap().ino();
        prepare_container(&files).unwrap();
        let hosts = scratch.path().join("etc-hosts");
        assert_eq!(fs::read_to_string(&hosts).unwrap(), "127.0.0.1\tlocalhost\n");
        assert_eq!(fs::metadata(&hosts).unwrap().ino(), before);
        assert_eq!(mode(&scratch.path().join("containers/a")), 0o750);
        assert_eq!(mode(&scratch.path().join("containers/a/0123abcd")), 0o666);
    }

    #[test]
    fn a_fifo_is_refused_and_does_not_hang() {
        let scratch = Scratch::new("fifo");
        let path = scratch.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(open_regular(&path).unwrap_err().to_string(), "not a regular file");
    }
}
