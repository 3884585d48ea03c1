//! Tapes of the simulated world: whole nodes with pods and faults, their cost, and how fast they replay.

use crate::stream::Dir;
use std::path::PathBuf;
use std::time::Instant;
use steplet::shell::tape::reader::Tape;
use steplet::shell::tape::replay::{Notice, Replay, Replayed};
use steplet::shell::tape::{Recorder, Taped, compress_segment};
use steplet_core::Core;
use steplet_core::effect::Effect;
use steplet_core::time::Span;
use steplet_sim::ledger::Ledger;
use steplet_sim::setup::Setup;
use steplet_sim::swarm::{Plan, run};
use steplet_sim::trace::{Moment, Seen, Violation, Witness};
use steplet_sim::world::World;

const SAME: &str = "a core beside the world's does the same";

/// Steps a core of its own beside the world's, and tapes that.
struct Taping {
    dir: PathBuf,
    max_bytes: u64,
    taped: Option<Taped>,
    effects: Vec<Effect>,
}

impl Taping {
    fn new(dir: &Dir, max_bytes: u64) -> Taping {
        Taping { dir: dir.0.clone(), max_bytes, taped: None, effects: vec![] }
    }
}

impl Witness for Taping {
    fn see(&mut self, _: &Ledger, moment: Moment, seen: &Seen<'_>, out: &mut Vec<Violation>) {
        match seen {
            Seen::Started => {
                let core = Core::new();
                let recorder = Recorder::open(&self.dir, self.max_bytes, 0, moment.now, &core);
                self.taped = Some(Taped::new(core, Some(recorder)));
            }
            Seen::Event(event) => {
                let taped = self.taped.as_mut().expect("the agent was started");
                self.effects = taped.step(moment.now, (*event).clone());
                for job in taped.recorder.as_mut().map(Recorder::jobs).unwrap_or_default() {
                    job.run().expect("the disk works");
                }
            }
            Seen::Effects(effects) => {
                let same = effects.iter().map(|(effect, _)| effect).eq(self.effects.iter());
                let at = moment.at;
                let violation = Violation { at, promise: SAME, what: String::new() };
                out.extend((!same).then_some(violation));
            }
            Seen::Ended(status) => {
                let mut taped = self.taped.take().expect("the agent was started");
                if let (Some(_), Some(recorder)) = (status, &mut taped.recorder) {
                    recorder.flush(moment.now);
                }
            }
            Seen::Fact(_) | Seen::Stored(_) | Seen::Change(_) => {}
        }
    }
}

fn replay(dir: &Dir) -> (Replayed, Vec<Notice>) {
    let tape = Tape::open(&dir.0).unwrap();
    let mut notices = Vec::new();
    let mut done = Replayed::default();
    let on_notice = &mut |notice| notices.push(notice);
    let mut replay = Replay { any_build: false, on_step: &mut |_, _| {}, on_notice };
    let difference = replay.run(&tape, &mut done).unwrap();
    assert!(difference.is_none(), "{difference:?}");
    (done, notices)
}

#[test]
fn hours_full_of_faults_replay() {
    for seed in 0..4 {
        let dir = Dir::new(&format!("tape-faults-{seed}"));
        let verdict = run(&Plan::new(seed), Some(Box::new(Taping::new(&dir, 64 << 20))));
        let unlike = verdict.violations.iter().find(|v| v.promise == SAME);
        assert_eq!(unlike, None);
        let (done, notices) = replay(&dir);
        assert_eq!(done.steps, verdict.steps, "{notices:?}");
        assert!(!done.damaged);
    }
}

/// A node whose pods all run, taped from its start for two hours.
fn idle(dir: &Dir, pods: usize) {
    let mut world = World::new(Setup::new(2));
    world.watch_by(Box::new(Taping::new(dir, 64 << 20)));
    for pod in 0..pods {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web-{pod}\n  labels: {{app: web}}\n\
             spec:\n  containers:\n  - name: web\n    image: registry.example/web:1\n"
        );
        world.put_manifest(&format!("web-{pod}.yaml"), manifest);
    }
    world.start_agent();
    world.run_for(Span::from_secs(2 * 3600));
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

/// Compressed bytes of all segments.
fn packed(dir: &Dir) -> u64 {
    for file in dir.files() {
        if file.extension().is_some_and(|extension| extension == "tape") {
            compress_segment(&file).unwrap();
        }
    }
    dir.files().iter().map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn an_idle_day_of_ten_pods_is_below_four_megabytes() {
    let dir = Dir::new("tape-idle-10");
    idle(&dir, 10);
    let plain: u64 = dir.files().iter().map(|file| file.metadata().unwrap().len()).sum();
    let (done, _) = replay(&dir);
    let packed = packed(&dir);
    let day = packed * 12;
    let each = |bytes: u64| bytes as f64 / done.steps as f64;
    println!(
        "10 idle pods: {} steps in 2 h, {:.1} bytes a step, {:.1} compressed, {} KB a day",
        done.steps,
        each(plain),
        each(packed),
        day / 1000
    );
    assert!(day <= 4_000_000, "{day} bytes a day");
}

#[test]
fn an_idle_hour_of_fifty_pods_replays_fast() {
    let dir = Dir::new("tape-idle-50");
    idle(&dir, 50);
    packed(&dir);
    let started = Instant::now();
    let (done, _) = replay(&dir);
    let times = done.simulated.0 as f64 / started.elapsed().as_nanos() as f64;
    println!("50 idle pods: {} steps, replayed at {times:.0} x real time", done.steps);
    // Not optimised, on a busy machine; `make bench` holds the figure of the shipped program.
    assert!(times >= 100.0, "{times:.0} x");
}
