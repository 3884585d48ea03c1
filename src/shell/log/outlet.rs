//! Standard output or error, written without ever waiting for whoever reads it: a terminal on which
//! somebody has pressed Ctrl-S, or a pipe whose reader has stopped, must not stop the one thread.
//!
//! O_NONBLOCK is a property of the open file, which other processes share: it is never set on what
//! was inherited.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{isatty, write};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// What waits for a reader; lines beyond this are dropped, and counted.
const PENDING_BYTES_MAX: usize = 64 * 1024;
/// PIPE_BUF: so much fits into a pipe that poll(2) calls writable.
const CHUNK: usize = 4096;

pub struct Outlet<F> {
    fd: F,
    way: Way,
    pending: Vec<u8>,
    dropped: u64,
}

/// How to write without waiting.
enum Way {
    /// A terminal, opened once more for ourselves, so that it can be nonblocking.
    Own(File),
    Socket,
    /// It is asked before each write whether there is room.
    Asked,
}

impl<F: AsFd> Outlet<F> {
    pub fn new(fd: F) -> Outlet<F> {
        let way = Way::of(fd.as_fd());
        Outlet { fd, way, pending: Vec::new(), dropped: 0 }
    }

    /// Writes what can be written now, and keeps the rest for later. `text` is whole lines.
    pub fn write(&mut self, text: &[u8]) {
        self.flush();
        if self.pending.len() + text.len() > PENDING_BYTES_MAX {
            self.dropped += text.iter().filter(|byte| **byte == b'\n').count() as u64;
            return;
        }
        self.pending.extend_from_slice(text);
        self.flush();
    }

    /// Writes what is left as far as that is possible now. Returns whether nothing is left.
    pub fn flush(&mut self) -> bool {
        loop {
            while !self.pending.is_empty() {
                let chunk = &self.pending[..self.pending.len().min(CHUNK)];
                match self.way.write(self.fd.as_fd(), chunk) {
                    Ok(written) => drop(self.pending.drain(..written)),
                    Err(Errno::EINTR) => {}
                    Err(Errno::EAGAIN) => return false,
                    // Nobody will read it any more.
                    Err(_) => self.pending.clear(),
                }
            }
            match std::mem::take(&mut self.dropped) {
                0 => return true,
                dropped => {
                    self.pending =
                        format!("({dropped} lines were dropped: nobody read them)\n").into()
                }
            }
        }
    }

    /// Waits for the reader, at most so long: for the end of the process.
    pub fn drain(&mut self, within: Duration) {
        let started = Instant::now();
        while !self.flush() && started.elapsed() < within {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Way {
    fn of(fd: BorrowedFd<'_>) -> Way {
        let kind = fstat(fd).map_or(SFlag::empty(), |stat| SFlag::from_bits_truncate(stat.st_mode));
        if kind & SFlag::S_IFMT == SFlag::S_IFSOCK {
            return Way::Socket;
        }
        if isatty(fd).unwrap_or(false) {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            // Not allowed after a change of user: then as any other.
            if let Ok(own) = OpenOptions::new().write(true).custom_flags(flags).open(path) {
                return Way::Own(own);
            }
        }
        Way::Asked
    }

    fn write(&self, fd: BorrowedFd<'_>, bytes: &[u8]) -> nix::Result<usize> {
        match self {
            Way::Own(file) => write(file, bytes),
            Way::Socket => {
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                send(fd.as_raw_fd(), bytes, flags)
            }
            Way::Asked if has_room(fd)? => write(fd, bytes),
            Way::Asked => Err(Errno::EAGAIN),
        }
    }
}

fn has_room(fd: BorrowedFd<'_>) -> nix::Result<bool> {
    let mut asked = [PollFd::new(fd, PollFlags::POLLOUT)];
    poll(&mut asked, PollTimeout::ZERO)?;
    // An error is found out by the write.
    Ok(asked[0].any().unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::os::unix::net::UnixStream;

    const LINE: [u8; 100] = {
        let mut line = [b'x'; 100];
        line[99] = b'\n';
        line
    };

    /// Nobody reads while five times too much is written; then somebody does.
    fn check(what: &str, write: impl AsFd, mut read: impl Read) {
        let mut outlet = Outlet::new(write);
        let lines = 5 * (PENDING_BYTES_MAX + (1 << 20)) / LINE.len();
        let started = Instant::now();
        (0..lines).for_each(|_| outlet.write(&LINE));
        assert!(started.elapsed() < Duration::from_secs(10), "{what}: it waited");
        assert!(!outlet.flush() && outlet.dropped > 0, "{what}: all was taken");
        let dropped = outlet.dropped;
        let mut text = Vec::new();
        let mut some = [0; 65536];
        while !outlet.flush() {
            let n = read.read(&mut some).unwrap();
            text.extend_from_slice(&some[..n]);
        }
        let end = format!("({dropped} lines were dropped: nobody read them)");
        while !String::from_utf8_lossy(&text).contains(&end) {
            let n = read.read(&mut some).unwrap();
            text.extend_from_slice(&some[..n]);
        }
        let whole = String::from_utf8_lossy(&text).lines().filter(|l| l.len() == 99).count();
        assert_eq!(whole as u64 + dropped, lines as u64, "{what}");
    }

    #[test]
    fn a_reader_that_stops_stops_nobody() {
        let (read, write) = std::io::pipe().unwrap();
        check("pipe", write, read);
        let (read, write) = UnixStream::pair().unwrap();
        check("socket", write, read);
        let (read, write) = terminal();
        check("terminal", write, read);
    }

    #[test]
    fn what_is_shared_stays_blocking() {
        let (_read, write) = terminal();
        let mut outlet = Outlet::new(&write);
        outlet.write(b"a\n");
        assert!(matches!(outlet.way, Way::Own(_)));
        let flags = nix::fcntl::fcntl(&write, nix::fcntl::FcntlArg::F_GETFL).unwrap();
        assert_eq!(flags & libc::O_NONBLOCK, 0);
    }

    #[test]
    fn without_a_reader_nothing_is_kept() {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let mut outlet = Outlet::new(&write);
        outlet.write(b"a\n");
        assert!(outlet.flush() && outlet.pending.is_empty());
    }

    /// Both ends of a pseudo-terminal: what is written to the second is read from the first.
    fn terminal() -> (File, File) {
        let (mut read, mut write) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: the first two are good addresses, and the others may be null.
        let made =
            unsafe { libc::openpty(&raw mut read, &raw mut write, null, null.cast(), null.cast()) };
        assert_eq!(made, 0, "no pseudo-terminal: {}", std::io::Error::last_os_error());
        // SAFETY: both were just opened, and nobody else has them.
        unsafe { (File::from_raw_fd(read), File::from_raw_fd(write)) }
    }
}
