//! Log lines in klog's two formats, on standard error.
//!
//! Upstream: k8s.io/klog/v2 (text header), k8s.io/component-base/logs/json.

pub mod outlet;

use env_logger::{Builder, Target};
use log::{Level, LevelFilter, Record};
use outlet::Outlet;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use steplet_api::time::Time;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// From `--v` on which a line of this level shows. klog has no names for its levels; these are the
/// numbers at which upstream writes what `debug!` and `trace!` stand for.
const DEBUG_FROM: u32 = 2;
const TRACE_FROM: u32 = 5;

/// The format that logging was started with.
static FORMAT: OnceLock<Format> = OnceLock::new();
/// Lines that wait for somebody to print them above a table.
static HELD: Mutex<Option<Held>> = Mutex::new(None);
/// The level of files that `--vmodule` does not name, and the highest of those that it does.
static USUAL: AtomicUsize = AtomicUsize::new(LevelFilter::Info as usize);
static RAISED: AtomicUsize = AtomicUsize::new(LevelFilter::Off as usize);
/// Where lines go that nobody holds.
static STDERR: Mutex<Option<Outlet<io::Stderr>>> = Mutex::new(None);
/// Beyond this, held lines are dropped, and counted.
const HELD_BYTES_MAX: usize = 64 * 1024;

#[derive(Default)]
struct Held {
    text: Vec<u8>,
    dropped: u64,
}

/// How long the end of the process waits for whoever reads the log.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A pattern of `--vmodule`, and how much the files that it names log.
pub type Pattern = (String, u32);

/// Starts logging; only the first call counts. Files that `vmodule` names may say more than the rest.
pub fn start(format: Format, verbosity: u32, vmodule: Vec<Pattern>) {
    start_at(format, level(verbosity), vmodule);
}

/// Starts logging of warnings and errors only.
pub fn start_quiet() {
    start_at(Format::Text, LevelFilter::Warn, Vec::new());
}

/// From now on lines of this verbosity show; what `--vmodule` says of files stays.
pub fn set_verbosity(verbosity: u32) {
    set_usual(level(verbosity));
}

fn set_usual(usual: LevelFilter) {
    USUAL.store(usual as usize, Ordering::Relaxed);
    let raised = RAISED.load(Ordering::Relaxed);
    let most = LevelFilter::iter().find(|level| *level as usize == raised);
    log::set_max_level(most.unwrap_or(LevelFilter::Off).max(usual));
}

fn level(verbosity: u32) -> LevelFilter {
    match verbosity {
        TRACE_FROM.. => LevelFilter::Trace,
        DEBUG_FROM.. => LevelFilter::Debug,
        _ => LevelFilter::Info,
    }
}

fn start_at(format: Format, usual: LevelFilter, vmodule: Vec<Pattern>) {
    let format = *FORMAT.get_or_init(|| format);
    let pid = std::process::id();
    let raised = vmodule.iter().map(|(_, verbosity)| level(*verbosity)).max();
    let mut builder = Builder::new();
    // The protocol crates below us log each frame; nobody asked for that.
    builder.filter_module("steplet", LevelFilter::Trace).target(Target::Pipe(Box::new(Out)));
    builder.format(move |out, record| {
        let unusual = record.level() as usize > USUAL.load(Ordering::Relaxed);
        if unusual && !self::raised(&vmodule, record) {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = match format {
            Format::Text => text(local(now), pid, record),
            Format::Json => json(now, record),
        };
        out.write_all(line.as_bytes())
    });
    // A logger that is already there was put there by an earlier call.
    if builder.try_init().is_ok() {
        RAISED.store(raised.unwrap_or(LevelFilter::Off) as usize, Ordering::Relaxed);
        set_usual(usual);
    }
}

/// The words by which a helper process logs as this process does, for `start_as`.
pub fn manner() -> [&'static str; 2] {
    let format = match FORMAT.get() {
        Some(Format::Json) => "json",
        Some(Format::Text) | None => "text",
    };
    [format, log::max_level().as_str()]
}

/// Starts logging in the manner of another process. Words that make no sense are the defaults.
pub fn start_as(format: &str, level: &str) {
    let format = if format == "json" { Format::Json } else { Format::Text };
    start_at(format, level.parse().unwrap_or(LevelFilter::Warn), Vec::new());
}

/// Whether the first pattern that names the record's file lets it through.
fn raised(vmodule: &[Pattern], record: &Record<'_>) -> bool {
    let file = module(record.file().unwrap_or_default());
    let found = vmodule.iter().find(|(pattern, _)| matches(pattern.as_bytes(), file.as_bytes()));
    found.is_some_and(|(_, verbosity)| record.level() <= level(*verbosity))
}

/// The name of a file as `--vmodule` means it: without folder and ending; `workers/mod.rs` is workers.
fn module(path: &str) -> &str {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// `*` stands for any text, `?` for one character.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        ([b'?', rest @ ..], [_, name @ ..]) => matches(rest, name),
        ([one, rest @ ..], [other, name @ ..]) => one == other && matches(rest, name),
        _ => false,
    }
}

/// From now on lines are kept for `take_held`, so that they do not tear up what is drawn on the
/// terminal.
pub fn hold() {
    *held() = Some(Held::default());
}

/// The lines since the last time.
pub fn take_held() -> String {
    let Some(held) = held().as_mut().map(std::mem::take) else { return String::new() };
    let mut text = String::from_utf8_lossy(&held.text).into_owned();
    if held.dropped > 0 {
        text.push_str(&format!("({} more log lines at once were too many)\n", held.dropped));
    }
    text
}

/// Writes out what was held since the last time, if anybody still reads.
pub fn show_held() {
    let _ = std::io::stderr().write_all(take_held().as_bytes());
}

fn held() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes lines that could not be written before: whoever reads them had stopped.
pub fn flush() {
    with_stderr(|stderr| {
        stderr.flush();
    });
}

/// The same at the end of the process, for which a reader is waited a moment.
pub fn drain() {
    with_stderr(|stderr| stderr.drain(LAST_WORDS));
}

fn with_stderr(act: impl FnOnce(&mut Outlet<io::Stderr>)) {
    let mut stderr = STDERR.lock().unwrap_or_else(PoisonError::into_inner);
    act(stderr.get_or_insert_with(|| Outlet::new(io::stderr())));
}

/// Standard error, or what is held. The logger writes a whole line at a time.
struct Out;

impl Write for Out {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match held().as_mut() {
            None => with_stderr(|stderr| stderr.write(line)),
            Some(held) if held.text.len() < HELD_BYTES_MAX => held.text.extend_from_slice(line),
            Some(held) => held.dropped += 1,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The same instant as a clock on the wall shows it here. klog writes local time, and so does what else lands in the
/// journal beside these lines.
fn local(now: Duration) -> Duration {
    let seconds = now.as_secs().try_into().unwrap_or_default();
    // SAFETY: a tm is plain numbers and a pointer that may be null.
    let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are good; the environment, which holds TZ, is never changed by this process.
    if unsafe { libc::localtime_r(&raw const seconds, &raw mut broken_down) }.is_null() {
        return now;
    }
    let east = broken_down.tm_gmtoff;
    let ahead = Duration::from_secs(east.unsigned_abs());
    if east < 0 { now.saturating_sub(ahead) } else { now.saturating_add(ahead) }
}

/// `I1130 15:04:05.000000   12345 file.rs:123] message`.
fn text(now: Duration, pid: u32, record: &Record<'_>) -> String {
    let letter = match record.level() {
        Level::Error => 'E',
        Level::Warn => 'W',
        Level::Info | Level::Debug | Level::Trace => 'I',
    };
    // 2026-11-30T15:04:05.000000Z
    let stamp = Time::micro_from_ns(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
    let stamp = stamp.as_str();
    let (month, day, time) = (&stamp[5..7], &stamp[8..10], &stamp[11..26]);
    let (file, line) = place(record);
    format!("{letter}{month}{day} {time} {pid:7} {file}:{line}] {}\n", record.args())
}

fn json(now: Duration, record: &Record<'_>) -> String {
    let (file, line) = place(record);
    let micros = now.as_micros();
    let verbosity = match record.level() {
        Level::Error => "",
        Level::Warn | Level::Info => ",\"v\":0",
        Level::Debug => ",\"v\":2",
        Level::Trace => ",\"v\":5",
    };
    let message = serde_json::Value::from(record.args().to_string());
    format!(
        "{{\"ts\":{}.{:03},\"caller\":\"{file}:{line}\",\"msg\":{message}{verbosity}}}\n",
        micros / 1000,
        micros % 1000
    )
}

fn place<'a>(record: &'a Record<'_>) -> (&'a str, u32) {
    let path = record.file().unwrap_or("unknown");
    (path.rsplit('/').next().unwrap_or(path), record.line().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats() {
        let now = Duration::new(1_796_051_045, 123_456_789);
        let check = |level, want_text: &str, want_json: &str| {
            let args = format_args!("Pod \"web\" started");
            let record = Record::builder()
                .args(args)
                .level(level)
                .file(Some("src/shell/reactor.rs"))
                .line(Some(7))
                .build();
            assert_eq!(text(now, 42, &record), want_text);
            assert_eq!(json(now, &record), want_json);
        };
        check(
            Level::Warn,
            "W1130 15:04:05.123456      42 reactor.rs:7] Pod \"web\" started\n",
            "{\"ts\":1796051045123.456,\"caller\":\"reactor.rs:7\",\
             \"msg\":\"Pod \\\"web\\\" started\",\"v\":0}\n",
        );
        check(
            Level::Error,
            "E1130 15:04:05.123456      42 reactor.rs:7] Pod \"web\" started\n",
            "{\"ts\":1796051045123.456,\"caller\":\"reactor.rs:7\",\
             \"msg\":\"Pod \\\"web\\\" started\"}\n",
        );
    }

    #[test]
    fn patterns_name_files() {
        let check = |pattern: &str, path: &str, want: bool| {
            let found = matches(pattern.as_bytes(), module(path).as_bytes());
            assert_eq!(found, want, "{pattern} {path}");
        };
        check("pleg", "src/core/managers/pods/pleg.rs", true);
        check("workers", "src/core/managers/pods/workers/mod.rs", true);
        check("worker", "src/core/managers/pods/workers/mod.rs", false);
        check("worker*", "src/core/managers/pods/workers/worker.rs", true);
        check("*l?g", "pleg.rs", true);
        check("*", "pleg.rs", true);
        check("?", "pleg.rs", false);
        check("", "pleg.rs", false);
    }

    #[test]
    fn named_files_say_more() {
        let vmodule = [("pleg".to_owned(), 4), ("p*".to_owned(), 9)];
        let check = |file: &str, level, want: bool| {
            let record = Record::builder().file(Some(file)).level(level).build();
            assert_eq!(raised(&vmodule, &record), want, "{file} {level}");
        };
        check("src/pleg.rs", Level::Debug, true);
        check("src/pleg.rs", Level::Trace, false);
        check("src/plan.rs", Level::Trace, true);
        check("src/status.rs", Level::Debug, false);
    }

    #[test]
    fn local_time_is_within_a_day_of_utc() {
        let now = Duration::new(1_796_051_045, 123_456_789);
        let apart = local(now).abs_diff(now);
        assert!(apart <= Duration::from_secs(14 * 3600), "{apart:?}");
        assert_eq!(local(now).subsec_nanos(), 123_456_789);
    }

    #[test]
    fn held_lines_are_bounded_and_the_rest_is_counted() {
        hold();
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        for _ in 0..70 {
            Out.write_all(&line).unwrap();
        }
        let text = take_held();
        assert_eq!(text.lines().count(), 65);
        assert!(text.ends_with("(6 more log lines at once were too many)\n"), "{text}");
        assert_eq!(take_held(), "");
        *held() = None;
    }
}
