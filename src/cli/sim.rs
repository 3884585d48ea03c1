//! `steplet sim`: hours of a simulated node in seconds, with faults and judges.

use super::columns::tell;
use crate::cli::say;
use lexopt::{Arg, Parser, ValueExt};
use std::cell::RefCell;
use std::ffi::OsString;
use std::rc::Rc;
use steplet_core::time::Span;
use steplet_sim::swarm::{Plan, Verdict, run};
use steplet_sim::transcript::Transcript;

pub const HELP: &str = "\
Runs a node in a simulated world: its runtime, disk and clocks misbehave, and judges watch the
agent.

    steplet sim --seed N

A seed gives the same run each time, so there is no tape. The last line says how many steps it took,
their chained hash, and how many promises were broken; the exit status is 1 when one was, and 2 when
the command line is wrong.

  --seed N         which run (default 0)
  --hours H        how long, in simulated hours (default 1)
  --pods P         how many pods (default 10)
  --faults WHICH   all, or none (default all)
  --transcript     print what happens: what people do, what the agent asks for, what comes of it
";

const BROKEN: i32 = 1;
const WRONG_USAGE: i32 = 2;
const HOURS_MOST: u64 = 24 * 366;
const PODS_MOST: usize = 500;

#[derive(Debug)]
struct Options {
    plan: Plan,
    transcript: bool,
}

/// Runs the command; returns the exit status.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    match parse(args) {
        Ok(Some(options)) => simulate(&options),
        Ok(None) => {
            say(HELP);
            0
        }
        Err(error) => {
            tell("steplet sim", format_args!("{error}; see `steplet help sim`"));
            WRONG_USAGE
        }
    }
}

/// None: help is wanted.
fn parse(args: impl Iterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    let mut args = Parser::from_args(args);
    let mut options = Options { plan: Plan::new(0), transcript: false };
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("seed") => options.plan.seed = args.value()?.parse()?,
            Arg::Long("hours") => {
                let hours = args.value()?.parse_with(|text| within(text, 1, HOURS_MOST))?;
                options.plan.span = Span::from_secs(hours * 3_600);
            }
            Arg::Long("pods") => {
                options.plan.pods = args.value()?.parse_with(|text| within(text, 1, PODS_MOST))?;
            }
            Arg::Long("faults") => match args.value()?.to_str() {
                Some("all") => options.plan.faults = true,
                Some("none") => options.plan.faults = false,
                _ => return Err("--faults is all or none".into()),
            },
            Arg::Long("transcript") => options.transcript = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            arg => return Err(arg.unexpected()),
        }
    }
    Ok(Some(options))
}

fn within<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    let amount = text.parse().ok().filter(|amount| (&least..=&most).contains(&amount));
    amount.ok_or_else(|| format!("it is a number from {least} to {most}"))
}

fn simulate(options: &Options) -> i32 {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let witness = Transcript::new(Rc::clone(&lines));
    let verdict = match options.transcript {
        true => run(&options.plan, Some(Box::new(witness))),
        false => run(&options.plan, None),
    };
    lines.borrow().iter().for_each(|line| say(format_args!("{line}\n")));
    for violation in &verdict.violations {
        let at = violation.at.0 as f64 / 1e9;
        let (promise, what) = (&violation.promise, &violation.what);
        say(format_args!("at {at:.1}s: {promise}: {what}\n"));
    }
    say(format_args!("{}\n", last_line(options.plan.seed, &verdict)));
    if verdict.violations.is_empty() { 0 } else { BROKEN }
}

fn last_line(seed: u64, verdict: &Verdict) -> String {
    let Verdict { steps, chain, violations, .. } = verdict;
    format!("seed {seed} steps {steps} chain {chain} violations {}", violations.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_and_bounded() {
        let options = parsed("--seed 7 --hours 3 --pods 12 --faults none").expect("they are right");
        let plan = options.expect("no help is wanted").plan;
        assert_eq!((plan.seed, plan.span, plan.pods), (7, Span::from_secs(10_800), 12));
        assert!(!plan.faults);
        assert!(parsed("--help").is_ok_and(|options| options.is_none()));
        for wrong in ["--hours 0", "--hours x", "--pods 501", "--faults some", "--sede 1", "7"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_line_is_for_machines() {
        let plan = Plan { span: Span::from_secs(600), faults: false, ..Plan::new(1) };
        let line = last_line(1, &run(&plan, None));
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(
            [words[0], words[2], words[4], words[6]],
            ["seed", "steps", "chain", "violations"]
        );
        assert_eq!((words.len(), words[5].len()), (8, 64));
        assert_eq!(line, last_line(1, &run(&plan, None)));
    }
}
