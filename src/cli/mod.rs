//! The command line: one file a subcommand.

mod node;
mod replay;
mod run;
mod table;
mod tape;

pub mod flags;

use std::ffi::OsString;

const HELP: &str = "\
Steplet is a Kubernetes node agent on one thread, whose runs can be replayed.

  steplet run FILE...     run pods on this machine until Ctrl-C; needs containerd or CRI-O
  steplet replay TAPE     have a recorded run again, and compare every step
  steplet tape show TAPE  look into a recorded run; also: tape stat, tape edit
  steplet version         say what this is
  steplet help COMMAND    more about a command

Try it:  steplet run fixtures/manifests/hello.yaml
";

/// Runs the command line. Returns the exit status.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    let mut args = args.skip(1);
    let Some(first) = args.next() else {
        eprint!("{HELP}");
        return 2;
    };
    let result = match first.to_str() {
        Some("run") => run::main(args),
        Some("replay") => Ok(replay::main(args)),
        Some("tape") => Ok(tape::main(args)),
        Some("helper") => Ok(helper(args)),
        Some("version" | "--version") => {
            println!("steplet {}", crate::shell::tape::BUILD);
            Ok(0)
        }
        Some("help" | "--help" | "-h") => Ok(help(args.next())),
        _ => Err(format!("there is no command {}; see `steplet help`", first.display())),
    };
    result.unwrap_or_else(|message| {
        eprintln!("steplet: {message}");
        1
    })
}

fn help(about: Option<OsString>) -> i32 {
    let text = match about.as_ref().and_then(|about| about.to_str()) {
        Some("run") => run::HELP,
        Some("replay") => replay::HELP,
        Some("tape") => tape::HELP,
        _ => HELP,
    };
    print!("{text}");
    0
}

/// A process of the helper pool; started by the agent, never by hand.
fn helper(mut args: impl Iterator<Item = OsString>) -> i32 {
    let parent = args.next().and_then(|pid| pid.to_str()?.parse().ok());
    parent.map_or(2, crate::shell::doors::work::serve)
}
