//! What is left of a crash: a record on disk, with the manifests that may have caused it.
//!
//! While a manifest is decoded or taken in, it alone is the suspect. What its pod does comes later,
//! in steps that serve many pods: of a crash then, all manifests that came within five minutes are
//! suspects. One that was a suspect in three crashes within five minutes is set aside at the next
//! start, until its content changes: the one most often suspected and, of those, the one that came
//! last before the first crash. If that does not help, three more crashes set one more aside.

use super::clock::Clock;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use steplet_core::event::{Event, HelperReply, Item, Manifest, Outcome, SetAside};
use steplet_core::time::Mono;

const CRASHES: usize = 3;
const WITHIN_NS: u64 = 5 * 60 * 1_000_000_000;
/// Manifests that came last. At a start all of them come, so fewer than a node has would let those
/// whose names come first go free.
const SUSPECTS_MAX: usize = 256;
/// Records kept; older ones are removed at a start.
const KEPT: usize = 64;
const RECORD_BYTES_MAX: u64 = 1024 * 1024;
/// What is kept of the words of a panic.
const WHAT_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// Nanoseconds since 1970, to tell people when; and since the boot named, to compare.
    wall: i64,
    mono: u64,
    boot_id: String,
    build: String,
    what: String,
    /// In the order in which they came.
    suspects: Vec<Suspect>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Suspect {
    name: String,
    digest: u64,
}

thread_local! {
    static BLAME: RefCell<Blame> = const { RefCell::new(Blame::new()) };
}

struct Blame {
    /// What is being worked on.
    now: Option<Suspect>,
    /// What came last, with the time at which it did.
    recent: VecDeque<(Mono, Suspect)>,
}

impl Blame {
    const fn new() -> Blame {
        Blame { now: None, recent: VecDeque::new() }
    }

    fn add(&mut self, now: Mono, suspect: Suspect) {
        self.recent.retain(|(_, known)| known.name != suspect.name);
        self.recent.push_back((now, suspect));
        if self.recent.len() > SUSPECTS_MAX {
            self.recent.pop_front();
        }
    }

    fn suspects(&self, now: Mono) -> Vec<Suspect> {
        if let Some(suspect) = &self.now {
            return vec![suspect.clone()];
        }
        let recent = self.recent.iter().filter(|(since, _)| now.since(*since).0 <= WITHIN_NS);
        recent.map(|(_, suspect)| suspect.clone()).collect()
    }
}

/// Does some work on a manifest; if it ends in a crash, the manifest takes the blame.
pub fn suspect<R>(name: &str, digest: u64, work: impl FnOnce() -> R) -> R {
    let suspect = Suspect { name: name.to_owned(), digest };
    BLAME.with_borrow_mut(|blame| blame.now = Some(suspect));
    let result = work();
    BLAME.with_borrow_mut(|blame| blame.now = None);
    result
}

/// As `suspect`, for the step that takes the manifest in: what comes of it shows in later steps, so
/// it stays one of the suspects for a while.
pub fn suspect_from<R>(now: Mono, name: &str, digest: u64, work: impl FnOnce() -> R) -> R {
    let result = suspect(name, digest, work);
    let suspect = Suspect { name: name.to_owned(), digest };
    BLAME.with_borrow_mut(|blame| blame.add(now, suspect));
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
        let kept = match keep(&dir, &boot_id, panic) {
            Ok(path) => format!("is recorded in {}", path.display()),
            Err(error) => format!("could not be recorded: {error}"),
        };
        // Not a macro that panics within the panic when nobody reads.
        let _ = writeln!(std::io::stderr(), "steplet: the crash {kept}");
    }));
}

fn keep(dir: &Path, boot_id: &str, panic: &PanicHookInfo<'_>) -> io::Result<PathBuf> {
    let now = Clock::new().now();
    let mut what = panic.to_string();
    what.truncate(what.floor_char_boundary(WHAT_BYTES_MAX));
    // Borrowed by nobody, unless the panic came from here.
    let suspects = BLAME.with(|blame| blame.try_borrow().map(|b| b.suspects(now.mono)));
    let record = Record {
        wall: now.wall.0,
        mono: now.mono.0,
        boot_id: boot_id.to_owned(),
        build: super::tape::BUILD.to_owned(),
        what,
        suspects: suspects.unwrap_or_default(),
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

/// A crash of which a manifest was suspected, and its place among the suspects.
struct Blamed {
    boot_id: String,
    mono: u64,
    place: usize,
}

impl Blamed {
    fn close_to(&self, other: &Blamed) -> bool {
        self.boot_id == other.boot_id && self.mono.abs_diff(other.mono) <= WITHIN_NS
    }
}

/// `records` from the oldest on.
fn guilty(records: impl Iterator<Item = Record>) -> Vec<SetAside> {
    let mut aside: Vec<Suspect> = Vec::new();
    let mut crashes: BTreeMap<Suspect, Vec<Blamed>> = BTreeMap::new();
    for record in records {
        for (place, suspect) in record.suspects.into_iter().enumerate() {
            let blamed = Blamed { boot_id: record.boot_id.clone(), mono: record.mono, place };
            if !aside.contains(&suspect) {
                crashes.entry(suspect).or_default().push(blamed);
            }
        }
        let worst = crashes.iter().filter_map(|(s, c)| weight(c).map(|w| (w, s))).max();
        if let Some((_, suspect)) = worst {
            aside.push(suspect.clone());
            // The others have three more.
            crashes.clear();
        }
    }
    aside
        .into_iter()
        .map(|suspect| SetAside { name: suspect.name, digest: suspect.digest })
        .collect()
}

/// How heavy the crashes weigh that a manifest was suspected of; `None`: too few to set it aside.
fn weight(crashes: &[Blamed]) -> Option<(usize, usize)> {
    let last = crashes.last()?;
    let close = crashes.iter().filter(|crash| crash.close_to(last));
    let (count, first) = (close.clone().count(), close.clone().next()?);
    (count >= CRASHES).then_some((count, first.place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    fn record(boot: &str, minute: u64, names: &[&str], digest: u64) -> Record {
        Record {
            wall: 0,
            mono: minute * 60 * 1_000_000_000,
            boot_id: boot.into(),
            build: String::new(),
            what: String::new(),
            suspects: names.iter().map(|name| Suspect { name: (*name).into(), digest }).collect(),
        }
    }

    #[test]
    fn three_in_five_minutes() {
        let check = |crashes: &[(&str, u64, &str, u64)], want: &[(&str, u64)]| {
            let records = crashes.iter().map(|(b, m, n, d)| {
                let names: Vec<&str> = n.split_whitespace().collect();
                record(b, *m, &names, *d)
            });
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
        // Alone at first: with the others since each start brings all of them.
        let late = [("x", 0, "c", 1), ("x", 1, "a b c d", 1), ("x", 2, "a b c d", 1)];
        check(&late, &[("c", 1)]);
        // The last one that came before the first crash, and one more if that was wrong.
        let wrong = [("x", 0, "b a", 1), ("x", 1, "a b", 1), ("x", 2, "a b", 1)];
        check(&wrong, &[("a", 1)]);
        let more = [("x", 3, "b", 1), ("x", 4, "b", 1)];
        check(&[&wrong[..], &more].concat(), &[("a", 1)]);
        check(&[&wrong[..], &more, &[("x", 5, "b", 1)]].concat(), &[("a", 1), ("b", 1)]);
    }

    #[test]
    fn suspects_of_a_while() {
        let mut blame = Blame::new();
        let suspect = |name: &str| Suspect { name: name.into(), digest: 1 };
        let names = |blame: &Blame, seconds: u64| {
            let suspects = blame.suspects(Mono(seconds * 1_000_000_000));
            suspects.into_iter().map(|s| s.name).collect::<Vec<_>>().join(" ")
        };
        blame.add(Mono(0), suspect("a"));
        blame.add(Mono(60 * 1_000_000_000), suspect("b"));
        assert_eq!(names(&blame, 300), "a b");
        assert_eq!(names(&blame, 301), "b");
        blame.add(Mono(61 * 1_000_000_000), suspect("a"));
        assert_eq!(names(&blame, 301), "b a");
        blame.now = Some(suspect("c"));
        assert_eq!(names(&blame, 61), "c");
        (0..2 * SUSPECTS_MAX).for_each(|n| blame.add(Mono(0), suspect(&n.to_string())));
        assert_eq!(blame.recent.len(), SUSPECTS_MAX);
    }

    #[test]
    fn records_are_written_and_read_and_nonsense_is_moved_aside() {
        let scratch = Scratch::new("crashes");
        let dir = scratch.path().join("crashes");
        assert_eq!(set_aside(&dir), []);
        for minute in 0..3 {
            let record = Record { wall: minute, ..record("x", minute as u64, &["a.yaml"], 7) };
            write(&dir, &record).unwrap();
        }
        fs::write(dir.join("0.json"), "{\"half").unwrap();
        fs::write(dir.join("1.new"), "").unwrap();
        assert_eq!(set_aside(&dir), [SetAside { name: "a.yaml".into(), digest: 7 }]);
        assert!(dir.join("0.bad").exists() && !dir.join("0.json").exists());
    }
}
