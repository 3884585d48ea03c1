//! Log lines in klog's two formats, on standard error.
//!
//! Upstream: k8s.io/klog/v2 (text header), k8s.io/component-base/logs/json.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

struct Klog {
    format: Format,
    pid: u32,
}

/// Lines that wait for somebody to print them above a table.
static HELD: Mutex<Option<String>> = Mutex::new(None);
/// Beyond this, held lines are dropped.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Starts logging; a second call only changes the verbosity. `None`: warnings and errors only.
pub fn start(format: Format, verbosity: Option<u32>) {
    let level = match verbosity {
        Some(TRACE_FROM..) => LevelFilter::Trace,
        Some(DEBUG_FROM..) => LevelFilter::Debug,
        Some(_) => LevelFilter::Info,
        None => LevelFilter::Warn,
    };
    static KLOG: OnceLock<Klog> = OnceLock::new();
    // A logger that is already there was put there by an earlier call.
    let _ = log::set_logger(KLOG.get_or_init(|| Klog { format, pid: std::process::id() }));
    log::set_max_level(level);
}

/// From now on lines are kept for `take_held`, so that they do not tear up what is drawn on the
/// terminal.
pub fn hold() {
    *held() = Some(String::new());
}

/// The lines since the last time.
pub fn take_held() -> String {
    held().as_mut().map(std::mem::take).unwrap_or_default()
}

fn held() -> MutexGuard<'static, Option<String>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log for Klog {
    /// The protocol crates below us log each frame; nobody asked for that.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("steplet")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = match self.format {
            Format::Text => text(now, self.pid, record),
            Format::Json => json(now, record),
        };
        if let Some(held) = held().as_mut() {
            if held.len() < HELD_BYTES_MAX {
                held.push_str(&line);
            }
            return;
        }
        // A closed standard error must not end the node.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// `I1130 15:04:05.000000   12345 file.rs:123] message`, in UTC.
fn text(now: Duration, pid: u32, record: &Record<'_>) -> String {
    let letter = match record.level() {
        Level::Error => 'E',
        Level::Warn => 'W',
        Level::Info | Level::Debug | Level::Trace => 'I',
    };
    let (month, day) = month_and_day(now.as_secs() / 86_400);
    let second = now.as_secs() % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let micros = now.subsec_micros();
    let (file, line) = place(record);
    format!(
        "{letter}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} {pid:7} \
         {file}:{line}] {}\n",
        record.args()
    )
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

/// Month and day of a day counted from 1970-01-01, by the rule of the 400-year cycle of leap years.
fn month_and_day(day: u64) -> (u64, u64) {
    let day = (day + 719_468) % 146_097;
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    (if month < 10 { month + 3 } else { month - 9 }, day - (153 * month + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_calendar() {
        let check = |day, want| assert_eq!(month_and_day(day), want, "day {day}");
        check(0, (1, 1));
        check(58, (2, 28));
        check(59, (3, 1));
        check(789, (2, 29));
        check(790, (3, 1));
        check(10_957, (1, 1));
        check(11_016, (2, 29));
        check(20_787, (11, 30));
    }

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
}
