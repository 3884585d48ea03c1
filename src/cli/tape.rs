//! `steplet tape show|stat|edit TAPE`: look into a tape, count it, change it.

mod edit;
mod show;
mod stat;
mod witness;

use super::columns::tell;
use crate::cli::say;
use std::ffi::OsString;

pub const HELP: &str = "\
Looks into a recorded run. TAPE is a segment, or a directory of them.

    steplet tape show TAPE     a line for each step: when, what came, what was done about it
    steplet tape stat TAPE     what the tape holds, and what that takes
    steplet tape edit TAPE     make a changed copy of a segment; its replay shows what then differs

show:
  --from N, --to M   the steps from N up to M
  --step N           the whole of one step
  --why              also the Kubernetes events that a step says, and the manifests that it refuses:
                     the steps are done once more for that, so only a tape of this build has them
  --pod NAME         only steps whose line has this word: a pod's name or uid, a container's id
  --utc              the time of day instead of the time since the start
  --json             one JSON object a line
edit:
  --step N           the step whose event is changed
  --set PATH=VALUE   VALUE is JSON, or else text; PATH leads into the event as show --json has
                     it, here into what the runtime answered about a container:
                     done.outcome.rpc.ok.containers.0.state=CONTAINER_EXITED
  -o FILE            where the copy goes (default: beside TAPE, with .edited in its name; must be
                     given when TAPE is a directory)

The exit status is 2 when the command line is wrong, and 4 when TAPE, or a part of it, cannot be
read.
";

const DONE: i32 = 0;
const WRONG_USAGE: i32 = 2;
const UNREADABLE: i32 = 4;

/// Runs the command; returns the exit status.
pub fn main(mut args: impl Iterator<Item = OsString>) -> i32 {
    let command = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        say(HELP);
        return DONE;
    }
    let args = args.into_iter();
    let result = match command.to_str() {
        Some("show") => show::main(args),
        Some("stat") => stat::main(args),
        Some("edit") => edit::main(args),
        Some("--help" | "-h") => {
            say(HELP);
            return DONE;
        }
        _ => Err(Failure::Usage("show, stat or edit?".into())),
    };
    match result {
        Ok(()) => DONE,
        Err(Failure::Usage(why)) => {
            tell("steplet tape", format_args!("{why}; see `steplet help tape`"));
            WRONG_USAGE
        }
        Err(Failure::Tape(why)) => {
            tell("steplet tape", why);
            UNREADABLE
        }
        // The reader of a pipe may have seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => DONE,
        Err(Failure::Output(error)) => {
            tell("steplet tape", error);
            1
        }
    }
}

enum Failure {
    Usage(String),
    /// The tape cannot be read, or not wholly.
    Tape(String),
    Output(std::io::Error),
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Failure {
        Failure::Usage(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Output(error)
    }
}
