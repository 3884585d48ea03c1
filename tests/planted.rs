//! Eleven faults planted in the core, one at a time: each must break the promise that it is meant to break, in a seed
//! that keeps this promise without it. So the judges are judged.
//!
//! Each fault has a process of its own: it is chosen for a whole process, and it may end it.

use std::process::{Command, Stdio};
use std::thread;
use steplet_core::planted::{NAMES, plant};
use steplet_sim::swarm::{Plan, run};

/// Set in the processes that this test starts: the number of the fault.
const ROLE: &str = "STEPLET_PLANTED";
const SEEDS_MOST: u64 = 40;

/// A part of what is said of the promise that each fault breaks, by number from 1.
const BREAKS: [&str; NAMES.len()] = [
    "is not running",
    "attempts only rise",
    "StopContainer gives the pod's grace",
    "at most one live container",
    "nothing is started for a pod after its end",
    "a failing container is restarted after",
    "a healthy container",
    "its cgroup",
    "StopContainer gives the pod's grace",
    "a core restored from its snapshot",
    "gets only 2 s",
];

#[test]
fn every_planted_fault_breaks_its_promise() {
    if let Ok(number) = std::env::var(ROLE) {
        return search(number.parse().expect("a number"));
    }
    // Two at a time: the swarm's own test may be running beside this one.
    let halves = [1, 2].map(|first| {
        thread::spawn(move || {
            (first..=NAMES.len()).step_by(2).map(|n| (n, found(n))).collect::<Vec<_>>()
        })
    });
    let mut results: Vec<(usize, Option<String>)> =
        halves.into_iter().flat_map(|half| half.join().expect("a half ends")).collect();
    results.sort();
    for (number, found) in &results {
        let found = found.as_deref().unwrap_or("NOT FOUND");
        println!("{number:>3}  {}: {found}", NAMES[number - 1]);
    }
    let missed: Vec<usize> =
        results.iter().filter(|(_, found)| found.is_none()).map(|(number, _)| *number).collect();
    assert!(missed.is_empty(), "the judges did not find the faults {missed:?}");
}

/// What a process of its own says of a fault.
fn found(number: usize) -> Option<String> {
    let this = std::env::current_exe().expect("a test knows itself");
    let output = Command::new(this)
        .args(["every_planted_fault", "--nocapture", "--test-threads=1"])
        .env(ROLE, number.to_string())
        .stderr(Stdio::null())
        .output()
        .expect("a process for one fault");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("found\t").map(str::to_owned))
}

/// Tries seeds until the fault breaks its promise where the sound core keeps it.
fn search(number: u8) {
    println!();
    let wanted = BREAKS[usize::from(number) - 1];
    let broken = |planted: u8, seed: u64| {
        plant(planted);
        let violations = run(&Plan::new(seed), None).violations;
        violations.into_iter().find(|v| v.promise.contains(wanted) || v.what.contains(wanted))
    };
    for seed in 0..SEEDS_MOST {
        if let Some(violation) = broken(number, seed)
            && broken(0, seed).is_none()
        {
            return println!("found\tseed {seed}, {}", violation.what);
        }
    }
}
