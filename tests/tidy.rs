//! What compilers do not see: sizes, headers, names, bans and dead fixtures (src/STYLE.md).

use std::fs;
use std::path::{Path, PathBuf};

/// Files that a machine writes.
const GENERATED: [&str; 2] = ["src/api/cri.rs", "src/shell/tape/proto.rs"];
/// Folders that are not the project's text.
const LEFT_OUT: [&str; 3] = ["target", ".git", "__pycache__"];
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const FILES_A_FOLDER_MAX: usize = 14;

fn repo() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder, by path from the repository.
fn files(below: &str) -> Vec<String> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if !path.is_dir() {
                into.push(path);
            } else if !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
                walk(&path, into);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&repo().join(below), &mut paths);
    paths.sort();
    let name = |path: PathBuf| {
        path.strip_prefix(repo()).expect("below the repository").to_string_lossy().into_owned()
    };
    paths.into_iter().map(name).collect()
}

/// All Rust files below a folder that people write, and their text.
fn rust_files(below: &str) -> Vec<(String, String)> {
    let names = files(below).into_iter().filter(|name| name.ends_with(".rs"));
    let names = names.filter(|name| !GENERATED.contains(&name.as_str()));
    let read = |name: &str| fs::read_to_string(repo().join(name)).expect("a Rust file");
    names.map(|name| (name.clone(), read(&name))).collect()
}

/// The text before the tests at the foot of a file.
fn code(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn files_are_not_too_long() {
    let all = rust_files(".");
    assert!(all.len() > 50, "the walk finds the tree");
    let long = all.iter().map(|(name, text)| (name, code(text).lines().count()));
    let long = long.filter(|(_, lines)| *lines > FILE_LINES_MAX);
    let long: Vec<_> = long.map(|(name, lines)| format!("{name}: {lines} lines")).collect();
    assert_none("split the pure part from the stateful rest", &long);
}

#[test]
fn functions_are_not_too_long() {
    let mut long = Vec::new();
    for (name, text) in rust_files("src").iter().chain(&rust_files("sim")) {
        let mut open: Option<(usize, usize, &str)> = None;
        for (number, line) in code(text).lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let head = line.trim_start();
            let starts = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "const fn "];
            if open.is_none() && starts.iter().any(|s| head.starts_with(s)) {
                open = Some((number, indent, head));
            }
            let Some((first, at, what)) = open else { continue };
            let ends =
                indent == at && (head == "}" || (number == first && line.ends_with(['}', ';'])));
            if ends || (indent == at && number > first && head.ends_with(';')) {
                let lines = number - first + 1;
                // The one big match of the wiring is exempt.
                if lines > FUNCTION_LINES_MAX && !name.ends_with("route.rs") {
                    long.push(format!("{name}:{}: {lines} lines: {what}", first + 1));
                }
                open = None;
            }
        }
    }
    assert_none("cut these functions", &long);
}

#[test]
fn folders_can_be_taken_in_at_a_glance() {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for (name, _) in rust_files("src").iter().chain(&rust_files("sim")) {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        *counts.entry(folder.into()).or_default() += 1;
    }
    // The core's own folder holds the seams, one small file each: src/ARCHITECTURE.md, "The core".
    let exempt = ["src/core"];
    let full = counts.iter().filter(|(folder, count)| {
        **count > FILES_A_FOLDER_MAX && !exempt.contains(&folder.as_str())
    });
    let full: Vec<_> = full.map(|(folder, count)| format!("{folder}: {count} files")).collect();
    assert_none("fold these folders", &full);
}

#[test]
fn no_drawer_for_odds_and_ends() {
    let bad = ["util.rs", "utils.rs", "common.rs", "types.rs", "helpers.rs", "misc.rs"];
    let found = rust_files(".").into_iter().map(|(name, _)| name);
    let found: Vec<_> =
        found.filter(|n| bad.iter().any(|b| n.rsplit('/').next() == Some(b))).collect();
    assert_none("name these files by what they do", &found);
}

#[test]
fn manager_files_open_with_the_same_header() {
    let pure = ["mod.rs", "plan.rs", "view.rs", "crashes.rs", "policy.rs", "requests.rs"];
    let mut bad = Vec::new();
    for (name, text) in rust_files("src/core/managers") {
        // A manager has state that is stepped by notes, answers or ticks.
        let stepped =
            ["fn on_note(", "fn on_done(", "fn on_tick("].iter().any(|f| text.contains(f));
        if !stepped || pure.iter().any(|p| name.ends_with(&format!("/{p}"))) {
            continue;
        }
        let head: String = text.lines().take_while(|l| l.starts_with("//!")).collect();
        for key in ["Upstream:", "Owns:", "Publishes:", "Hears:", "Says:", "Asks:", "Never:"] {
            if !head.contains(key) {
                bad.push(format!("{name}: no `{key}`"));
            }
        }
    }
    assert_none("complete the headers", &bad);
}

#[test]
fn rooms_hold_nothing_that_would_break_a_replay() {
    // no_std keeps out most; these would still compile.
    let bans = [
        ("f32", "floats differ between machines"),
        ("f64", "floats differ between machines"),
        ("HashMap", "its order is random"),
        ("HashSet", "its order is random"),
        ("type_name", "it is not stable"),
        ("std::", "the room is no_std"),
        ("thread_local", "state belongs into the core"),
        ("static mut", "state belongs into the core"),
    ];
    let mut bad = Vec::new();
    for (name, text) in rust_files("src/core").iter().chain(&rust_files("src/api")) {
        if name.contains("/examples/") || name.contains("/tests/") {
            continue;
        }
        for (number, line) in code(text).lines().enumerate() {
            let line = line.split("//").next().unwrap_or("");
            for (word, why) in bans.iter().filter(|(word, _)| has_word(line, word)) {
                // Metrics are printed as floats, and a JSON number may arrive as one.
                let float = word.starts_with('f');
                if !(float && (name.ends_with("metrics.rs") || line.contains("visit_f64"))) {
                    bad.push(format!("{name}:{}: {word}: {why}", number + 1));
                }
            }
            let statics = line.trim_start().trim_start_matches("pub ");
            if statics.starts_with("static ") && !name.ends_with("planted.rs") {
                bad.push(format!("{name}:{}: a static: state belongs into the core", number + 1));
            }
        }
    }
    assert_none("these break a replay", &bad);
}

#[test]
fn protocols_touch_nothing_outside() {
    // Bytes come in and go out: what a protocol does must not depend on where it runs, or when.
    let bans = ["std::net", "std::fs", "std::os", "std::env", "std::process", "std::thread"];
    let clocks = ["Instant", "SystemTime", "UnixTime::now"];
    let mut bad = Vec::new();
    for (name, text) in rust_files("src/wire") {
        for (number, line) in code(&text).lines().enumerate() {
            let line = line.split("//").next().unwrap_or("");
            if bans.iter().chain(&clocks).any(|ban| has_word(line, ban)) {
                bad.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none("the doors do this", &bad);
}

/// Whether `word` stands in the line, not as a part of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let ends_open = word.ends_with(':') || !part(line[at + word.len()..].chars().next());
        !part(line[..at].chars().next_back()) && ends_open
    })
}

#[test]
fn the_agent_starts_no_threads() {
    let mut bad = Vec::new();
    for (name, text) in rust_files("src") {
        for (number, line) in code(&text).lines().enumerate() {
            if ["thread::spawn", "thread::Builder", "rayon", "tokio::spawn", "tokio::runtime"]
                .iter()
                .any(|ban| line.contains(ban))
            {
                bad.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none("one thread", &bad);
}

#[test]
fn nothing_is_left_half_done() {
    let mut bad = Vec::new();
    let words = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("db", "g!(")];
    let more = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("#[", "ignore")];
    for (name, text) in rust_files(".") {
        for (number, line) in text.lines().enumerate() {
            if words.iter().chain(&more).any(|word| line.contains(word)) {
                bad.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none("finish these", &bad);
}

#[test]
fn every_fixture_is_read_by_a_test() {
    let fixtures = files("fixtures");
    let readers = ["tests", "src", "sim"].map(files).concat();
    let read = |end: &str| -> String {
        let readers = readers.iter().filter(|name| name.ends_with(end) && *name != "tests/tidy.rs");
        readers.map(|name| fs::read_to_string(repo().join(name)).expect("text")).collect()
    };
    let (rust, python) = (read(".rs"), read(".py"));
    let is_read = |fixture: &str| {
        let (path, ending) = fixture.rsplit_once('.').unwrap_or((fixture, ""));
        let (folder, stem) = path.rsplit_once('/').unwrap_or(("", path));
        match (folder, ending) {
            // tests/scenes.rs plays all that end so, and compares each with the transcript of its name.
            ("fixtures/scenes", "scene") => true,
            ("fixtures/scenes", "out") => fixtures.contains(&format!("{path}.scene")),
            // The cases on real containerd put these by name.
            ("fixtures/manifests", "yaml") => python.contains(&format!("\"{stem}\"")),
            _ => rust.contains(fixture),
        }
    };
    for nobody in ["manifests/nobody.yaml", "scenes/nobody.out", "configs/nobody.txt", "nobody"] {
        assert!(!is_read(&format!("fixtures/{nobody}")), "{nobody}");
    }
    let dead: Vec<_> = fixtures.iter().filter(|name| !is_read(name)).cloned().collect();
    assert_none("no test reads these", &dead);
}

#[test]
fn comments_name_sources_that_the_reader_can_open() {
    // Notes that were never in this repository, their sections and their numbers.
    let pages = ["contract", "house", "bank", "findings"].map(|page| format!("{page}.md"));
    let dead = |line: &str| {
        let numbered = line.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
            let number = word.strip_prefix('B').unwrap_or("");
            number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit())
        });
        let section = line.split(concat!("contr", "act ")).nth(1);
        let section = section.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        numbered || section || pages.iter().any(|page| line.contains(page))
    };
    for bad in ["// see B41.", concat!("(contr", "act 5.1)"), concat!("in bank", ".md, too")] {
        assert!(dead(bad), "{bad}");
    }
    let mut found = Vec::new();
    let mut names = ["src", "sim", "tests", "fixtures", "proto"].map(files).concat();
    names.extend(["README.md", "Makefile", "Cargo.toml", "build.rs", ".ci/run"].map(str::to_owned));
    for name in names.iter().filter(|name| *name != "tests/tidy.rs") {
        let text = fs::read_to_string(repo().join(name)).unwrap_or_default();
        let lines = text.lines().enumerate().filter(|(_, line)| dead(line));
        found.extend(lines.map(|(number, _)| format!("{name}:{}", number + 1)));
    }
    assert_none("name the upstream file, KEP or issue, or say the rule itself", &found);
}
