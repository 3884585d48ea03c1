//! Plays `fixtures/scenes/*.scene`, one result a file, and compares each transcript with the `.out` beside it.
//!
//! `UPDATE=1 cargo test --test scenes` writes the transcripts again; what a scene expects must hold all the same.
//! `cargo test --test scenes back-off` plays the scenes whose name contains the word.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use steplet::shell::doors::{Loaded, understand};
use steplet_core::event::Manifest;
use steplet_sim::scene::play;

/// Differing lines shown of one transcript.
const LINES_SHOWN: usize = 40;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let listing = std::env::args().any(|arg| arg == "--list");
    let scenes: Vec<PathBuf> = scenes()
        .into_iter()
        .filter(|path| words.is_empty() || words.iter().any(|word| name(path).contains(word)))
        .collect();
    if listing {
        scenes.iter().for_each(|path| println!("{}: test", name(path)));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} scenes", scenes.len());
    let began = Instant::now();
    let mut failed = 0;
    for path in &scenes {
        let began = Instant::now();
        let problems = run(path);
        let verdict = if problems.is_empty() { "ok" } else { "FAILED" };
        println!("test {} ... {verdict} ({} ms)", name(path), began.elapsed().as_millis());
        problems.iter().for_each(|problem| println!("    {problem}"));
        failed += usize::from(!problems.is_empty());
    }
    let passed = scenes.len() - failed;
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let millis = began.elapsed().as_millis();
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; in {millis} ms\n");
    if failed == 0 && !(scenes.is_empty() && words.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}

fn scenes() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/scenes");
    let entries = fs::read_dir(&dir).expect("fixtures/scenes");
    let paths = entries.map(|entry| entry.expect("an entry of fixtures/scenes").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "scene")).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The agent's own door reads the manifests of a scene.
fn reader(name: &str, bytes: &[u8]) -> Manifest {
    match understand(name, bytes, None) {
        Loaded::New(manifest) => *manifest,
        other => panic!("{name} is not new but {other:?}"),
    }
}

/// Plays one scene; what is wrong with it.
fn run(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a scene");
    let played = match play(&text, reader) {
        Ok(played) => played,
        Err(mistake) => return vec![format!("line {}: {}", mistake.line, mistake.what)],
    };
    let mut problems = played.failures;
    let out = path.with_extension("out");
    if std::env::var("UPDATE").is_ok_and(|value| value == "1") {
        fs::write(&out, &played.transcript).expect("fixtures/scenes can be written");
        return problems;
    }
    let golden = fs::read_to_string(&out).unwrap_or_default();
    if golden != played.transcript {
        problems.push(format!("the transcript differs from {}.out:", name(path)));
        problems.extend(diff(&golden, &played.transcript));
        problems.push("UPDATE=1 writes it again, if this is right".into());
    }
    problems
}

/// Lines that only one of the texts has, in order, by the longest common subsequence.
fn diff(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut longest = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            longest[i][j] = match old[i] == new[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            lines.push(format!("- {}", old[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", new[j]));
            j += 1;
        }
    }
    if lines.len() > LINES_SHOWN {
        let more = lines.len() - LINES_SHOWN;
        lines.truncate(LINES_SHOWN);
        lines.push(format!("... and {more} lines more"));
    }
    lines
}
