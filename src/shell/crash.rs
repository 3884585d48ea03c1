//! What is left of a crash: a record on disk, with the manifest that was being worked on.
//!
//! A manifest that brought the program down three times within five minutes is set aside at the
//! next start, until its content changes.

use super::clock::Clock;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use steplet_core::event::{Event, HelperReply, Item, Manifest, Outcome, SetAside};

const CRASHES: usize = 3;
const WITHIN_NS: u64 = 5 * 60 * 1_000_000_000;
/// Records kept; older ones are removed at a start.
const KEPT: usize = 64;
const RECORD_BYTES_MAX: u64 = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// Nanoseconds since 1970, to tell people when; and since the boot named, to compare.
    wall: i64,
    mono: u64,
    boot_id: String,
    build: String,
    what: String,
    suspect: Option<Suspect>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Suspect {
    name: String,
    digest: u64,
}

thread_local! {
    static SUSPECT: RefCell<Option<Suspect>> = const { RefCell::new(None) };
}

/// Does some work on a manifest; if it ends in a crash, the manifest takes the blame.
pub fn suspect<R>(name: &str, digest: u64, work: impl FnOnce() -> R) -> R {
    let suspect = Suspect { name: name.to_owned(), digest };
    SUSPECT.with(|place| place.replace(Some(suspect)));
    let result = work();
    SUSPECT.with(|place| place.replace(None));
    result
}

/// The manifest that an event brings, if it brings one.
pub fn manifest_of(event: &Event) -> Option<&Manifest> {
    match event {
        Event::Item { item: Item::Manifest(manifest), .. }
        | Event::Done { outcome: Outcome::Helper(Ok(HelperReply::Manifest(manifest))), .. } => {
            Some(manifest)
        }
        _ => None,
    }
}

/// From now on a panic leaves a record in `dir`.
pub fn watch(dir: &Path, boot_id: &str) {
    let (dir, boot_id) = (dir.to_owned(), boot_id.to_owned());
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        match keep(&dir, &boot_id, panic) {
            Ok(path) => eprintln!("steplet: the crash is recorded in {}", path.display()),
            Err(error) => eprintln!("steplet: the crash could not be recorded: {error}"),
        }
    }));
}

fn keep(dir: &Path, boot_id: &str, panic: &PanicHookInfo<'_>) -> io::Result<PathBuf> {
    let now = Clock::new().now();
    let record = Record {
        wall: now.wall.0,
        mono: now.mono.0,
        boot_id: boot_id.to_owned(),
        build: super::tape::BUILD.to_owned(),
        what: panic.to_string(),
        suspect: SUSPECT.with(|place| place.try_borrow().ok().and_then(|s| s.clone())),
    };
    write(dir, &record)
}

fn write(dir: &Path, record: &Record) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
    // In order of name, the oldest comes first: good enough to know which to remove.
    let path = dir.join(format!("{:020}-{}.json", record.wall.max(0), std::process::id()));
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(&serde_json::to_vec_pretty(record)?)?;
    file.sync_all()?;
    fs::rename(&beside, &path)?;
    File::open(dir)?.sync_all()?;
    Ok(path)
}

/// What the records of earlier crashes in `dir` say must be left alone. Removes the oldest records.
pub fn set_aside(dir: &Path) -> Vec<SetAside> {
    let mut files: Vec<PathBuf> = match fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect(),
        Err(_) => return Vec::new(),
    };
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.sort();
    for path in files.drain(..files.len().saturating_sub(KEPT)) {
        let _ = fs::remove_file(path);
    }
    guilty(files.iter().filter_map(|path| read(path)))
}

fn read(path: &Path) -> Option<Record> {
    let long = fs::metadata(path).ok()?.len() > RECORD_BYTES_MAX;
    let record = if long { None } else { serde_json::from_slice(&fs::read(path).ok()?).ok() };
    if record.is_none() {
        let aside = path.with_extension("bad");
        log::warn!("{} is not a crash record: moved aside to {}", path.display(), aside.display());
        if let Err(error) = fs::rename(path, &aside) {
            log::warn!("{} stays: {error}", path.display());
        }
    }
    record
}

fn guilty(records: impl Iterator<Item = Record>) -> Vec<SetAside> {
    let mut crashes: BTreeMap<Suspect, Vec<(String, u64)>> = BTreeMap::new();
    for record in records {
        if let Some(suspect) = record.suspect {
            crashes.entry(suspect).or_default().push((record.boot_id, record.mono));
        }
    }
    let mut guilty = Vec::new();
    for (suspect, mut times) in crashes {
        times.sort();
        let close = |w: &[(String, u64)]| {
            let (first, last) = (&w[0], &w[CRASHES - 1]);
            first.0 == last.0 && last.1 - first.1 <= WITHIN_NS
        };
        if times.windows(CRASHES).any(close) {
            guilty.push(SetAside { name: suspect.name, digest: suspect.digest });
        }
    }
    guilty
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    fn record(boot: &str, minute: u64, name: &str, digest: u64) -> Record {
        Record {
            wall: 0,
            mono: minute * 60 * 1_000_000_000,
            boot_id: boot.into(),
            build: String::new(),
            what: String::new(),
            suspect: (!name.is_empty()).then(|| Suspect { name: name.into(), digest }),
        }
    }

    #[test]
    fn three_in_five_minutes() {
        let check = |crashes: &[(&str, u64, &str, u64)], want: &[(&str, u64)]| {
            let records = crashes.iter().map(|(b, m, n, d)| record(b, *m, n, *d));
            let got = guilty(records);
            let got: Vec<_> = got.iter().map(|g| (&*g.name, g.digest)).collect();
            assert_eq!(got, want, "{crashes:?}");
        };
        check(&[("x", 0, "a", 1), ("x", 1, "a", 1)], &[]);
        check(&[("x", 0, "a", 1), ("x", 1, "a", 1), ("x", 5, "a", 1)], &[("a", 1)]);
        check(&[("x", 0, "a", 1), ("x", 1, "a", 1), ("x", 6, "a", 1)], &[]);
        check(&[("x", 0, "a", 1), ("x", 1, "a", 2), ("x", 2, "a", 1)], &[]);
        check(&[("x", 0, "a", 1), ("y", 1, "a", 1), ("x", 2, "a", 1)], &[]);
        check(&[("x", 0, "", 1), ("x", 1, "", 1), ("x", 2, "", 1)], &[]);
        let four = [("x", 0, "a", 1), ("x", 9, "a", 1), ("x", 10, "a", 1), ("x", 11, "a", 1)];
        check(&four, &[("a", 1)]);
    }

    #[test]
    fn records_are_written_and_read_and_nonsense_is_moved_aside() {
        let scratch = Scratch::new("crashes");
        let dir = scratch.path().join("crashes");
        assert_eq!(set_aside(&dir), []);
        for minute in 0..3 {
            let record = Record { wall: minute, ..record("x", minute as u64, "a.yaml", 7) };
            write(&dir, &record).unwrap();
        }
        fs::write(dir.join("0.json"), "{\"half").unwrap();
        fs::write(dir.join("1.new"), "").unwrap();
        assert_eq!(set_aside(&dir), [SetAside { name: "a.yaml".into(), digest: 7 }]);
        assert!(dir.join("0.bad").exists() && !dir.join("0.json").exists());
    }
}
