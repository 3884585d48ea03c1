//! The command line: one file a subcommand.

mod columns;
pub mod flags;
mod kubeconfig;
mod kubelet;
mod manifests;
mod news;
mod node;
mod output;
mod replay;
mod run;
mod sim;
mod simulate;
mod table;
mod tape;

use crate::shell::log;
use crate::shell::tape::BUILD;
use flags::KUBERNETES_VERSION;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

const HELP: &str = "\
Steplet is a Kubernetes node agent on one thread, whose runs can be replayed.

  steplet run FILE...     run pods on this machine until Ctrl-C; needs containerd or CRI-O
  steplet kubelet FLAG... be this machine's node agent, with the kubelet's flags and configuration
  steplet replay TAPE     have a recorded run again, and compare every step
  steplet tape show TAPE  look into a recorded run; also: tape stat, tape edit
  steplet sim --seed N    have a simulated node in trouble, and see whether the agent does well
  steplet version         say what this is
  steplet help COMMAND    more about a command

Called by the name kubelet, or with a flag as the first word, it is that agent too.

Try it:  steplet run fixtures/manifests/hello.yaml
";

/// Why a command ended without having done its work: sentences for people.
enum Failure {
    /// The command line is wrong.
    Usage(String),
    Other(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Other(why)
    }
}

/// The exit status when the command line is wrong, of all commands but the kubelet's, which has 1.
const WRONG_USAGE: i32 = 2;

/// Runs the command line. Returns the exit status.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.collect();
    let result = match args.split_first() {
        Some((name, flags)) if is_kubelet(name) => {
            kubelet::main(flags.to_vec()).map_err(Failure::Other)
        }
        Some((_, args)) if !args.is_empty() => command(args.to_vec()),
        _ => {
            let _ = io::stderr().write_all(HELP.as_bytes());
            return WRONG_USAGE;
        }
    };
    let (message, status) = match result {
        Ok(status) => return status,
        Err(Failure::Usage(message)) => (message, WRONG_USAGE),
        Err(Failure::Other(message)) => (message, 1),
    };
    columns::tell("steplet", message);
    status
}

fn is_kubelet(name: &OsString) -> bool {
    Path::new(name).file_name().is_some_and(|name| name == "kubelet")
}

fn command(all: Vec<OsString>) -> Result<i32, Failure> {
    let mut args = all.clone().into_iter();
    let first = args.next().unwrap_or_default();
    match first.to_str() {
        Some("run") => run::main(args),
        Some("kubelet") => Ok(kubelet::main(args)?),
        Some("replay") => Ok(replay::main(args)),
        Some("sim") => Ok(sim::main(args)),
        Some("tape") => Ok(tape::main(args)),
        Some("helper") => Ok(helper(args)),
        Some("version") => {
            if let Some(surplus) = args.next() {
                return Err(Failure::Usage(format!("version wants no {}", surplus.display())));
            }
            say(format_args!(
                "steplet {BUILD}, in place of a kubelet of Kubernetes {KUBERNETES_VERSION}\n"
            ));
            Ok(0)
        }
        Some("help" | "--help" | "-h") => help(args.next()),
        Some(flag) if flag.starts_with('-') => Ok(kubelet::main(all)?),
        _ => Err(no_command(&first)),
    }
}

fn no_command(name: &OsString) -> Failure {
    Failure::Usage(format!("there is no command {}; see `steplet help`", name.display()))
}

fn help(about: Option<OsString>) -> Result<i32, Failure> {
    let about = about.unwrap_or_default();
    match about.to_str() {
        Some("run") => say(run::HELP),
        Some("kubelet") => say(flags::help()),
        Some("replay") => say(replay::HELP),
        Some("sim") => say(sim::HELP),
        Some("tape") => say(tape::HELP),
        Some("" | "help" | "version") => say(HELP),
        _ => return Err(no_command(&about)),
    }
    Ok(0)
}

/// A process of the helper pool; started by the agent, never by hand.
fn helper(mut args: impl Iterator<Item = OsString>) -> i32 {
    let mut word = || args.next().and_then(|arg| arg.into_string().ok()).unwrap_or_default();
    let parent = word().parse().ok();
    log::start_as(&word(), &word());
    parent.map_or(2, crate::shell::doors::serve)
}

/// Prints to standard output. Whoever reads there may have gone, as `head` does when it has enough: that is
/// no error, and the exit status tells what it tells.
fn say(text: impl Display) {
    match write!(io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => columns::tell("steplet", error),
        _ => {}
    }
}
