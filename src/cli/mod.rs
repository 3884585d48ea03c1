//! The command line: one file a subcommand.

use std::ffi::OsString;

/// Runs the command line. Returns the exit status.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    let mut args = args.skip(1);
    let first = args.next().unwrap_or_default();
    match first.to_str() {
        Some("helper") => helper(args),
        _ => {
            eprintln!("steplet: there is no command {}", first.display());
            2
        }
    }
}

/// A process of the helper pool; started by the agent, never by hand.
fn helper(mut args: impl Iterator<Item = OsString>) -> i32 {
    let parent = args.next().and_then(|pid| pid.to_str()?.parse().ok());
    parent.map_or(2, crate::shell::doors::work::serve)
}
