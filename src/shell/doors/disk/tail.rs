//! The end of a file: termination messages, and the last lines of a container's log.
//!
//! Source of the log format: design document "CRI: Log management"; `<RFC 3339> stdout|stderr F|P
//! <text>`.

use super::fault;
use bytes::Bytes;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use steplet_core::event::Fault;

/// Bytes of a log that are looked at to find some lines of it.
const LOOK_BACK: u64 = 256 * 1024;

/// The last `most` bytes of what a file says, cut to its last `lines` lines first.
///
/// With `cri_log` the file is a container's log and the answer what the container wrote, both
/// streams together. Errors: of the system, `NotFound` among them; `Invalid` for what is not a file
/// in `within`.
pub fn read(
    within: &Path,
    path: &Path,
    most: u32,
    lines: Option<u32>,
    cri_log: bool,
) -> Result<Bytes, Fault> {
    let at = |error: io::Error| fault(format_args!("cannot read {}", path.display()), &error);
    let look_back = if cri_log || lines.is_some() { LOOK_BACK } else { u64::from(most) };
    let mut file = open_within(within, path).map_err(at)?;
    let from = file.metadata().map_err(at)?.len().saturating_sub(look_back);
    file.seek(SeekFrom::Start(from)).map_err(at)?;
    let mut bytes = Vec::new();
    file.take(look_back).read_to_end(&mut bytes).map_err(at)?;
    let mut text = &bytes[..];
    if from > 0 && look_back == LOOK_BACK {
        // The first line has lost its beginning.
        text = text.iter().position(|b| *b == b'\n').map_or(&[], |end| &text[end + 1..]);
    }
    if let Some(lines) = lines {
        text = last_lines(text, lines as usize);
    }
    let mut said = if cri_log { written(text) } else { text.to_vec() };
    said.drain(..said.len().saturating_sub(most as usize));
    Ok(said.into())
}

/// Opens a regular file in a directory of the agent's own. A container may have put a link there, to
/// what only root may read or to what never answers, so none is followed below that directory.
fn open_within(within: &Path, path: &Path) -> io::Result<File> {
    let outside = || io::Error::from_raw_os_error(libc::EINVAL);
    let inner = path.strip_prefix(within).map_err(|_| outside())?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dir = open(within, flags, Mode::empty())?;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    // A FIFO is not waited for.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = match openat2(&dir, inner, OpenHow::new().flags(flags).resolve(resolve)) {
        Err(Errno::EXDEV) => return Err(outside()),
        other => File::from(other?),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

fn last_lines(text: &[u8], lines: usize) -> &[u8] {
    let end = text.strip_suffix(b"\n").unwrap_or(text).len();
    let mut breaks = text[..end].iter().enumerate().rev().filter(|(_, b)| **b == b'\n');
    match lines {
        0 => &[],
        _ => breaks.nth(lines - 1).map_or(text, |(at, _)| &text[at + 1..]),
    }
}

/// What the container wrote. A line that is not of the format is left out, as upstream does.
fn written(log: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in log.split_inclusive(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut parts = line.splitn(4, |b| *b == b' ');
        let (_time, stream, tag) = (parts.next(), parts.next(), parts.next());
        let (Some(b"stdout" | b"stderr"), Some(tag)) = (stream, tag) else { continue };
        out.extend_from_slice(parts.next().unwrap_or_default());
        let partial = tag.split(|b| *b == b':').any(|t| t == b"P");
        if !partial {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use std::os::unix::fs::symlink;
    use steplet_core::event::FaultKind;

    #[test]
    fn ends_of_files() {
        let scratch = Scratch::new("tail");
        let path = scratch.path().join("file");
        let check = |content: &str, most, lines, cri_log, want: &str| {
            std::fs::write(&path, content).unwrap();
            let got = read(scratch.path(), &path, most, lines, cri_log).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), want, "{content:?} {most} {lines:?}");
        };
        check("", 10, None, false, "");
        check("0123456789", 4, None, false, "6789");
        check("a\nb\nc\n", 100, Some(2), false, "b\nc\n");
        check("a\nb\nc", 100, Some(2), false, "b\nc");
        check("a\nb\nc\n", 100, Some(9), false, "a\nb\nc\n");
        check("a\nb\n", 100, Some(0), false, "");
        check("aaa\nbbb\nccc\n", 6, Some(2), false, "b\nccc\n");
        let log = "2026-11-30T15:04:05.000000001Z stdout F one\n\
                   2026-11-30T15:04:05.000000002Z stderr P two \n\
                   2026-11-30T15:04:05.000000003Z stderr F halves\n\
                   garbage\n\
                   2026-11-30T15:04:05.000000004Z stdout F \n\
                   2026-11-30T15:04:05.000000005Z stdout F five";
        check(log, 1000, None, true, "one\ntwo halves\n\nfive\n");
        check(log, 1000, Some(2), true, "\nfive\n");
        check(log, 4, Some(80), true, "ive\n");
    }

    #[test]
    fn a_long_log_is_read_from_its_end_only() {
        let scratch = Scratch::new("tail");
        let path = scratch.path().join("0.log");
        let mut log = String::new();
        for n in 0..50_000 {
            log += &format!("2026-11-30T15:04:05Z stdout F line {n}\n");
        }
        std::fs::write(&path, &log).unwrap();
        let got = read(scratch.path(), &path, 22, Some(80), true).unwrap();
        assert_eq!(got, "line 49998\nline 49999\n");
        let all = read(scratch.path(), &path, u32::MAX, None, true).unwrap();
        assert!(all.starts_with(b"line 4"), "the cut line shows");
    }

    #[test]
    fn a_missing_file_is_not_found() {
        let at = |path| read(Path::new("/nonexistent"), Path::new(path), 10, None, false);
        let fault = at("/nonexistent/log").unwrap_err();
        assert_eq!(fault.kind, FaultKind::NotFound);
        assert_eq!(fault.message, "cannot read /nonexistent/log: no such file or directory");
    }

    #[test]
    fn what_a_container_may_have_put_there_is_not_followed() {
        let scratch = Scratch::new("tail");
        let own = scratch.path().join("containers");
        std::fs::create_dir_all(own.join("a")).unwrap();
        let secret = scratch.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        std::fs::write(own.join("a/message"), "bye").unwrap();
        symlink(&secret, own.join("a/link")).unwrap();
        symlink("message", own.join("a/inner")).unwrap();
        symlink(scratch.path(), own.join("up")).unwrap();
        nix::unistd::mkfifo(&own.join("a/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let check = |name: &str, want: Result<&str, FaultKind>| {
            let got = read(&own, &own.join(name), 10, None, false);
            let got = got.map_err(|fault| fault.kind);
            assert_eq!(got, want.map(|text| Bytes::from(text.to_owned())), "{name}");
        };
        check("a/message", Ok("bye"));
        for name in ["a/link", "a/inner", "up/secret", "../secret", "a/../../secret"] {
            check(name, Err(FaultKind::Invalid));
        }
        check("/etc/hostname", Err(FaultKind::Invalid));
        check("a", Err(FaultKind::Other));
        check("a/fifo", Err(FaultKind::Other));
        // The directory itself may be reached by a link: that one is the owner's.
        symlink(&own, scratch.path().join("moved")).unwrap();
        let moved = scratch.path().join("moved");
        assert!(read(&moved, &moved.join("a/message"), 10, None, false).is_ok());
    }
}
