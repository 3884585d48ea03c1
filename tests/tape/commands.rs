//! The commands that read tapes, as a user calls them.

use crate::stream::{Dir, Stream};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use steplet::shell::tape::json::hex;

struct Said {
    status: i32,
    out: String,
    err: String,
}

fn steplet(args: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_steplet")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said {
        status: output.status.code().unwrap(),
        out: text(output.stdout),
        // Long messages are folded.
        err: text(output.stderr).replace("\n    ", " "),
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A tape of a few segments.
fn taped(dir: &Dir, steps: u64, seed: u64) -> Stream {
    let mut stream = Stream::start(&dir.0, 1 << 20, seed);
    while stream.taped.steps() < steps {
        stream.next();
        stream.helpers();
    }
    stream.finish()
}

#[test]
fn a_tape_replays_to_the_same_chain_in_another_process() {
    let dir = Dir::new("replay-equal");
    let stream = taped(&dir, 6_000, 1);
    let said = steplet(&["replay", path(&dir.0)]);
    let last = said.out.lines().last().unwrap();
    let chain = hex(&stream.taped.chain().0);
    assert!(last.starts_with("replayed 6000 steps, ") && last.ends_with(&chain), "{last}");
    assert!(last.contains("x real time, chain "), "{last}");
    assert_eq!((said.status, said.err.as_str()), (0, ""));
}

#[test]
fn an_edited_tape_is_noticed() {
    let dir = Dir::new("replay-edited");
    taped(&dir, 600, 2);
    let file = dir.files().remove(0);
    let tape = path(&file);
    let shown = steplet(&["tape", "show", tape, "--json"]).out;
    let request = shown.lines().find(|line| line.contains("/healthz")).unwrap();
    let request: serde_json::Value = serde_json::from_str(request).unwrap();
    let step = request["step"].to_string();
    let edit = ["tape", "edit", tape, "--step", &step, "--set"];
    let said = steplet(&[&edit[..], &["request.path=/nowhere"]].concat());
    assert_eq!(said.status, 0, "{}", said.err);
    let copy = said.out.trim();
    assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o600);

    let said = steplet(&["replay", copy]);
    assert_eq!(said.status, 3, "{}", said.err);
    assert!(said.out.lines().all(|line| line.chars().count() <= 100 || line.contains("chain")));
    assert!(said.out.starts_with(&format!("step {step}, ")), "{}", said.out);
    assert!(said.out.contains("\"status\": 200") && said.out.contains("\"status\": 404"));
    assert!(said.out.lines().last().unwrap().starts_with("replayed "));
    // The copy is well-framed, and the original is as it was.
    assert_eq!(steplet(&["tape", "stat", copy]).status, 0);
    assert_eq!(steplet(&["replay", tape]).status, 0);

    // A change without another effect is noticed too.
    let said = steplet(&[&edit[..], &["request.loopback=false", "-o", copy]].concat());
    assert!(said.status == 2 && said.err.contains("exists"), "{}", said.err);
    fs::remove_file(copy).unwrap();
    let said = steplet(&[&edit[..], &["request.loopback=false", "-o", copy]].concat());
    assert_eq!(said.status, 0, "{}", said.err);
    let said = steplet(&["replay", copy]);
    assert_eq!(said.status, 3);
    assert!(said.out.contains("not the one that was recorded"), "{}", said.out);
}

#[test]
fn a_wrong_edit_says_what_is_there() {
    let dir = Dir::new("replay-wrong");
    taped(&dir, 50, 3);
    let files = dir.files().len();
    for (step, set, want) in [
        ("0", "boot.settings.no_such=1", "there is no \"no_such\" here, only: "),
        ("0", "boot.seed=many", "invalid type"),
        ("0", "boot.seed", "PATH=VALUE is wanted"),
        ("5000", "boot.seed=1", "the tape has the steps 0 up to 50"),
    ] {
        let file = dir.files().remove(0);
        let said = steplet(&["tape", "edit", path(&file), "--step", step, "--set", set]);
        assert!(said.status == 2 && said.err.contains(want), "{set}: {}", said.err);
    }
    let said = steplet(&["tape", "edit", path(&dir.0), "--step", "0", "--set", "boot.seed=1"]);
    assert!(said.status == 2 && said.err.contains("-o FILE is wanted"), "{}", said.err);
    assert_eq!(dir.files().len(), files, "a failed edit leaves nothing behind");
}

#[test]
fn what_cannot_be_read_is_told() {
    let dir = Dir::new("replay-unread");
    taped(&dir, 300, 4);
    let file = dir.files().remove(0);
    let none = dir.0.join("none");
    let said = steplet(&["replay", path(&none)]);
    assert_eq!(said.status, 4);
    assert!(said.err.contains("none: No such file"), "{}", said.err);

    // The end cut off: what a power cut leaves.
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 3]).unwrap();
    let said = steplet(&["replay", path(&file)]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.err.contains("the file ends inside a frame; the last "), "{}", said.err);
    assert!(said.err.contains(&format!("of {} bytes are not read", whole.len() - 3)));

    // A byte gone bad in the middle: the rest is lost, and that is not success.
    let mut bad = whole.clone();
    let middle = bad.len() * 3 / 4;
    bad[middle] ^= 1;
    fs::write(&file, &bad).unwrap();
    for command in [&["replay"][..], &["tape", "show"], &["tape", "stat"]] {
        let said = steplet(&[command, &[path(&file)]].concat());
        assert_eq!(said.status, 4, "{command:?}");
        assert!(said.err.contains("checksum is wrong"), "{command:?}: {}", said.err);
        assert!(!said.out.is_empty(), "{command:?} shows what is whole");
    }
    fs::write(&file, "no tape").unwrap();
    let said = steplet(&["replay", path(&file)]);
    assert_eq!(said.status, 4);
    assert!(said.err.contains("not a tape"), "{}", said.err);
    let said = steplet(&["tape", "stat", path(&file)]);
    assert_eq!((said.status, said.out.as_str()), (4, ""));
    assert!(said.err.contains("not a tape"), "{}", said.err);
}

#[test]
fn a_tape_shows_a_line_a_step() {
    let dir = Dir::new("replay-show");
    taped(&dir, 40, 5);
    let tape = path(&dir.0);
    let said = steplet(&["tape", "show", tape]);
    assert_eq!((said.status, said.out.lines().count()), (0, 41));
    assert!(said.out.starts_with("-- 00000001.tape: run of 2025-10-09T"), "{}", said.out);
    assert!(said.out.contains("Boot of node node-a: 4 cpus, 8192 MiB"), "{}", said.out);
    assert!(said.out.contains("GET /healthz?pretty="), "{}", said.out);
    assert!(said.out.contains("=>  answer 200 to request"), "{}", said.out);
    let said = steplet(&["tape", "show", tape, "--from", "10", "--to", "19"]);
    assert_eq!(said.out.lines().count(), 11);
    let said = steplet(&["tape", "show", tape, "--step", "0"]);
    assert!(said.out.contains("\"node_name\": \"node-a\""), "{}", said.out);
    assert_eq!(steplet(&["tape", "show", tape, "--step", "99"]).status, 4);
    assert_eq!(steplet(&["tape", "show"]).status, 2);

    let said = steplet(&["tape", "stat", tape]);
    assert_eq!(said.status, 0);
    for want in [
        "runs       1",
        "segments   1, 0 of them",
        "steps      40, from 0 to 39",
        "stamp",
        "Request",
    ] {
        assert!(said.out.contains(want), "{want}: {}", said.out);
    }
}

#[test]
fn all_of_a_tape_can_be_asked_for() {
    let dir = Dir::new("replay-ask");
    taped(&dir, 40, 6);
    let tape = path(&dir.0);
    for command in ["show", "stat", "edit"] {
        let said = steplet(&["tape", command, "--help"]);
        assert!(said.status == 0 && said.out.contains("--why"), "{command}");
        assert!(said.out.lines().all(|line| line.chars().count() <= 100), "{command}");
    }
    let said = steplet(&["tape", "show", tape, "--utc", "--why"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.out.lines().nth(1).unwrap().contains(" 2025-10-09T"), "{}", said.out);
    let all = said.out.lines().filter(|line| line.contains("GET /healthz?")).count();
    let said = steplet(&["tape", "show", tape, "--pod", "healthz"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.out.lines().skip(1).all(|line| line.contains("healthz")), "{}", said.out);
    assert!(all > 0 && said.out.lines().count() > all, "{}", said.out);
    assert_eq!(steplet(&["tape", "show", tape, "--pod", "no-such"]).status, 4);
}

/// As `steplet sim --transcript | head` has it.
#[test]
fn a_reader_that_went_away_is_no_error() {
    for args in [&["kubelet", "--help"][..], &["sim", "--transcript"], &["version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_steplet")).args(args).stdout(writer).output();
        let output = output.unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]), "{args:?}");
    }
}
