//! What a crash leaves behind, and what the next start makes of it.

use crate::world::Scratch;
use std::path::Path;
use std::process::Command;
use steplet::shell::crash;
use steplet_core::event::SetAside;

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
