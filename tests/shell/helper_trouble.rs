//! The helper pool when its jobs hang, its processes die, and nothing is to be done.

use crate::world::{World, fault, fetch, serve};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};
use steplet_core::effect::{Call, HelperOp};
use steplet_core::event::{Event, FaultKind, Outcome};
use steplet_core::ids::Token;

/// The helper processes that this thread, and so this test, has started and that have not ended.
fn helpers() -> Vec<i32> {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    let children = children.split_whitespace().map(|pid| pid.parse::<i32>().unwrap());
    children.filter(|pid| name(*pid).starts_with("steplet-helper")).collect()
}

fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

#[test]
fn hung_killed_and_idle_helpers() {
    let url = serve(|_| String::new());
    let mut world = World::new("helper_hung");
    // One is killed while it works: its job ends, and the pool goes on.
    let token = fetch(&mut world, format!("{url}/killed"));
    world.events_for(Duration::from_millis(500));
    let [victim] = helpers()[..] else { panic!("one job, one process: {:?}", helpers()) };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(victim), nix::sys::signal::SIGKILL).unwrap();
    let gone = fault(world.outcome(token));
    assert!(gone.message.contains("the helper process ended"), "{gone:?}");
    // More jobs that hang than there are processes, and one that does not: it has a process kept for it.
    let hung: Vec<Token> = (0..8).map(|n| fetch(&mut world, format!("{url}/{n}"))).collect();
    let path = world.dir().join("gone").to_str().unwrap().to_owned();
    let waiting = world.call(Call::Helper(HelperOp::RemoveTree { path }));
    let started = Instant::now();
    assert!(matches!(world.outcome(waiting), Outcome::Helper(Ok(_))));
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    world.cancel(hung[0]);
    let mut ended = BTreeSet::new();
    while ended.len() < 7 {
        match world.event() {
            Event::Done { token, outcome } => {
                assert_eq!(fault(outcome).kind, FaultKind::TimedOut);
                assert!(ended.insert(token), "ended twice");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!ended.contains(&hung[0]), "it was cancelled");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    world.events_for(Duration::from_millis(100));
    assert_eq!(helpers().len(), 6);
    // Nothing to do for ten seconds: they end, and leave no zombie.
    world.events_for(Duration::from_millis(11_500));
    world.turns = 0;
    world.events_for(Duration::from_secs(1));
    assert!(world.turns <= 3, "{} turns with nothing to do", world.turns);
    assert_eq!(helpers(), Vec::<i32>::new());
}
