//! `steplet run --logs`: what the containers print, as it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use steplet_core::facts::Facts;
use steplet_core::ids::ContainerId;

/// Bytes taken from a file at a look, so that a chatty container does not hold up the others.
const LOOK_MAX: u64 = 64 << 10;

/// The log files of all containers that are there.
#[derive(Default)]
pub struct Output(BTreeMap<ContainerId, Tail>);

struct Tail {
    /// `namespace/pod/container`
    name: String,
    path: PathBuf,
    /// Open from the first look on: the last lines can be read when the file's name is gone.
    file: Option<File>,
    /// A line whose end is not written yet.
    begun: Vec<u8>,
}

impl Output {
    /// The lines since the last look, each behind the name of its container.
    pub fn look(&mut self, facts: &Facts) -> String {
        let mut there = BTreeSet::new();
        for (uid, worker) in facts.workers.all() {
            let meta = &worker.pod().metadata;
            let dir = facts.settings().log_dir(&meta.namespace, &meta.name, uid);
            for container in facts.pleg.view(uid).iter().flat_map(|view| &view.containers) {
                there.insert(container.id.clone());
                self.0.entry(container.id.clone()).or_insert_with(|| Tail {
                    name: format!("{}/{}/{}", meta.namespace, meta.name, container.name),
                    path: format!("{dir}/{}/{}.log", container.name, container.attempt).into(),
                    file: None,
                    begun: Vec::new(),
                });
            }
        }
        let mut text = String::new();
        for tail in self.0.values_mut() {
            tail.look(&mut text);
        }
        self.0.retain(|id, _| there.contains(id));
        text
    }
}

impl Tail {
    fn look(&mut self, text: &mut String) {
        self.file = self.file.take().or_else(|| open(&self.path));
        let Some(file) = &mut self.file else { return };
        // What cannot be read now can be read at the next look, or is not worth the others.
        let _ = file.take(LOOK_MAX).read_to_end(&mut self.begun);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else { return };
        for line in self.begun.drain(..=end).collect::<Vec<u8>>().split(|byte| *byte == b'\n') {
            if let Some(said) = said(&String::from_utf8_lossy(line)) {
                text.push_str(&format!("{}: {said}\n", self.name));
            }
        }
    }
}

/// Whatever lies there in place of a log, opening it does not wait.
fn open(path: &Path) -> Option<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|meta| meta.is_file()).then_some(file)
}

/// The text of a line as CRI runtimes write it: time, stream, tag, text.
fn said(line: &str) -> Option<&str> {
    line.splitn(4, ' ').nth(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use std::io::Write;

    #[test]
    fn lines_come_when_they_are_whole() {
        let scratch = Scratch::new("run-output");
        let path = scratch.path().join("0.log");
        let name = "default/web/app".to_owned();
        let mut tail = Tail { name, path: path.clone(), file: None, begun: Vec::new() };
        let mut look = |want: &str| {
            let mut text = String::new();
            tail.look(&mut text);
            assert_eq!(text, want);
        };
        look("");
        let mut log = File::create(&path).unwrap();
        log.write_all(b"2026-11-30T15:04:05Z stdout F hello 1\n2026-11-30T15:04:06Z std").unwrap();
        look("default/web/app: hello 1\n");
        look("");
        log.write_all(b"out F  two  \n2026-11-30T15:04:07Z stderr F \nnonsense\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        look("default/web/app:  two  \ndefault/web/app: \n");
    }
}
