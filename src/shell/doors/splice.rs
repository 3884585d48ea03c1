//! Logs on their way from a file to a client: the bytes that never pass through the core.
//!
//! A pump moves in slices of bounded work, holds some 32 KiB at most, and is looked at only when its client
//! takes bytes. At the end of a followed file it looks for more, less often while nothing comes.
//!
//! ```text
//!  Seeking -> Reading <-> Waiting      a followed file that has been read to its end
//!                |           |
//!                +-----------+--> Over     to the end; enough; no log
//! ```

pub mod below;
mod lines;
mod tail;

use super::disk::open_regular;
use super::reason;
use lines::Lines;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use steplet_core::effect::LogQuery;
use steplet_core::time::{Mono, Span};
use tail::Tail;

/// Bytes read in one slice of work.
const SLICE: usize = 16 * 1024;
/// The first and the longest pause before a followed file is looked at again.
const PAUSE_MIN: Span = Span::from_millis(50);
const PAUSE_MAX: Span = Span::from_millis(500);
/// How long a runtime may go on writing to a file whose successor it has made: it opens the new one first.
const SETTLES: Span = Span::from_millis(300);

pub struct Pump {
    path: String,
    until: Until,
    file: File,
    place: Inode,
    /// Where the next byte is read.
    offset: u64,
    lines: Lines,
    /// The beginning of a line.
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    phase: Phase,
    pause: Span,
    /// Since when another file lies at the path.
    rotated: Option<Mono>,
    /// No log: its bytes are sent as they are, of this type.
    raw: Option<&'static str>,
}

enum Phase {
    Seeking(Tail),
    Reading,
    Waiting { until: Mono },
    Over,
}

/// How far a log is read.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// To where it ended when it was asked for: what comes later is not waited for.
    Offset(u64),
    /// As long as its container runs.
    Stopped,
    /// The container has stopped.
    End,
}

/// Device and number: what stays the same when a file is renamed.
#[derive(Clone, Copy, PartialEq)]
struct Inode(u64, u64);

impl Inode {
    fn of(metadata: &Metadata) -> Inode {
        Inode(metadata.dev(), metadata.ino())
    }
}

/// What a pump has to say when it is asked to go on.
#[derive(Debug, PartialEq)]
pub enum Flow<'a> {
    /// To be sent; then [`Pump::consume`] says how much was.
    Bytes(&'a [u8]),
    /// It worked, and there is more to do.
    More,
    /// Nothing before [`Pump::look_at`].
    Wait,
    Through,
    /// It cannot go on, or what it reads is no log.
    Broken(String),
}

impl Pump {
    /// Errors, in upstream's words: there is no such file, or it cannot be opened.
    pub fn open(query: &LogQuery) -> Result<Pump, String> {
        let (file, metadata) = open(&query.path).map_err(|error| {
            let (path, why) = (&query.path, reason(&error));
            match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("failed to try resolving symlinks in path {path:?}: {why}")
                }
                _ => format!("failed to open log file {path:?}: {why}"),
            }
        })?;
        let size = metadata.len();
        Ok(Pump {
            path: query.path.clone(),
            until: if query.follow { Until::Stopped } else { Until::Offset(size) },
            file,
            place: Inode::of(&metadata),
            offset: 0,
            lines: Lines::new(query),
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            phase: match query.tail_lines {
                Some(lines) => Phase::Seeking(Tail::new(lines, size)),
                None => Phase::Reading,
            },
            pause: PAUSE_MIN,
            rotated: None,
            raw: None,
        })
    }

    /// Any file as it is, as far as it goes now.
    pub fn raw(file: File) -> io::Result<Pump> {
        let metadata = file.metadata()?;
        let mut first = [0; 512];
        let n = file.read_at(&mut first, 0)?;
        let is_text =
            first[..n].iter().all(|byte| *byte >= b' ' || b"\t\n\r\x0c\x1b".contains(byte));
        let kind = if is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" };
        Ok(Pump {
            path: String::new(),
            until: Until::Offset(metadata.len()),
            file,
            place: Inode::of(&metadata),
            offset: 0,
            lines: Lines::new(&LogQuery::default()),
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            phase: Phase::Reading,
            pause: PAUSE_MIN,
            rotated: None,
            raw: Some(kind),
        })
    }

    pub fn content_type(&self) -> &'static str {
        self.raw.unwrap_or("text/plain")
    }

    /// Nothing more will be written: what is there is still sent.
    pub fn end(&mut self) {
        if self.until == Until::Stopped {
            self.until = Until::End;
            if let Phase::Waiting { .. } = self.phase {
                self.phase = Phase::Reading;
            }
        }
    }

    /// When it has to be asked again although its client is not waiting for it.
    pub fn look_at(&self) -> Option<Mono> {
        match self.phase {
            Phase::Waiting { until } if self.output.is_empty() => Some(until),
            _ => None,
        }
    }

    /// `n` of the bytes shown last are sent.
    pub fn consume(&mut self, n: usize) {
        self.sent += n;
        if self.sent == self.output.len() {
            self.sent = 0;
            // A follower that waits holds no memory.
            self.output = Vec::new();
        }
    }

    /// Does one slice of work, unless there is something to be sent.
    pub fn go_on(&mut self, now: Mono) -> Flow<'_> {
        if self.output.is_empty()
            && let Err(why) = self.work(now)
        {
            self.phase = Phase::Over;
            return Flow::Broken(why);
        }
        if !self.output.is_empty() {
            return Flow::Bytes(&self.output[self.sent..]);
        }
        match self.phase {
            Phase::Seeking(_) | Phase::Reading => Flow::More,
            Phase::Waiting { .. } => Flow::Wait,
            Phase::Over => Flow::Through,
        }
    }

    fn work(&mut self, now: Mono) -> Result<(), String> {
        match &mut self.phase {
            Phase::Seeking(tail) => {
                let found = tail.step(&self.file).map_err(|error| broken(&self.path, &error))?;
                if let Some(offset) = found {
                    self.offset = offset;
                    self.phase = Phase::Reading;
                }
                Ok(())
            }
            Phase::Waiting { until } if *until > now => Ok(()),
            Phase::Waiting { .. } | Phase::Reading => self.read(now),
            Phase::Over => Ok(()),
        }
    }

    fn read(&mut self, now: Mono) -> Result<(), String> {
        self.phase = Phase::Reading;
        let left = match self.until {
            Until::Offset(end) => end.saturating_sub(self.offset),
            Until::Stopped | Until::End => u64::MAX,
        };
        let size = left.min(SLICE as u64) as usize;
        let had = self.input.len();
        self.input.resize(had + size, 0);
        let read = self.file.read_at(&mut self.input[had..], self.offset);
        self.input.truncate(had + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return self.at_the_end(now),
            Ok(n) => {
                self.offset += n as u64;
                self.pause = PAUSE_MIN;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(broken(&self.path, &error)),
        }
        self.show(false)
    }

    /// Writes what the input says; with `last` also a line that has no end.
    fn show(&mut self, last: bool) -> Result<(), String> {
        if self.raw.is_some() {
            self.output.append(&mut self.input);
            return Ok(());
        }
        let read = self.lines.read(&self.input, last, &mut self.output).map_err(|what| {
            format!("failed to get parse function: unsupported log format: {:?}", what.0)
        })?;
        self.input.drain(..read);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        if self.lines.is_enough() {
            self.phase = Phase::Over;
        }
        Ok(())
    }

    /// Nothing more is in the file. It may have been renamed, with another in its place.
    fn at_the_end(&mut self, now: Mono) -> Result<(), String> {
        let there = match self.until {
            Until::Offset(_) => None,
            Until::Stopped | Until::End => fs::metadata(&self.path).ok(),
        };
        match there {
            Some(there) if Inode::of(&there) != self.place => {
                let since = *self.rotated.get_or_insert(now);
                let settled = self.until == Until::End || now.since(since) >= SETTLES;
                if settled && let Ok((file, metadata)) = open(&self.successor()) {
                    self.show(true)?;
                    (self.file, self.place) = (file, Inode::of(&metadata));
                    self.begin_anew();
                    return Ok(());
                }
            }
            // Cut short in its place: what was not read in time is lost.
            Some(there) if there.len() < self.offset => {
                self.input = Vec::new();
                self.begin_anew();
                return Ok(());
            }
            Some(_) | None => {}
        }
        if self.until == Until::Stopped {
            self.phase = Phase::Waiting { until: now + self.pause };
            self.pause = self.pause.times(2).min(PAUSE_MAX);
            return Ok(());
        }
        self.show(true)?;
        self.phase = Phase::Over;
        Ok(())
    }

    /// What was written after this file. A slow reader may be more than one rotation behind.
    fn successor(&self) -> String {
        let own = fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let own = own.ok().and_then(|own| Some(own.to_str()?.to_owned()));
        let own = own.as_deref().and_then(|own| rotated_at(&self.path, own));
        let (Some(own), Some(dir)) = (own, Path::new(&self.path).parent()) else {
            return self.path.clone();
        };
        let files = fs::read_dir(dir).into_iter().flatten().flatten();
        let paths = files.filter_map(|file| file.path().to_str().map(str::to_owned));
        let later = paths.filter(|path| rotated_at(&self.path, path).is_some_and(|at| at > own));
        later.min().unwrap_or_else(|| self.path.clone())
    }

    fn begin_anew(&mut self) {
        self.offset = 0;
        self.rotated = None;
        self.lines.restart();
    }
}

fn open(path: &str) -> io::Result<(File, Metadata)> {
    let file = open_regular(path.as_ref())?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// `20261130-150405` of `0.log.20261130-150405`, as kubelet names what it sets aside; also when it is deleted and
/// only held open. What it has compressed is not read.
fn rotated_at<'a>(path: &str, rotated: &'a str) -> Option<&'a str> {
    let at = rotated.strip_prefix(path)?.strip_prefix('.')?.trim_end_matches(" (deleted)");
    let (date, time) = at.split_once('-')?;
    let digits = |text: &str, n| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
    (digits(date, 8) && digits(time, 6)).then_some(at)
}

fn broken(path: &str, error: &io::Error) -> String {
    format!("failed to read log file {path:?}: {}", reason(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::PathBuf;

    const SECOND: u64 = 1_000_000_000;

    struct Log {
        scratch: Scratch,
        lines: usize,
    }

    impl Log {
        fn new() -> Log {
            let log = Log { scratch: Scratch::new("splice"), lines: 0 };
            fs::write(log.path(), "").unwrap();
            log
        }

        fn path(&self) -> PathBuf {
            self.scratch.path().join("0.log")
        }

        fn query(&self) -> LogQuery {
            LogQuery { path: self.path().to_str().unwrap().into(), ..LogQuery::default() }
        }

        /// Numbers from where it stopped.
        fn say(&mut self, path: &PathBuf, lines: usize) {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            for _ in 0..lines {
                writeln!(file, "2026-11-30T15:04:05Z stdout F {}", self.lines).unwrap();
                self.lines += 1;
            }
        }

        fn rotate(&self, second: u32) -> PathBuf {
            let old = self.scratch.path().join(format!("0.log.20261130-1504{second:02}"));
            fs::rename(self.path(), &old).unwrap();
            fs::write(self.path(), "").unwrap();
            old
        }
    }

    /// What there is to read at this time, taken in uneven pieces; and whether that was all.
    fn taken(pump: &mut Pump, now: u64) -> (String, bool) {
        let mut all = Vec::new();
        loop {
            match pump.go_on(Mono(now)) {
                Flow::Bytes(bytes) => {
                    assert!(bytes.len() <= 2 * SLICE);
                    let n = bytes.len().min(1 + all.len() % 5_000);
                    all.extend_from_slice(&bytes[..n]);
                    pump.consume(n);
                }
                Flow::More => {}
                Flow::Wait => return (String::from_utf8(all).unwrap(), false),
                Flow::Through => return (String::from_utf8(all).unwrap(), true),
                Flow::Broken(why) => panic!("{why}"),
            }
        }
    }

    fn numbers(from: usize, to: usize) -> String {
        (from..to).map(|n| format!("{n}\n")).collect()
    }

    #[test]
    fn a_log_is_read_to_where_it_ended_when_it_was_asked_for() {
        let mut log = Log::new();
        log.say(&log.path(), 5_000);
        let mut pump = Pump::open(&log.query()).unwrap();
        let mut tail = Pump::open(&LogQuery { tail_lines: Some(3), ..log.query() }).unwrap();
        log.say(&log.path(), 10);
        assert_eq!(taken(&mut pump, 0), (numbers(0, 5_000), true));
        assert_eq!(taken(&mut tail, 0), (numbers(4_997, 5_000), true));
        assert_eq!(tail.look_at(), None);
    }

    #[test]
    fn a_followed_log_goes_on_and_ends_with_its_container() {
        let mut log = Log::new();
        let mut pump = Pump::open(&LogQuery { follow: true, ..log.query() }).unwrap();
        assert_eq!(taken(&mut pump, 0), (String::new(), false));
        log.say(&log.path(), 2);
        assert_eq!(taken(&mut pump, 0), (String::new(), false), "not before its time");
        let until = pump.look_at().unwrap();
        assert_eq!(until, Mono(0) + PAUSE_MIN);
        assert_eq!(taken(&mut pump, until.0), (numbers(0, 2), false));
        // The pauses grow while nothing comes.
        let mut now = until.0;
        for _ in 0..10 {
            now = pump.look_at().unwrap().0;
            assert_eq!(taken(&mut pump, now), (String::new(), false));
        }
        assert_eq!(pump.look_at(), Some(Mono(now) + PAUSE_MAX));
        let mut file = OpenOptions::new().append(true).open(log.path()).unwrap();
        write!(file, "2026-11-30T15:04:05Z stdout F half").unwrap();
        now += SECOND;
        assert_eq!(taken(&mut pump, now), ("half".into(), false));
        writeln!(file, " and half").unwrap();
        log.say(&log.path(), 2);
        pump.end();
        assert_eq!(taken(&mut pump, now), (" and half\n2\n3\n".into(), true));
    }

    #[test]
    fn a_followed_log_goes_on_in_the_next_file() {
        let mut log = Log::new();
        log.say(&log.path(), 10);
        let mut pump = Pump::open(&LogQuery { follow: true, ..log.query() }).unwrap();
        assert_eq!(taken(&mut pump, 0), (numbers(0, 10), false));
        let old = log.rotate(5);
        log.say(&old, 1);
        assert_eq!(taken(&mut pump, SECOND), (numbers(10, 11), false));
        // The runtime still writes to the old file, although the new one is there.
        log.say(&old, 1);
        assert_eq!(taken(&mut pump, 2 * SECOND), (numbers(11, 12), false));
        log.say(&log.path(), 1);
        assert_eq!(taken(&mut pump, 3 * SECOND), (numbers(12, 13), false));
        // With the end of the container at the same time.
        let old = log.rotate(10);
        log.say(&old, 1);
        log.say(&log.path(), 1);
        pump.end();
        assert_eq!(taken(&mut pump, 3 * SECOND), (numbers(13, 15), true));
    }

    #[test]
    fn a_slow_reader_misses_no_file() {
        let mut log = Log::new();
        log.say(&log.path(), 10);
        let mut pump = Pump::open(&LogQuery { follow: true, ..log.query() }).unwrap();
        let mut old = Vec::new();
        for second in 1..=3 {
            old.push(log.rotate(second));
            log.say(&log.path(), 10);
        }
        fs::write(old[0].with_extension("20261130-150401.gz"), "").unwrap();
        fs::remove_file(&old[0]).unwrap();
        pump.end();
        assert_eq!(taken(&mut pump, 0), (numbers(0, 40), true));
    }

    #[test]
    fn names_of_rotated_files() {
        let check = |name: &str, want| assert_eq!(rotated_at("/l/0.log", name), want, "{name}");
        check("/l/0.log.20261130-150405", Some("20261130-150405"));
        check("/l/0.log.20261130-150405 (deleted)", Some("20261130-150405"));
        check("/l/0.log.20261130-150405.gz", None);
        check("/l/0.log.1", None);
        check("/l/1.log.20261130-150405", None);
        check("/l/0.log", None);
    }

    #[test]
    fn a_file_that_was_cut_short_is_read_from_its_beginning() {
        let mut log = Log::new();
        log.say(&log.path(), 10);
        let mut pump = Pump::open(&LogQuery { follow: true, ..log.query() }).unwrap();
        assert_eq!(taken(&mut pump, 0), (numbers(0, 10), false));
        fs::write(log.path(), "").unwrap();
        log.say(&log.path(), 1);
        assert_eq!(taken(&mut pump, SECOND), (numbers(10, 11), false));
    }

    #[test]
    fn files_that_are_no_logs() {
        let log = Log::new();
        let missing = LogQuery { path: "/nonexistent/0.log".into(), ..LogQuery::default() };
        let want = "failed to try resolving symlinks in path \"/nonexistent/0.log\": \
                    no such file or directory";
        assert_eq!(Pump::open(&missing).err().as_deref(), Some(want));
        let directory = LogQuery { path: "/".into(), ..LogQuery::default() };
        let want = "failed to open log file \"/\": not a regular file";
        assert_eq!(Pump::open(&directory).err().as_deref(), Some(want));
        fs::write(log.path(), "hello\n").unwrap();
        let mut pump = Pump::open(&log.query()).unwrap();
        let want = "failed to get parse function: unsupported log format: \"hello\\n\"";
        assert_eq!(pump.go_on(Mono(0)), Flow::Broken(want.into()));
        assert_eq!(pump.go_on(Mono(0)), Flow::Through);
    }
}
