//! The files of a configMap, secret, downwardAPI or projected volume, replaced all at once.
//!
//! Upstream: pkg/volume/util/atomic_writer.go (v1.36), whose layout this is, so that either program goes on where the
//! other has stopped:
//!
//! ```text
//! VOLUME/..2026_11_30_15_04_05.123456789/{password, etc/app.conf}
//! VOLUME/..data   -> ..2026_11_30_15_04_05.123456789     switched by a rename: readers see the old files or the new
//! VOLUME/password -> ..data/password
//! VOLUME/etc      -> ..data/etc
//! ```
//!
//! A stop at any point leaves the old content or the new one, and the next write tidies up. Whatever a container may
//! have planted in the volume is replaced, never followed.

use super::fault;
use super::remove::remove_tree;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat, renameat,
};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, symlinkat, unlinkat};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use steplet_api::time::Time;
use steplet_core::event::{Fault, FaultKind};

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
/// Directories inside each other in what an earlier write has left.
const DEPTH_MAX: usize = 64;
/// Times of one nanosecond that are taken already.
const NAMES_MAX: u64 = 1_000;

/// A file as it is to be.
#[derive(Debug)]
pub struct NewFile<'a> {
    /// Relative to the volume.
    pub path: &'a str,
    pub mode: u32,
    pub uid: Option<u32>,
    pub content: Vec<u8>,
}

/// Makes `files` all that is in the volume; `gid` may read them. Nothing is written when they are there already.
///
/// Errors: `Invalid` for a path that leads out of the volume.
pub fn write(volume: &Path, files: &[NewFile<'_>], gid: Option<u32>) -> Result<(), Fault> {
    write_watched(volume, files, gid, &mut |_| Ok(()))
}

/// Asked before each change of the disk; an error stops the writing there.
type Watch<'a> = dyn FnMut(&'static str) -> nix::Result<()> + 'a;

fn write_watched(
    volume: &Path,
    files: &[NewFile<'_>],
    gid: Option<u32>,
    watch: &mut Watch<'_>,
) -> Result<(), Fault> {
    for file in files {
        if !is_inside(file.path) {
            let message = format!("invalid path: must stay in the volume: {}", file.path);
            return Err(Fault { kind: FaultKind::Invalid, message });
        }
    }
    let at = |errno: Errno| fault(format_args!("cannot write {}", volume.display()), &errno.into());
    let dir = openat2(AT_FDCWD, volume, how(OFlag::O_RDONLY | OFlag::O_DIRECTORY)).map_err(at)?;
    Writer { volume, dir, files, gid: gid.map(Gid::from_raw) }.write(watch).map_err(at)
}

/// Relative, of plain names only, and none that the layout itself uses.
fn is_inside(path: &str) -> bool {
    !path.starts_with("..") && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

struct Writer<'a> {
    volume: &'a Path,
    dir: OwnedFd,
    files: &'a [NewFile<'a>],
    gid: Option<Gid>,
}

impl Writer<'_> {
    fn write(&self, watch: &mut Watch<'_>) -> nix::Result<()> {
        let current = match self.current() {
            Some((name, old)) if self.is_content_of(&old).unwrap_or(false) => name,
            _ => self.replace(watch)?,
        };
        self.show(watch)?;
        self.tidy(&current, watch)
    }

    /// The directory that `..data` names, if it is one of ours.
    fn current(&self) -> Option<(String, OwnedFd)> {
        let name = readlinkat(&self.dir, DATA).ok()?.into_string().ok()?;
        is_timestamped(&name).then_some(())?;
        let old = open_below(&self.dir, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY).ok()?;
        Some((name, old))
    }

    fn is_content_of(&self, old: &OwnedFd) -> nix::Result<bool> {
        for file in self.files {
            if !self.is_file_of(old, file)? {
                return Ok(false);
            }
        }
        Ok(count_files(old, DEPTH_MAX)? == self.files.len())
    }

    fn is_file_of(&self, old: &OwnedFd, file: &NewFile<'_>) -> nix::Result<bool> {
        let there = match open_below(old, file.path, OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(false),
            other => other?,
        };
        let seen = fstat(&there)?;
        let alike = seen.st_mode == libc::S_IFREG | self.mode_of(file)
            && seen.st_size as usize == file.content.len()
            && file.uid.is_none_or(|uid| uid == seen.st_uid)
            && self.gid.is_none_or(|gid| gid.as_raw() == seen.st_gid);
        if !alike {
            return Ok(false);
        }
        let mut content = Vec::with_capacity(file.content.len() + 1);
        let most = file.content.len() as u64 + 1;
        File::from(there).take(most).read_to_end(&mut content).map_err(errno)?;
        Ok(content == file.content)
    }

    /// The mask for volumes that are read only in pkg/volume/volume_linux.go: the group may read.
    fn mode_of(&self, file: &NewFile<'_>) -> u32 {
        file.mode & 0o7777 | if self.gid.is_some() { 0o440 } else { 0 }
    }

    /// Writes the files beside those that are there, then lets `..data` name them.
    fn replace(&self, watch: &mut Watch<'_>) -> nix::Result<String> {
        let (name, new) = self.make_dir(watch)?;
        let filled = self.files.iter().try_for_each(|file| self.make_file(&new, file, watch));
        if let Err(errno) = filled.and_then(|()| self.switch(&name, watch)) {
            // What could not be finished does not stay and fill the disk.
            if watch("give up").is_ok() {
                let _ = remove_tree(&self.volume.join(&name));
            }
            return Err(errno);
        }
        Ok(name)
    }

    fn make_dir(&self, watch: &mut Watch<'_>) -> nix::Result<(String, OwnedFd)> {
        watch("make the directory")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for tried in 0..NAMES_MAX {
            let ns = i64::try_from(now.as_nanos()).unwrap_or_default().saturating_add(tried as i64);
            let name = timestamped(ns);
            match mkdirat(&self.dir, name.as_str(), Mode::S_IRWXU) {
                Err(Errno::EEXIST) => {}
                made => {
                    made?;
                    let new = open_below(&self.dir, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
                    self.open_up(&new)?;
                    return Ok((name, new));
                }
            }
        }
        Err(Errno::EEXIST)
    }

    /// Gives a directory its mode: the umask may have taken bits away.
    fn open_up(&self, dir: &OwnedFd) -> nix::Result<()> {
        let mode = match self.gid {
            None => 0o755,
            Some(_) => {
                fchown(dir, None, self.gid)?;
                0o2755
            }
        };
        fchmod(dir, Mode::from_bits_truncate(mode))
    }

    fn make_file(
        &self,
        top: &OwnedFd,
        file: &NewFile<'_>,
        watch: &mut Watch<'_>,
    ) -> nix::Result<()> {
        for (end, _) in file.path.match_indices('/') {
            let above = &file.path[..end];
            watch("make a directory")?;
            match mkdirat(top, above, Mode::S_IRWXU) {
                Err(Errno::EEXIST) => continue,
                made => made?,
            }
            self.open_up(&open_below(top, above, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?)?;
        }
        watch("make a file")?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let made = openat(top, file.path, flags | OFlag::O_CLOEXEC, Mode::S_IRUSR)?;
        let mut made = File::from(made);
        watch("fill a file")?;
        made.write_all(&file.content).map_err(errno)?;
        fchown(&made, file.uid.map(Uid::from_raw), self.gid)?;
        // After the change of owner, which takes bits away.
        fchmod(&made, Mode::from_bits_truncate(self.mode_of(file)))
    }

    fn switch(&self, name: &str, watch: &mut Watch<'_>) -> nix::Result<()> {
        watch("remove what was left half done")?;
        self.clear(DATA_NEW)?;
        watch("make the link")?;
        self.link(name, DATA_NEW)?;
        watch("switch")?;
        match renameat(&self.dir, DATA_NEW, &self.dir, DATA) {
            // Not ours: a directory.
            Err(Errno::EISDIR | Errno::ENOTEMPTY | Errno::EEXIST) => {
                self.clear(DATA)?;
                renameat(&self.dir, DATA_NEW, &self.dir, DATA)
            }
            other => other,
        }
    }

    fn link(&self, target: &str, name: &str) -> nix::Result<()> {
        symlinkat(target, &self.dir, name)?;
        match self.gid {
            None => Ok(()),
            gid => fchownat(&self.dir, name, None, gid, AtFlags::AT_SYMLINK_NOFOLLOW),
        }
    }

    /// The names under which the container sees the files.
    fn names(&self) -> BTreeSet<&str> {
        let first = |path: &'_ str| path.find('/').unwrap_or(path.len());
        self.files.iter().map(|file| &file.path[..first(file.path)]).collect()
    }

    fn show(&self, watch: &mut Watch<'_>) -> nix::Result<()> {
        for name in self.names() {
            if self.is_shown(name) {
                continue;
            }
            watch("show")?;
            self.clear(name)?;
            self.link(&format!("{DATA}/{name}"), name)?;
        }
        Ok(())
    }

    fn is_shown(&self, name: &str) -> bool {
        readlinkat(&self.dir, name).is_ok_and(|to| *to == *format!("{DATA}/{name}"))
    }

    /// Removes the links to files that are no more, and what earlier writes have left.
    fn tidy(&self, current: &str, watch: &mut Watch<'_>) -> nix::Result<()> {
        let names = self.names();
        for (name, _) in entries(&self.dir)? {
            let left = name == DATA_NEW || (is_timestamped(&name) && name != current);
            if left || (self.is_shown(&name) && !names.contains(&*name)) {
                watch("tidy")?;
                self.clear(&name)?;
            }
        }
        Ok(())
    }

    /// Removes whatever has this name in the volume; a link itself, and not where it leads.
    fn clear(&self, name: &str) -> nix::Result<()> {
        match unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::ENOENT) => Ok(()),
            Err(Errno::EISDIR) => {
                remove_tree(&self.volume.join(name)).map_err(|_| Errno::ENOTEMPTY)
            }
            other => other,
        }
    }
}

/// `..2026_11_30_15_04_05.123456789`
fn timestamped(ns: i64) -> String {
    let time = Time::from_ns(ns);
    let time = time.as_str().trim_end_matches('Z').replace(['-', 'T', ':'], "_");
    format!("..{time}.{:09}", ns.rem_euclid(1_000_000_000))
}

fn is_timestamped(name: &str) -> bool {
    let rest = name.strip_prefix("..").unwrap_or_default();
    rest.starts_with(|sign: char| sign.is_ascii_digit()) && !rest.contains('/')
}

/// Everything below that is no directory.
fn count_files(dir: &OwnedFd, depth: usize) -> nix::Result<usize> {
    let mut count = 0;
    for (name, kind) in entries(dir)? {
        if kind != Type::Directory {
            count += 1;
        } else if depth > 0 {
            let inner = open_below(dir, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
            count += count_files(&inner, depth - 1)?;
        }
    }
    Ok(count)
}

/// What lies in a directory; a name that is not UTF-8 is none of ours.
fn entries(dir: &OwnedFd) -> nix::Result<Vec<(String, Type)>> {
    let again = open_below(dir, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    let mut all = Vec::new();
    for entry in Dir::from_fd(again)?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            all.push((name, entry.file_type().unwrap_or(Type::File)));
        }
    }
    Ok(all)
}

fn open_below(dir: &OwnedFd, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    let within = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV;
    openat2(dir, path, how(flags).resolve(within | ResolveFlag::RESOLVE_NO_SYMLINKS))
}

fn how(flags: OFlag) -> OpenHow {
    OpenHow::new().flags(flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

    fn files<'a>(list: &[(&'a str, &str)]) -> Vec<NewFile<'a>> {
        let file = |(path, text): &(&'a str, &str)| NewFile {
            path,
            mode: 0o644,
            uid: None,
            content: text.as_bytes().to_vec(),
        };
        list.iter().map(file).collect()
    }

    /// Each file by the path under which a container opens it.
    fn seen(volume: &Path) -> BTreeMap<String, String> {
        fn walk(dir: &Path, below: &str, into: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap();
                let path = dir.join(&name);
                if name.starts_with("..") || !path.exists() {
                    continue;
                }
                match path.is_dir() {
                    true => walk(&path, &format!("{below}{name}/"), into),
                    false => {
                        _ = into.insert(format!("{below}{name}"), fs::read_to_string(path).unwrap())
                    }
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(volume, "", &mut all);
        all
    }

    fn shown(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect()
    }

    fn names(volume: &Path) -> Vec<String> {
        let all = fs::read_dir(volume).unwrap().flatten();
        let mut all: Vec<_> = all.map(|e| e.file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    fn volume(scratch: &Scratch) -> PathBuf {
        let volume = scratch.path().join("v");
        fs::create_dir(&volume).unwrap();
        volume
    }

    const OLD: [(&str, &str); 3] = [("a", "1"), ("deep/er/b", "2"), ("gone", "3")];
    const NEW: [(&str, &str); 4] = [("a", "10"), ("deep/c", "20"), ("new", "30"), ("x/y", "")];

    #[test]
    fn layout_and_updates() {
        let scratch = Scratch::new("atomic");
        let volume = volume(&scratch);
        write(&volume, &files(&OLD), None).unwrap();
        assert_eq!(seen(&volume), shown(&OLD));
        let first = fs::read_link(volume.join(DATA)).unwrap();
        let name = first.to_str().unwrap();
        assert!(is_timestamped(name) && name.len() == "..2026_11_30_15_04_05.123456789".len());
        assert_eq!(names(&volume), [name, DATA, "a", "deep", "gone"]);
        assert_eq!(fs::read_link(volume.join("deep")).unwrap(), Path::new("..data/deep"));
        // Equal content: nothing is written, but a link that was lost is made again.
        fs::remove_file(volume.join("gone")).unwrap();
        write(&volume, &files(&OLD), None).unwrap();
        assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), first);
        assert_eq!(seen(&volume), shown(&OLD));
        write(&volume, &files(&NEW), None).unwrap();
        assert_eq!(seen(&volume), shown(&NEW));
        assert!(!volume.join(&first).exists(), "the old directory goes");
        assert_eq!(names(&volume)[1..], [DATA, "a", "deep", "new", "x"]);
        // A file less, and one with another mode.
        let mut fewer = files(&NEW[..2]);
        fewer[0].mode = 0o400;
        write(&volume, &fewer, None).unwrap();
        assert_eq!(seen(&volume), shown(&NEW[..2]));
        assert_eq!(fs::metadata(volume.join("a")).unwrap().mode() & 0o7777, 0o400);
        write(&volume, &[], None).unwrap();
        assert_eq!(names(&volume)[1..], [DATA]);
    }

    #[test]
    fn a_stop_at_any_point_leaves_the_old_or_the_new() {
        for stop in 0.. {
            let scratch = Scratch::new("atomic-stop");
            let volume = volume(&scratch);
            write(&volume, &files(&OLD), None).unwrap();
            let mut left = stop;
            let mut watch = |_| match left {
                0 => Err(Errno::EIO),
                _ => {
                    left -= 1;
                    Ok(())
                }
            };
            let stopped = write_watched(&volume, &files(&NEW), None, &mut watch).is_err();
            let data = fs::read_link(volume.join(DATA)).unwrap();
            let whole = seen(&volume.join(data));
            let old = whole == shown(&OLD);
            assert!(old || whole == shown(&NEW), "stop {stop}: {whole:?}");
            // What a container sees by its names is of that one generation.
            for (path, text) in seen(&volume) {
                assert_eq!(whole.get(&path), Some(&text), "stop {stop}: {path}");
            }
            write(&volume, &files(&NEW), None).unwrap();
            assert_eq!(seen(&volume), shown(&NEW), "stop {stop}");
            assert_eq!(names(&volume)[1..], [DATA, "a", "deep", "new", "x"], "stop {stop}");
            if !stopped {
                assert!(stop > 15, "the watch sees every step: {stop}");
                return;
            }
        }
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_behind() {
        let scratch = Scratch::new("atomic-full");
        let volume = volume(&scratch);
        write(&volume, &files(&OLD), None).unwrap();
        let before = names(&volume);
        let mut full = |step| if step == "fill a file" { Err(Errno::ENOSPC) } else { Ok(()) };
        let fault = write_watched(&volume, &files(&NEW), None, &mut full).unwrap_err();
        assert_eq!(fault.kind, FaultKind::NoSpace);
        assert_eq!(names(&volume), before);
        // A name that is a file and a directory at once.
        assert!(write(&volume, &files(&[("a", ""), ("a/b", "")]), None).is_err());
        assert_eq!((names(&volume), seen(&volume)), (before, shown(&OLD)));
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        let scratch = Scratch::new("atomic-paths");
        let volume = volume(&scratch);
        for path in ["", "/a", "..", "../a", "a/../../b", "a//b", "./a", "a/.", "..data", "..x"] {
            assert!(write(&volume, &files(&[(path, "x")]), None).is_err(), "{path}");
        }
        assert!(names(&volume).is_empty());
        write(&volume, &files(&[(".hidden", "x"), ("a..b", "y")]), None).unwrap();
    }

    #[test]
    fn what_was_planted_is_replaced_and_never_followed() {
        let scratch = Scratch::new("atomic-planted");
        let volume = volume(&scratch);
        let outside = scratch.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("a"), "keep").unwrap();
        symlink(&outside, volume.join(DATA)).unwrap();
        symlink(outside.join("a"), volume.join("a")).unwrap();
        symlink(&outside, volume.join(DATA_NEW)).unwrap();
        symlink(&outside, volume.join("..2020_01_01_00_00_00.1")).unwrap();
        fs::create_dir(volume.join("deep")).unwrap();
        write(&volume, &files(&OLD), None).unwrap();
        assert_eq!(seen(&volume), shown(&OLD));
        // Inside the directory that `..data` names.
        let data = volume.join(fs::read_link(volume.join(DATA)).unwrap());
        fs::remove_file(data.join("a")).unwrap();
        symlink(outside.join("a"), data.join("a")).unwrap();
        write(&volume, &files(&OLD), None).unwrap();
        assert_eq!(seen(&volume), shown(&OLD));
        // A whole directory in the place of the link, and the volume itself a link.
        fs::remove_file(volume.join(DATA)).unwrap();
        fs::create_dir_all(volume.join(DATA).join("x")).unwrap();
        write(&volume, &files(&OLD), None).unwrap();
        assert_eq!(seen(&volume), shown(&OLD));
        symlink(&outside, scratch.path().join("link")).unwrap();
        assert!(write(&scratch.path().join("link"), &files(&OLD), None).is_err());
        assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "keep");
        assert_eq!(names(&outside), ["a"]);
    }

    #[test]
    fn a_group_may_read_what_others_may_not() {
        let scratch = Scratch::new("atomic-group");
        let volume = volume(&scratch);
        let gid = nix::unistd::getgid().as_raw();
        let mut list = files(&[("a", "1"), ("deep/b", "2")]);
        (list[0].mode, list[1].mode) = (0o400, 0o644);
        write(&volume, &list, Some(gid)).unwrap();
        let mode = |name: &str| fs::metadata(volume.join(name)).unwrap().mode() & 0o7777;
        assert_eq!([mode("a"), mode("deep/b"), mode("deep")], [0o440, 0o644, 0o2755]);
        let first = fs::read_link(volume.join(DATA)).unwrap();
        write(&volume, &list, Some(gid)).unwrap();
        assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), first);
    }
}
