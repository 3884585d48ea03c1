//! The store for times without the API server, `<root-dir>/steplet/offline`: what pods need to start, a file an entry,
//! encrypted.
//!
//! It is read once, before the loop begins. It is written by a helper, since each writing is synced: a file is whole
//! and new, or whole and old. What cannot be read is moved aside, never deleted, and nothing else suffers.

mod format;

use super::doors::api::seal;
use super::doors::{fault, make_dirs};
use super::vault::{Secret, Vault};
use format::{Key, Unfit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use steplet_core::effect::KeptEntry;
use steplet_core::event::Fault;

/// The credential that a service manager may hand over: `LoadCredentialEncrypted=steplet-offline-key:...`
const CREDENTIAL: &str = "steplet-offline-key";
/// Bytes of a key file. 32 random ones are what is made here.
const KEY_LEAST: usize = 16;
const KEY_MOST: u64 = 4096;
/// What is read at start: as much as the core keeps at most, and some more.
const ENTRIES_MOST: usize = 8192;
const ENTRY_MOST: u64 = 8 << 20;
const BYTES_MOST: usize = 64 << 20;
/// Files of one name that are kept aside.
const ASIDE_MOST: usize = 9;

#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    key: Key,
    /// A key that was just made, and is not yet in its file.
    new_key: Option<Secret>,
}

/// A change of the store, for a helper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    dir: PathBuf,
    key: Key,
    new_key: Option<Secret>,
    set: Vec<(String, bool, Secret)>,
    unset: Vec<String>,
}

impl Store {
    /// `key_file`: `--offline-key-file`, or empty. Errors: there is no key, and nothing can be kept.
    pub fn open(root_dir: &Path, key_file: &str) -> Result<Store, String> {
        let dir = root_dir.join("steplet/offline");
        make_dirs(&dir, 0o700).map_err(|fault| fault.message)?;
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        let credential = credentials.map(|dir| dir.join(CREDENTIAL));
        let given = match (key_file, credential) {
            ("", Some(path)) if path.exists() => Some(path),
            ("", _) => None,
            (path, _) => Some(PathBuf::from(path)),
        };
        let (key, new_key) = match given {
            Some(path) => (Key::of(&read_key(&path)?), None),
            None => key_beside(&dir)?,
        };
        Ok(Store { dir, key, new_key })
    }

    /// All entries that can be used, by name; the rest is moved aside, and one message says why.
    pub fn read(&self, vault: &mut Vault) -> Vec<KeptEntry> {
        let mut kept = Vec::new();
        let mut unfit: BTreeMap<String, usize> = BTreeMap::new();
        let mut bytes = 0;
        for name in self.names() {
            let read = self.read_one(&name, vault);
            match read {
                Ok(entry) if bytes + entry.body.len() <= BYTES_MOST => {
                    bytes += entry.body.len();
                    kept.push(entry);
                }
                Ok(_) => *unfit.entry("beyond what can be kept".into()).or_default() += 1,
                Err(why) => {
                    self.move_aside(&name);
                    *unfit.entry(why).or_default() += 1;
                }
            }
        }
        for (why, count) in unfit {
            let dir = self.dir.display();
            log::error!(
                "{count} entries of the offline store {dir} are {why}: moved to its directory aside; pods that \
                 need them wait for the API server"
            );
        }
        kept
    }

    /// The names of all entries, sorted. What a power cut left half written is taken away.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            let Ok(name) = entry.file_name().into_string() else { continue };
            if is_file && name.starts_with('.') {
                let _ = fs::remove_file(entry.path());
            } else if is_file && name != "key" && names.len() < ENTRIES_MOST {
                names.push(name);
            }
        }
        names.sort_unstable();
        names
    }

    /// Errors: what is wrong with it, in words that follow "are".
    fn read_one(&self, name: &str, vault: &mut Vault) -> Result<KeptEntry, String> {
        let file = read(&self.dir.join(name), ENTRY_MOST);
        let file = file.map_err(|error| format!("unreadable ({error})"))?;
        let (sealed, body) = format::open(&self.key, name, &file).map_err(|why| why.to_string())?;
        if !is_name(name) {
            return Err(Unfit::Damaged.to_string());
        }
        let body = match sealed {
            true => seal::seal(&body, vault).map_err(|_| Unfit::Damaged.to_string())?,
            false => body.into(),
        };
        Ok(KeptEntry { name: name.to_owned(), body, sealed })
    }

    fn move_aside(&self, name: &str) {
        let aside = self.dir.join("aside");
        let _ = make_dirs(&aside, 0o700);
        let free =
            (1..=ASIDE_MOST).map(|n| aside.join(format!("{name}.{n}"))).find(|to| !to.exists());
        // Where there are that many of it already, it stays and is written anew some day.
        if let Some(to) = free
            && let Err(error) = fs::rename(self.dir.join(name), to)
        {
            log::error!("{name} of the offline store cannot be moved aside: {error}");
        }
    }

    /// What a helper has to do. Errors: a secret is not in the vault any more, or an entry makes no sense.
    pub fn change(
        &self,
        set: Vec<KeptEntry>,
        unset: Vec<String>,
        vault: &Vault,
    ) -> Result<Change, seal::Unopened> {
        let open = |kept: KeptEntry| {
            let body = match kept.sealed {
                true => seal::open(&kept.body, vault)?,
                false => String::from_utf8(kept.body.to_vec()).map_err(|_| seal::Unopened::Odd)?,
            };
            Ok((kept.name, kept.sealed, Secret::from(body)))
        };
        let set = set.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let named = set.iter().map(|(name, ..)| name).chain(&unset).all(|name| is_name(name));
        if !named {
            return Err(seal::Unopened::Odd);
        }
        let Store { dir, key, new_key } = self.clone();
        Ok(Change { dir, key, new_key, set, unset })
    }
}

impl Change {
    /// In a helper. What is new is on the disk before what is old goes.
    pub fn run(self) -> Result<(), Fault> {
        self.write().map_err(|error| fault("the offline store", &error))
    }

    fn write(&self) -> io::Result<()> {
        if let Some(key) = &self.new_key
            && !self.dir.join("key").exists()
        {
            put(&self.dir, "key", key.expose().as_bytes())?;
            sync_dir(&self.dir)?;
        }
        for (name, secret, body) in &self.set {
            let file = format::seal(&self.key, name, *secret, body.expose().as_bytes())?;
            put(&self.dir, name, &file)?;
        }
        sync_dir(&self.dir)?;
        for name in &self.unset {
            match fs::remove_file(self.dir.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.unset.is_empty() { Ok(()) } else { sync_dir(&self.dir) }
    }
}

/// Puts a file in place, whole and synced. Where that fails, what was there stays.
fn put(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let draft = dir.join(format!(".{name}"));
    let written = write_draft(&draft, content).and_then(|()| fs::rename(&draft, dir.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write_draft(draft: &Path, content: &[u8]) -> io::Result<()> {
    let flags = libc::O_NOFOLLOW;
    let mut file = (OpenOptions::new().write(true).create(true).truncate(true))
        .mode(0o600)
        .custom_flags(flags)
        .open(draft)?;
    file.write_all(content)?;
    file.sync_all()
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= 100 && name != "key" && name.bytes().all(fits)
}

/// A small regular file. Links are not followed, and nothing is waited for.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > most {
        return Err(io::Error::new(ErrorKind::InvalidInput, "no file of a fitting size"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_key(path: &Path) -> Result<Vec<u8>, String> {
    let place = path.display();
    let told = |why: String| format!("the key of the offline store, {place}: {why}");
    // A key may be given by a link, as those of /etc are.
    let path = fs::canonicalize(path).map_err(|error| told(error.to_string()))?;
    let key = read(&path, KEY_MOST).map_err(|error| told(error.to_string()))?;
    if key.len() < KEY_LEAST {
        return Err(told(format!("{} bytes, and at least {KEY_LEAST} are wanted", key.len())));
    }
    if fs::metadata(&path).is_ok_and(|meta| meta.mode() & 0o077 != 0) {
        log::warn!("The key of the offline store, {place}, can be read by others than its owner");
    }
    Ok(key)
}

/// The key file beside the store; without one, a new key, which the first writing puts there.
fn key_beside(dir: &Path) -> Result<(Key, Option<Secret>), String> {
    let path = dir.join("key");
    match read_key(&path) {
        Ok(key) => return Ok((Key::of(&key), None)),
        Err(why) if path.symlink_metadata().is_ok() => return Err(why),
        Err(_) => {}
    }
    let key: [u8; 32] = format::random().map_err(|error| error.to_string())?;
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((Key::of(text.as_bytes()), Some(text.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    fn kept(name: &str, body: &str, sealed: bool) -> KeptEntry {
        KeptEntry { name: name.into(), body: body.to_owned().into(), sealed }
    }

    fn keep(store: &Store, set: &[KeptEntry], unset: &[&str], vault: &Vault) -> Result<(), Fault> {
        let unset = unset.iter().map(|name| (*name).to_owned()).collect();
        store.change(set.to_vec(), unset, vault).expect("the vault has them").run()
    }

    #[test]
    fn what_is_kept_comes_back_in_another_life() {
        let scratch = Scratch::new("offline-kept");
        let root = scratch.path();
        let mut vault = Vault::default();
        let store = Store::open(root, "").expect("a new key");
        assert_eq!(store.read(&mut vault), []);
        vault.seal_of_cluster("of an earlier life, so that numbers differ");
        let seal = vault.seal_of_cluster("czNjcmV0").number();
        let secret = format!(r#"{{"data":{{"a":{seal}}},"kind":"Secret"}}"#);
        let all = [kept("pod-1", "{}", false), kept("secret-1", &secret, true)];
        keep(&store, &all, &[], &vault).expect("there is room");
        let dir = root.join("steplet/offline");
        for name in ["key", "pod-1", "secret-1"] {
            let meta = fs::metadata(dir.join(name)).expect("it was written");
            assert_eq!(meta.mode() & 0o777, 0o600, "{name}");
        }
        let file = fs::read(dir.join("secret-1")).expect("it was written");
        assert!(!file.windows(8).any(|bytes| bytes == b"czNjcmV0"));

        let mut vault = Vault::default();
        let store = Store::open(root, "").expect("the key is there");
        let read = store.read(&mut vault);
        let sealed = kept("secret-1", r#"{"data":{"a":1},"kind":"Secret"}"#, true);
        assert_eq!(read, [kept("pod-1", "{}", false), sealed]);
        let seal = steplet_core::sealed::Sealed::numbered(1);
        assert_eq!(vault.open(seal).expect("it was sealed").expose(), "czNjcmV0");

        keep(&store, &[], &["pod-1", "pod-2"], &vault).expect("gone is gone");
        assert_eq!(store.read(&mut vault).len(), 1);
        let lost = kept("secret-2", r#"{"data":{"a":99},"kind":"Secret"}"#, true);
        assert!(store.change(vec![lost], Vec::new(), &vault).is_err());
    }

    #[test]
    fn what_cannot_be_used_is_moved_aside_and_harms_nothing() {
        let scratch = Scratch::new("offline-aside");
        let root = scratch.path();
        let dir = root.join("steplet/offline");
        let key_file = root.join("key-file");
        fs::write(&key_file, "a key of somebody's own").expect("a file");
        let key_file = key_file.to_str().expect("plain");
        let mut vault = Vault::default();
        let store = Store::open(root, key_file).expect("a key");
        let names = ["a-1", "b-2", "c-3", "d-4", "e-5"];
        let all: Vec<KeptEntry> = names.iter().map(|name| kept(name, "{}", false)).collect();
        keep(&store, &all, &[], &vault).expect("there is room");
        assert!(!dir.join("key").exists(), "the key is somewhere else");
        let file = fs::read(dir.join("a-1")).expect("a file");
        fs::write(dir.join("a-1"), &file[..20]).expect("torn");
        fs::write(dir.join("b-2"), [0; 40]).expect("of zeros");
        fs::rename(dir.join("d-4"), dir.join("f-6")).expect("renamed");
        let other = Key::of(b"another key than that");
        let of_other = format::seal(&other, "e-5", false, b"{}").expect("random numbers");
        fs::write(dir.join("e-5"), of_other).expect("a file");
        fs::write(dir.join(".g-7"), "half").expect("a draft");
        fs::create_dir(dir.join("sub")).expect("a directory");
        for _ in 0..2 {
            assert_eq!(store.read(&mut vault), [kept("c-3", "{}", false)]);
        }
        let mut aside: Vec<_> = fs::read_dir(dir.join("aside")).expect("it was made").collect();
        aside.sort_by_key(|entry| entry.as_ref().map(|e| e.file_name()).unwrap_or_default());
        assert_eq!(aside.len(), 4, "{aside:?}");
        assert!(!dir.join(".g-7").exists());
        // They can be written anew.
        keep(&store, &all, &[], &vault).expect("there is room");
        assert_eq!(store.read(&mut vault).len(), 5);
    }

    #[test]
    fn keys_that_cannot_be_used() {
        let scratch = Scratch::new("offline-keys");
        let root = scratch.path();
        let check = |file: &str, want: &str| {
            let why = Store::open(root, file).expect_err("no key");
            assert!(why.contains(want), "{why}");
        };
        check("/nonexistent/key", "o such file");
        let short = root.join("short");
        fs::write(&short, "short").expect("a file");
        check(short.to_str().expect("plain"), "5 bytes, and at least 16 are wanted");
        // A key that was cut is not replaced: that would give up the whole store.
        fs::create_dir_all(root.join("steplet/offline")).expect("a directory");
        fs::write(root.join("steplet/offline/key"), "").expect("a file");
        check("", "0 bytes");
    }
}
