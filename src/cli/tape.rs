//! `steplet tape show|stat|edit TAPE`: look into a tape, count it, change it.

mod edit;
mod show;
mod stat;

use crate::cli::say;
use std::ffi::OsString;

pub const HELP: &str = "\
Looks into a recorded run. TAPE is a segment, or a directory of them.

    steplet tape show TAPE     a line for each step: when, what came, what was done about it
    steplet tape stat TAPE     what the tape holds, and what that takes
    steplet tape edit TAPE     make a changed copy of a segment; a replay of it shows what then differs

show:
  --from N, --to M           the steps from N up to M
  --step N                   the whole of one step
  --json                     one JSON object a line
edit:
  --step N                   the step whose event is changed
  --set PATH=VALUE           VALUE is JSON, or else text; PATH leads into the event as show --json has it:
                             done.outcome.rpc.ok.containers.0.state=CONTAINER_EXITED
  -o FILE                    where the copy goes (default: beside TAPE, with .edited in its name)
";

const DONE: i32 = 0;
const WRONG_USAGE: i32 = 2;
const UNREADABLE: i32 = 4;

/// Runs the command; returns the exit status.
pub fn main(mut args: impl Iterator<Item = OsString>) -> i32 {
    let command = args.next().unwrap_or_default();
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
            eprintln!("steplet tape: {why}; see `steplet help tape`");
            WRONG_USAGE
        }
        Err(Failure::Tape(why)) => {
            eprintln!("steplet tape: {why}");
            UNREADABLE
        }
        // The reader of a pipe may have seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => DONE,
        Err(Failure::Output(error)) => {
            eprintln!("steplet tape: {error}");
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
