//! `steplet replay TAPE`: the recorded run once more, every step held against the tape.

use super::columns::tell;
use crate::cli::say;
use crate::shell::tape::difference::report;
use crate::shell::tape::json::hex;
use crate::shell::tape::reader::{Step, Tape};
use crate::shell::tape::replay::{Replay, Replayed};
use lexopt::{Arg, Parser};
use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use steplet_core::time::Span;

const WHO: &str = "steplet replay";

pub const HELP: &str = "\
Feeds the recorded events to the core once more and compares what it does, step by step.

    steplet replay TAPE

TAPE is a segment, or a directory of them: /var/lib/steplet/tapes for `steplet run`, and
/var/lib/kubelet/tapes for the kubelet, unless they were told otherwise.

The exit status is 0 when every step is equal, 2 when the command line is wrong, 3 when a step
differs, and 4 when the tape, or a part of it, cannot be read. A last frame that is torn, as a kill
or a power cut leaves it, is told and counts as the end.

  --any-build      also replay what another build recorded, and compare the effects only
";

const EQUAL: i32 = 0;
const WRONG_USAGE: i32 = 2;
const DIFFERS: i32 = 3;
const UNREADABLE: i32 = 4;

/// A replay that takes longer says how far it is, this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Runs the command; returns the exit status.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    let (path, any_build) = match parse(args) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => {
            say(HELP);
            return EQUAL;
        }
        Err(error) => {
            tell(WHO, format_args!("{error}; see `steplet help replay`"));
            return WRONG_USAGE;
        }
    };
    let tape = match Tape::open(&path) {
        Ok(tape) => tape,
        Err(error) => {
            let elsewhere = elsewhere(&TAPES.map(Path::new));
            tell(WHO, format_args!("{}: {error}{elsewhere}", path.display()));
            return UNREADABLE;
        }
    };
    replay(&tape, any_build)
}

/// Where the commands that run a node record it.
const TAPES: [&str; 2] = ["/var/lib/steplet/tapes", "/var/lib/kubelet/tapes"];

/// The usual places that there are, for whoever named another one.
fn elsewhere(usual: &[&Path]) -> String {
    let there = usual.iter().filter(|dir| Tape::open(dir).is_ok_and(|tape| !tape.files.is_empty()));
    let there: Vec<String> = there.map(|dir| dir.display().to_string()).collect();
    if there.is_empty() { String::new() } else { format!("; there is {}", there.join(" and ")) }
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Option<(PathBuf, bool)>, lexopt::Error> {
    let mut args = Parser::from_args(args);
    let (mut path, mut any_build) = (None, false);
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("any-build") => any_build = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            arg => return Err(arg.unexpected()),
        }
    }
    path.map(|path| Some((path, any_build))).ok_or_else(|| "TAPE is missing".into())
}

fn replay(tape: &Tape, any_build: bool) -> i32 {
    let started = Instant::now();
    let mut next_progress = PROGRESS_EVERY;
    explain_panics();
    let mut on_step = |done: &Replayed, step: &Step| {
        UNDER_WAY.set(Some((step.number, step.ended.is_some())));
        if done.steps.is_multiple_of(512) && started.elapsed() >= next_progress {
            next_progress = started.elapsed() + PROGRESS_EVERY;
            let simulated = duration(done.simulated);
            tell(WHO, format_args!("{} steps, {simulated} simulated so far", done.steps));
        }
    };
    let mut on_notice = |notice| tell(WHO, notice);
    let mut replay = Replay { any_build, on_step: &mut on_step, on_notice: &mut on_notice };
    let mut done = Replayed::default();
    let result = replay.run(tape, &mut done);
    UNDER_WAY.set(None);
    let status = match result {
        Err(why) => {
            tell(WHO, why);
            return UNREADABLE;
        }
        Ok(Some(difference)) => {
            say(report(&difference));
            DIFFERS
        }
        Ok(None) if done.damaged => UNREADABLE,
        Ok(None) => EQUAL,
    };
    say(format_args!("{}\n", last_line(&done, started.elapsed())));
    status
}

fn last_line(done: &Replayed, took: Duration) -> String {
    let simulated = duration(done.simulated);
    let times = done.simulated.0 as f64 / took.as_nanos().max(1) as f64;
    let digits = if times < 10.0 { 1 } else { 0 };
    let chain = hex(&done.chain.0);
    format!(
        "replayed {} steps, {simulated} simulated, {times:.digits$}x real time, chain {chain}",
        done.steps
    )
}

/// As Go writes durations, to the millisecond: `1h0m3.5s`.
fn duration(span: Span) -> String {
    let (hours, minutes) = (span.secs() / 3600, span.secs() / 60 % 60);
    let millis = format!("{}.{:03}", span.secs() % 60, span.millis() % 1_000);
    let seconds = millis.trim_end_matches('0').trim_end_matches('.');
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

thread_local! {
    /// The step that the core is in, and whether the recorded run came out of it.
    static UNDER_WAY: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
}

/// A tape may end in the step that brought the program down: then the replay ends so too, which is equal.
fn explain_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        let Some((step, survived)) = UNDER_WAY.get() else { return };
        if survived {
            tell(WHO, format_args!("the core panics in step {step}; on the tape it did not"));
            std::process::exit(DIFFERS);
        }
        tell(WHO, format_args!("the core panics in step {step}, and there the tape ends"));
        std::process::exit(EQUAL);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use steplet_core::chain::Chain;

    #[test]
    fn the_last_line_says_it_all() {
        let done = Replayed {
            steps: 14_400,
            simulated: Span::from_secs(3_600),
            chain: Chain([0xab; 32]),
            damaged: false,
        };
        let chain = "ab".repeat(32);
        assert_eq!(
            last_line(&done, Duration::from_millis(300)),
            format!("replayed 14400 steps, 1h0m0s simulated, 12000x real time, chain {chain}")
        );
        let check = |millis, want: &str| assert_eq!(duration(Span::from_millis(millis)), want);
        check(0, "0s");
        check(1_500, "1.5s");
        check(60_000, "1m0s");
        check(3_600_001, "1h0m0.001s");
    }

    #[test]
    fn arguments() {
        let parse =
            |args: &[&str]| parse(args.iter().map(OsString::from)).map_err(|e| e.to_string());
        assert_eq!(parse(&["a", "--any-build"]), Ok(Some(("a".into(), true))));
        assert_eq!(parse(&["--help"]), Ok(None));
        assert!(parse(&[]).is_err() && parse(&["a", "b"]).is_err() && parse(&["--x"]).is_err());
    }
}
