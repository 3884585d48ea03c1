//! What a crash leaves behind, and what the next start makes of it.

use crate::world::{SOON, Scratch};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use steplet::shell::crash;
use steplet::shell::doors::Outside;
use steplet::shell::reactor::Reactor;
use steplet::shell::vault::Vault;
use steplet_core::event::{Boot, Machine, SetAside};
use steplet_core::settings::Settings;

/// Ends in a panic when it is started by the test below, as another process.
#[test]
fn crashes_on_demand() {
    let Some(dir) = std::env::var_os("STEPLET_CRASH_IN") else { return };
    crash::watch(Path::new(&dir), "boot-1");
    crash::suspect("fine.yaml", 1, || ());
    crash::suspect("bad.yaml", 7, || panic!("this manifest is too much"));
}

fn crash_in(dir: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["crash::crashes_on_demand", "--exact", "--nocapture"])
        .env("STEPLET_CRASH_IN", dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("this manifest is too much"), "{said}");
    assert!(said.contains("the crash is recorded in "), "{said}");
}

#[test]
fn the_third_crash_of_a_manifest_sets_it_aside() {
    let scratch = Scratch::new("crash");
    let dir = scratch.path().join("crashes");
    for _ in 0..2 {
        crash_in(&dir);
        assert_eq!(crash::set_aside(&dir), []);
    }
    crash_in(&dir);
    let want = [SetAside { name: "bad.yaml".into(), digest: 7 }];
    assert_eq!(crash::set_aside(&dir), want);
    let record = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let record = std::fs::read_to_string(record).unwrap();
    for part in ["bad.yaml", "this manifest is too much", "tests/shell/crash.rs", "boot-1"] {
        assert!(record.contains(part), "{part} is not in {record}");
    }
}

#[test]
fn a_crash_that_cannot_be_recorded_is_still_told() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["crash::crashes_on_demand", "--exact", "--nocapture"])
        .env("STEPLET_CRASH_IN", "/proc/nowhere")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("this manifest is too much"), "{said}");
    assert!(said.contains("the crash could not be recorded"), "{said}");
}

/// Runs the loop until the pod of `good.yaml` is wanted, which it always is, and in the end that of
/// `bad.yaml`, with which the process ends as if a step had met a bug.
#[test]
fn runs_a_loop_with_a_bad_pod_on_demand() {
    let Some(dir) = std::env::var_os("STEPLET_LOOP_IN") else { return };
    let dir = Path::new(&dir);
    let (crashes, manifests) = (dir.join("crashes"), dir.join("manifests"));
    let set_aside = crash::set_aside(&crashes);
    crash::watch(&crashes, "boot-1");
    let outside =
        Outside { set_aside: set_aside.clone(), ..Outside::of(dir.join("no-runtime.sock")) };
    let mut reactor = Reactor::new(outside, Vault::default()).unwrap();
    // It looks on after the step, when the manifest is no longer what is worked on.
    reactor.watch(Box::new(|core, _| {
        let wanted = |name| core.facts().sources.pods().values().any(|p| &*p.metadata.name == name);
        assert!(!wanted("bad-n1"), "planted");
    }));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let settings = Settings {
        node_name: "n1".into(),
        root_dir: path(dir),
        pod_logs_dir: path(&dir.join("logs")),
        static_pod_path: path(&manifests),
        ..Settings::default()
    };
    reactor.start(Boot { seed: 1, settings, machine: Machine::default(), set_aside, kept: vec![] });
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < SOON, "the pods are not wanted");
        reactor.turn().unwrap();
        let sources = &reactor.core().facts().sources;
        let told = |name: &str| sources.problems().contains_key(name);
        let read = |name: &str| sources.pods().values().any(|p| &*p.metadata.name == name);
        if read("good-n1") && !manifests.join("bad.yaml").exists() {
            write_pod(&manifests, "bad");
        } else if read("good-n1") && told("bad.yaml") {
            return;
        }
    }
}

fn write_pod(dir: &Path, name: &str) {
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n\
         spec: {{containers: [{{name: a, image: 'busybox:1'}}]}}\n"
    );
    fs::write(dir.join(format!(".{name}")), pod).unwrap();
    fs::rename(dir.join(format!(".{name}")), dir.join(format!("{name}.yaml"))).unwrap();
}

#[test]
fn a_pod_that_brings_the_loop_down_later_is_set_aside() {
    let scratch = Scratch::new("crash_loop");
    let manifests = scratch.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    write_pod(&manifests, "good");
    for run in 1..=4 {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["crash::runs_a_loop_with_a_bad_pod_on_demand", "--exact", "--nocapture"])
            .env("STEPLET_LOOP_IN", scratch.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), run == 4, "run {run}: {said}");
        assert_eq!(said.contains("planted"), run < 4, "run {run}: {said}");
    }
}
