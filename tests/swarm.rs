//! The swarm: simulated hours full of faults, judged by checkers that share no code with the agent.
//!
//! Every seed runs twice, in two processes; its two chains must be equal. `STEPLET_SEED=7 cargo test --test
//! swarm -- --nocapture` prints the transcript of one seed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Instant;
use steplet_sim::swarm::{Plan, Verdict, run};
use steplet_sim::transcript::Transcript;

const SEEDS: u64 = 200;
/// Set in the processes that this test starts: the one of two that this is.
const ROLE: &str = "STEPLET_SWARM_ROLE";

#[test]
fn two_hundred_seeds_repeat_themselves_and_break_no_promise() {
    if let Ok(seed) = std::env::var("STEPLET_SEED") {
        return one_seed(seed.parse().expect("STEPLET_SEED is a number"));
    }
    if std::env::var(ROLE).is_ok() {
        return all_seeds();
    }
    let begun = Instant::now();
    let twins = [start_twin(1), start_twin(2)].map(|child| std::thread::spawn(|| read(child)));
    let [one, two] = twins.map(|twin| twin.join().expect("a reader ends"));
    let took = begun.elapsed();
    report(&one, took.as_secs_f64());
    for seed in 0..SEEDS {
        let (one, two) = (one.seeds.get(&seed), two.seeds.get(&seed));
        assert!(one.is_some(), "seed {seed} did not end: STEPLET_SEED={seed} shows it");
        assert_eq!(one, two, "seed {seed} went two ways");
    }
    assert!(one.broken_seeds.is_empty(), "seeds that broke a promise: {:?}", one.broken_seeds);
    let idle: Vec<&String> =
        one.fired.iter().filter(|(_, count)| **count == 0).map(|(kind, _)| kind).collect();
    assert!(idle.is_empty(), "faults that never struck: {idle:?}");
    assert!(one.ended && two.ended, "a process of the swarm failed");
}

/// What one process said of all seeds.
#[derive(Default)]
struct Twin {
    /// The last line of each seed: steps and chain.
    seeds: BTreeMap<u64, String>,
    fired: BTreeMap<String, u64>,
    broken: Vec<String>,
    broken_seeds: BTreeSet<u64>,
    ended: bool,
}

fn start_twin(role: u32) -> Child {
    let this = std::env::current_exe().expect("a test knows itself");
    Command::new(this)
        .args(["two_hundred_seeds", "--nocapture", "--test-threads=1"])
        .env(ROLE, role.to_string())
        .stdout(Stdio::piped())
        .stderr(if role == 1 { Stdio::inherit() } else { Stdio::null() })
        .spawn()
        .expect("a second process")
}

fn read(mut child: Child) -> Twin {
    let mut twin = Twin::default();
    let output = child.stdout.take().expect("it is piped");
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let mut words = line.splitn(3, '\t');
        match (words.next(), words.next(), words.next()) {
            (Some("seed"), Some(seed), Some(rest)) => {
                twin.seeds.insert(seed.parse().expect("a number"), rest.to_owned());
            }
            (Some("fired"), Some(count), Some(kind)) => {
                let count: u64 = count.parse().expect("a number");
                *twin.fired.entry(kind.to_owned()).or_default() += count;
            }
            (Some("broken"), Some(seed), Some(what)) => {
                twin.broken_seeds.insert(seed.parse().expect("a number"));
                twin.broken.push(format!("seed {seed}: {what}"));
            }
            _ => {}
        }
    }
    twin.ended = child.wait().is_ok_and(|status| status.success());
    twin
}

fn report(twin: &Twin, seconds: f64) {
    let mut out = std::io::stdout().lock();
    let speed = twin.seeds.len() as f64 * 3_600.0 / seconds;
    let _ = writeln!(out, "{} seeds in {seconds:.0} s: {speed:.0} x real time", twin.seeds.len());
    for (kind, count) in &twin.fired {
        let _ = writeln!(out, "{count:>8}  {kind}");
    }
    for broken in twin.broken.iter().take(30) {
        let _ = writeln!(out, "{broken}");
    }
}

/// One of the two processes: a line a seed, and what was seen.
fn all_seeds() {
    println!();
    for seed in 0..SEEDS {
        let ran = std::panic::catch_unwind(|| run(&Plan::new(seed), None));
        let Ok(verdict) = ran else {
            println!("broken\t{seed}\tthe agent panicked");
            println!("seed\t{seed}\tpanicked");
            continue;
        };
        for violation in &verdict.violations {
            let at = violation.at.0 as f64 / 1e9;
            println!("broken\t{seed}\t{at:.1}s {}: {}", violation.promise, violation.what);
        }
        for (kind, count) in &verdict.fired {
            println!("fired\t{count}\t{kind}");
        }
        println!("seed\t{seed}\tsteps {} chain {}", verdict.steps, verdict.chain);
    }
}

fn one_seed(seed: u64) {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let begun = Instant::now();
    let witness = Transcript::new(Rc::clone(&lines));
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(&Plan::new(seed), Some(Box::new(witness)))
    }));
    let took = begun.elapsed();
    for line in lines.borrow().iter() {
        println!("{line}");
    }
    let Verdict { steps, chain, violations, .. } = ran.expect("the agent panicked");
    println!("seed {seed} steps {steps} chain {chain} violations {}", violations.len());
    println!("{:.0} x real time", 3_600.0 / took.as_secs_f64());
    for violation in &violations {
        println!("{}: {}", violation.promise, violation.what);
    }
    assert!(violations.is_empty());
}
