//! Manifests: which files there are, what is in them, and whether that is new.
//!
//! Upstream: pkg/kubelet/config/file_linux.go, common.go (v1.36).

use super::pod_dirs::open_regular;
use super::{fault, reason};
use crate::shell::yaml::{self, Limits};
use crate::shell::{crash, mounts};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use steplet_core::event::{Fault, FaultKind, Manifest, ManifestError, ManifestJson, SetAside};

/// Files of one directory. With more of them it is not read at all: a part would be the wrong pods, and
/// those of the others would be ended.
const FILES_MAX: usize = 1000;
/// What is read and understood on the thread: a few milliseconds' work at most. `Limits::FILE`
/// holds for all else, and a helper does it.
const QUICK: Limits = Limits { bytes: 16 * 1024, values: 2_000, ..Limits::FILE };
/// Field paths whose line the core is told.
const LINES_MAX: usize = 10_000;
/// Keys given twice that get a line in the log, of one manifest.
const DUPLICATES_SAID: usize = 10;

/// A file that may be a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    pub name: String,
    pub path: PathBuf,
    /// It is a link to where reading may take for ever.
    pub foreign: bool,
}

/// The manifests at a path, which is a file or a directory, by name. `None` when there is nothing
/// at the path.
pub fn list(path: &Path) -> Result<Option<Vec<Found>>, Fault> {
    let at = |error: io::Error| fault(format_args!("cannot read {}", path.display()), &error);
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            let name = shown(path.file_name().unwrap_or(path.as_os_str()));
            return Ok(Some(vec![Found { name, path: path.to_owned(), foreign: false }]));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(error)),
    }
    let mut files = Vec::new();
    let mut mounted = None;
    for entry in fs::read_dir(path).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = shown(&entry.file_name());
        if name.starts_with('.') {
            continue;
        }
        if files.len() == FILES_MAX {
            let place = path.display();
            let message = format!("{place} holds more than {FILES_MAX} files: none is read");
            return Err(Fault { kind: FaultKind::Invalid, message });
        }
        let path = entry.path();
        // Most directories hold no links: then nobody needs to know what is mounted where.
        let link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let mounted =
            link.then(|| mounted.get_or_insert_with(|| mounts::read().unwrap_or_default()));
        let foreign = mounted.is_some_and(|mounted| mounts::foreign(&path, mounted).is_some());
        files.push(Found { name, path, foreign });
    }
    files.sort();
    Ok(Some(files))
}

/// The name of a file as text, and as that of no other file: bytes that are no text or would break a
/// line of the log are escaped.
fn shown(name: &OsStr) -> String {
    let plain = |name: &&str| !name.contains(|c: char| c.is_control() || c == '\\');
    let escaped = || name.as_bytes().escape_ascii().to_string();
    name.to_str().filter(plain).map_or_else(escaped, str::to_owned)
}

/// What became of one file.
#[derive(Debug, PartialEq)]
pub enum Loaded {
    /// It has the digest that was known.
    Same,
    New(Box<Manifest>),
    /// It is gone again, or it is a directory.
    Not,
    /// It takes too long for the thread.
    Long,
}

/// Reads one file on the thread, unless it is long or strange. What was set aside is not decoded.
pub fn load_quickly(name: &str, path: &Path, known: Option<u64>, aside: &[SetAside]) -> Loaded {
    let bytes = match read(path, QUICK.bytes as u64) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Loaded::Long,
        Err(error) => return unreadable(name, path, &error, known),
    };
    let digest = digest(&bytes);
    if known == Some(digest) {
        return Loaded::Same;
    }
    if aside.iter().any(|aside| aside.name == name && aside.digest == digest) {
        let message = "it is set aside: it brought this program down three times".to_owned();
        return new(name, digest, Err(ManifestError { line: 0, message }));
    }
    match crash::suspect(name, digest, || decode(name, &bytes, QUICK)) {
        Ok(content) => new(name, digest, Ok(content)),
        // Wrong, or more than it looks: a few aliases can stand for a million values.
        Err(_) => Loaded::Long,
    }
}

/// Reads one file, whatever time it takes: for a helper.
pub fn load(name: &str, path: &Path, known: Option<u64>) -> Loaded {
    match read(path, Limits::FILE.bytes as u64) {
        Ok(Some(bytes)) => understand(name, &bytes, known),
        Ok(None) => {
            let error = io::Error::other(format!("it is larger than {} bytes", Limits::FILE.bytes));
            unreadable(name, path, &error, known)
        }
        Err(error) => unreadable(name, path, &error, known),
    }
}

/// Turns the bytes of a manifest into JSON, unless they are known.
pub fn understand(name: &str, bytes: &[u8], known: Option<u64>) -> Loaded {
    let digest = digest(bytes);
    if known == Some(digest) {
        return Loaded::Same;
    }
    new(name, digest, decode(name, bytes, Limits::FILE))
}

fn unreadable(name: &str, path: &Path, error: &io::Error, known: Option<u64>) -> Loaded {
    if error.kind() == ErrorKind::NotFound || path.is_dir() {
        return Loaded::Not;
    }
    let message = format!("cannot be read: {}", reason(error));
    // So that the same trouble is told once.
    let digest = digest(message.as_bytes());
    if known == Some(digest) {
        return Loaded::Same;
    }
    new(name, digest, Err(ManifestError { line: 0, message }))
}

fn new(name: &str, digest: u64, content: Result<ManifestJson, ManifestError>) -> Loaded {
    Loaded::New(Box::new(Manifest { name: name.to_owned(), digest, content }))
}

/// `None`: longer than `most`.
fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = open_regular(path)?;
    // Room for one more than there is, so that one read brings it all and the next one the end.
    let room = file.metadata()?.len().min(most) + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or_default());
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

fn decode(name: &str, bytes: &[u8], limits: Limits) -> Result<ManifestJson, ManifestError> {
    let document = yaml::to_json(bytes, limits)
        .map_err(|error| ManifestError { line: error.line, message: error.what })?;
    for duplicate in document.duplicates.iter().take(DUPLICATES_SAID) {
        let line = duplicate.mark.line;
        log::warn!("{name}: line {line}: {} is given twice, the last one counts", duplicate.path);
    }
    if let more @ 1.. = document.duplicates.len().saturating_sub(DUPLICATES_SAID) {
        log::warn!("{name}: {more} more keys are given twice");
    }
    let lines = document.lines.all(LINES_MAX);
    Ok(ManifestJson { json: Bytes::from(document.json), lines })
}

fn digest(bytes: &[u8]) -> u64 {
    let hash = Sha256::digest(bytes);
    u64::from_le_bytes(hash[..8].try_into().expect("eight bytes of thirty-two"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    #[test]
    fn only_files_that_count_are_listed() {
        let scratch = Scratch::new("manifests");
        let dir = scratch.path();
        for name in ["b.yaml", "a.json", ".hidden.yaml", "no-suffix"] {
            fs::write(dir.join(name), "{}").unwrap();
        }
        let names = |path: &Path| {
            let listed = list(path).unwrap();
            listed.map(|files| files.into_iter().map(|file| file.name).collect::<Vec<_>>())
        };
        assert_eq!(names(dir).unwrap(), ["a.json", "b.yaml", "no-suffix"]);
        assert_eq!(names(&dir.join("b.yaml")).unwrap(), ["b.yaml"]);
        assert_eq!(names(&dir.join("gone")), None);
        for number in 0..FILES_MAX {
            fs::write(dir.join(format!("{number}.yaml")), "").unwrap();
        }
        let want = format!("{} holds more than 1000 files: none is read", dir.display());
        assert_eq!(list(dir).unwrap_err().message, want);
    }

    #[test]
    fn names_that_are_no_text_stay_apart() {
        let scratch = Scratch::new("manifests");
        for name in
            [&b"a\xff.yaml"[..], b"a\xfe.yaml", b"a\nb", b"a\\xfe.yaml", "\u{e9}".as_bytes()]
        {
            fs::write(scratch.path().join(OsStr::from_bytes(name)), "{}").unwrap();
        }
        let listed = list(scratch.path()).unwrap().unwrap();
        let names: Vec<_> = listed.into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["a\\\\xfe.yaml", "a\\nb", "a\\xfe.yaml", "a\\xff.yaml", "\u{e9}"]);
    }

    fn manifest(loaded: Loaded) -> Manifest {
        match loaded {
            Loaded::New(manifest) => *manifest,
            other => panic!("not new but {other:?}"),
        }
    }

    #[test]
    fn a_short_file_is_read_quickly() {
        let scratch = Scratch::new("manifests");
        let path = scratch.path().join("pod.yaml");
        let quickly = |known, aside: &[SetAside]| load_quickly("pod.yaml", &path, known, aside);
        assert_eq!(quickly(None, &[]), Loaded::Not);
        fs::write(&path, "kind: Pod\nspec:\n  containers:\n  - name: a\n").unwrap();
        let seen = manifest(quickly(None, &[]));
        let content = seen.content.unwrap();
        assert_eq!(content.json, r#"{"kind":"Pod","spec":{"containers":[{"name":"a"}]}}"#);
        let lines = [
            ("kind", 1),
            ("spec", 2),
            ("spec.containers", 3),
            ("spec.containers[0]", 4),
            ("spec.containers[0].name", 4),
        ];
        assert_eq!(content.lines, lines.map(|(path, line)| (path.to_owned(), line)));
        assert_eq!(quickly(Some(seen.digest), &[]), Loaded::Same);
        let aside = SetAside { name: "pod.yaml".into(), digest: seen.digest };
        let error = manifest(quickly(None, &[aside])).content.unwrap_err();
        assert!(error.message.contains("set aside"), "{error:?}");
        fs::write(&path, "kind: [Pod\n").unwrap();
        assert_eq!(quickly(Some(seen.digest), &[]), Loaded::Long);
        assert!(manifest(load("pod.yaml", &path, None)).content.unwrap_err().line >= 1);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(quickly(None, &[]), Loaded::Not);
    }

    #[test]
    fn long_and_strange_files() {
        let scratch = Scratch::new("manifests");
        let path = scratch.path().join("pod.yaml");
        let quickly = || load_quickly("pod.yaml", &path, None, &[]);
        fs::write(&path, format!("a: 1\n{}", "#".repeat(QUICK.bytes))).unwrap();
        assert_eq!(quickly(), Loaded::Long);
        assert_eq!(manifest(load("pod.yaml", &path, None)).content.unwrap().json, r#"{"a":1}"#);
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                    c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n";
        fs::write(&path, bomb).unwrap();
        assert_eq!(quickly(), Loaded::Long);
        fs::File::create(&path).unwrap().set_len(Limits::FILE.bytes as u64 + 1).unwrap();
        let large = manifest(load("pod.yaml", &path, None));
        let want = "cannot be read: it is larger than 10485760 bytes";
        assert_eq!(large.content.unwrap_err().message, want);
        assert_eq!(load("pod.yaml", &path, Some(large.digest)), Loaded::Same);
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = manifest(quickly()).content.unwrap_err();
        assert_eq!(error.message, "cannot be read: not a regular file");
    }
}
