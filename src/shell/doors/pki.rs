//! The node's certificates and their keys on the disk: the one place that sees a private key.
//!
//! ```text
//!  NAME.key.tmp                    the key of a request, until its certificate is there
//!  NAME-2026-11-30-12-00-00.pem    a certificate, its chain, and its key; kept when another one follows
//!  NAME-current.pem                a link to the one in use
//! ```
//! Upstream: client-go/util/certificate/certificate_store.go (v1.36), whose files these are: either program goes on
//! with what the other one left.

use super::api::read as read_file;
use super::{fault, make_dirs};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData, SanType};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use steplet_api::time::{Time, parse_ns};
use steplet_core::effect::CertificateNames;
use steplet_core::event::{Fault, FaultKind, Pair};
use steplet_core::time::Wall;
use steplet_wire::tls::Leaf;

/// Files of one name that were set aside; beyond it a new one is refused, which is said.
const ASIDE_MOST: u32 = 100;

/// Where the certificate of one purpose is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    dir: PathBuf,
    /// `kubelet-client`, `kubelet-server`
    name: String,
}

impl Place {
    pub fn new(dir: &str, name: &str) -> Place {
        Place { dir: dir.into(), name: name.to_owned() }
    }

    pub fn current(&self) -> PathBuf {
        self.dir.join(format!("{}-current.pem", self.name))
    }

    fn key(&self) -> PathBuf {
        self.dir.join(format!("{}.key.tmp", self.name))
    }

    /// The pair in use, None when there is none. Errors: `Invalid` when it is none.
    pub fn read(&self) -> Result<Option<Pair>, Fault> {
        let current = self.current();
        match fs::symlink_metadata(&current) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let text = read_file(&current).map_err(invalid)?;
        let pair = pair(&text, &text);
        pair.map(Some).map_err(|why| invalid(format_args!("{}: {why}", current.display())))
    }

    /// A digest of key and names, and the request in PEM, by the key that is there, or a new one.
    pub fn request(&self, names: &CertificateNames) -> Result<(String, String), Fault> {
        let key = self.own_key()?;
        let request = params(names).and_then(|params| params.serialize_request(&key)?.pem());
        let request = request.map_err(|error| {
            invalid(format_args!("no request can be made for {}: {error}", names.common_name))
        })?;
        let mut digest = Sha256::new();
        digest.update(key.subject_public_key_info());
        let lists = [&names.organizations, &names.dns_names, &names.ips];
        for text in std::iter::once(&names.common_name).chain(lists.into_iter().flatten()) {
            digest.update([0]);
            digest.update(text);
        }
        let hex = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok((hex[..40].to_owned(), request))
    }

    fn own_key(&self) -> Result<KeyPair, Fault> {
        let path = self.key();
        if let Ok(text) = read_file(&path)
            && let Ok(key) = KeyPair::from_pem(&String::from_utf8_lossy(&text))
        {
            return Ok(key);
        }
        // None is there, or a crash has left a part of one.
        let key = KeyPair::generate().map_err(|error| invalid(format_args!("no key: {error}")))?;
        make_dirs(&self.dir, 0o755)?;
        write_whole(&path, 0o600, key.serialize_pem().as_bytes())?;
        Ok(key)
    }

    /// Makes a chain that was issued for our key the pair in use.
    pub fn store(&self, chain: &[u8]) -> Result<Pair, Fault> {
        self.store_at(chain, SystemTime::now())
    }

    fn store_at(&self, chain: &[u8], now: SystemTime) -> Result<Pair, Fault> {
        let key = read_file(&self.key()).map_err(invalid)?;
        let issued = |why: String| invalid(format_args!("what was issued is of no use: {why}"));
        let pair = pair(chain, &key).map_err(issued)?;
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        if pair.not_after.0 <= wall {
            let until = Time::from_ns(pair.not_after.0);
            return Err(issued(format!("it has expired at {}", until.as_str())));
        }
        let mut text = chain.to_vec();
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend(&key);
        let file = self.write_dated(wall, &text)?;
        self.point_to(&file)?;
        self.drop_key()?;
        sync(&self.dir)?;
        Ok(pair)
    }

    /// A new file of its own; what a crash has left of another one is not touched.
    fn write_dated(&self, wall: i64, text: &[u8]) -> Result<PathBuf, Fault> {
        let second = Time::from_ns(wall - wall.rem_euclid(1_000_000_000));
        let date = second.as_str().trim_end_matches('Z').replace(['T', ':'], "-");
        let mut count = 1;
        loop {
            let number = if count == 1 { String::new() } else { format!("-{count}") };
            let path = self.dir.join(format!("{}-{date}{number}.pem", self.name));
            let at =
                |error: io::Error| fault(format_args!("cannot write {}", path.display()), &error);
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && count < 100 => count += 1,
                Err(error) => return Err(at(error)),
                Ok(mut file) => {
                    let written = file.write_all(text).and_then(|()| file.sync_all());
                    if let Err(error) = written {
                        let _ = fs::remove_file(&path);
                        return Err(at(error));
                    }
                    return Ok(path);
                }
            }
        }
    }

    /// Whoever reads `current` finds the old pair or the new one.
    fn point_to(&self, file: &Path) -> Result<(), Fault> {
        let current = self.current();
        let at =
            |error: io::Error| fault(format_args!("cannot replace {}", current.display()), &error);
        // A file that somebody put there is not ours to throw away.
        if fs::symlink_metadata(&current).is_ok_and(|metadata| !metadata.is_symlink()) {
            set_aside(&current).map_err(at)?;
        }
        let new = beside(&current, ".new");
        let _ = fs::remove_file(&new);
        symlink(file, &new).and_then(|()| fs::rename(&new, &current)).map_err(at)
    }

    /// The key of the last request is done with.
    pub fn drop_key(&self) -> Result<(), Fault> {
        let path = self.key();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(fault(format_args!("cannot remove {}", path.display()), &error))
            }
            _ => Ok(()),
        }
    }
}

/// What a certificate in PEM says, if the key is its own. Errors: a sentence for people.
pub fn pair(chain: &[u8], key: &[u8]) -> Result<Pair, String> {
    let leaf = Leaf::of_pair(chain, key).map_err(|error| error.to_string())?;
    let time = |text: &str| parse_ns(text).map(Wall).ok_or(format!("{text} is no date"));
    let mut ips: Vec<String> = leaf.ips.iter().map(IpAddr::to_string).collect();
    let mut dns_names = leaf.dns_names;
    ips.sort();
    dns_names.sort();
    let digest = Sha256::digest(&leaf.der);
    Ok(Pair {
        not_before: time(&leaf.not_before)?,
        not_after: time(&leaf.not_after)?,
        names: CertificateNames {
            common_name: leaf.subject.common_name,
            organizations: leaf.subject.organizations,
            dns_names,
            ips,
        },
        digest: digest[..8].iter().fold(0, |n, byte| n << 8 | u64::from(*byte)),
    })
}

fn params(names: &CertificateNames) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for organization in &names.organizations {
        params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
    }
    params.distinguished_name.push(DnType::CommonName, names.common_name.as_str());
    for name in &names.dns_names {
        params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    let ips = names.ips.iter().filter_map(|ip| ip.parse().ok());
    params.subject_alt_names.extend(ips.map(SanType::IpAddress));
    Ok(params)
}

pub fn invalid(why: impl Display) -> Fault {
    Fault { kind: FaultKind::Invalid, message: why.to_string() }
}

/// Gives a file a second name that nothing bears yet: what was set aside before stays too.
fn set_aside(path: &Path) -> io::Result<()> {
    let mut count = 0;
    loop {
        let name = if count == 0 { ".replaced".into() } else { format!(".replaced.{count}") };
        match fs::hard_link(path, beside(path, &name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && count < ASIDE_MOST => {
                count += 1;
            }
            other => return other,
        }
    }
}

/// Replaces a file as a whole: after a power cut it is the old one or the new one.
pub fn write_whole(path: &Path, mode: u32, content: &[u8]) -> Result<(), Fault> {
    let at = |error: io::Error| fault(format_args!("cannot write {}", path.display()), &error);
    let new = beside(path, ".new");
    let _ = fs::remove_file(&new);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode).custom_flags(libc::O_NOFOLLOW);
    let written = options.open(&new).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, path)).map_err(at)?;
    sync(path.parent().unwrap_or(Path::new("/")))
}

fn sync(dir: &Path) -> Result<(), Fault> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| fault(format_args!("cannot sync {}", dir.display()), &error))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_aside_before_stays() {
        let scratch = Scratch::new("pki_aside");
        let file = scratch.path().join("current.pem");
        for text in ["one", "two", "three"] {
            let _ = fs::remove_file(&file);
            fs::write(&file, text).unwrap();
            set_aside(&file).unwrap();
        }
        let read = |name: &str| fs::read_to_string(beside(&file, name)).unwrap();
        let kept = [".replaced", ".replaced.1", ".replaced.2"].map(read);
        assert_eq!(kept, ["one", "two", "three"]);
    }
    use crate::shell::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    const NOW: u64 = 1_790_000_000;

    fn names() -> CertificateNames {
        CertificateNames {
            common_name: "system:node:n1".into(),
            organizations: vec!["system:nodes".into()],
            dns_names: vec!["n1".into()],
            ips: vec!["192.0.2.7".into(), "2001:db8::7".into()],
        }
    }

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    /// What an authority makes of the request that this key would sign, good for an hour.
    fn issued(key: &KeyPair) -> String {
        let mut params = params(&names()).unwrap();
        (params.not_before, params.not_after) = (at(NOW - 300).into(), at(NOW + 3_600).into());
        params.self_signed(key).unwrap().pem()
    }

    fn key_of(place: &Place) -> KeyPair {
        KeyPair::from_pem(&fs::read_to_string(place.key()).unwrap()).unwrap()
    }

    fn modes(dir: &Path) -> Vec<(String, u32)> {
        let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
        let mut all: Vec<_> = entries
            .map(|entry| {
                let mode = fs::symlink_metadata(entry.path()).unwrap().permissions().mode();
                (entry.file_name().into_string().unwrap(), mode & 0o777)
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn the_same_key_makes_the_same_request_until_it_is_dropped() {
        let scratch = Scratch::new("pki");
        let place = Place::new(scratch.path().join("pki").to_str().unwrap(), "kubelet-client");
        assert_eq!(place.read(), Ok(None));
        let (first, pem) = place.request(&names()).unwrap();
        assert!(pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----") && first.len() == 40);
        assert_eq!(place.request(&names()).unwrap().0, first);
        assert_eq!(modes(&place.dir), [("kubelet-client.key.tmp".to_owned(), 0o600)]);
        let other = CertificateNames { ips: Vec::new(), ..names() };
        assert_ne!(place.request(&other).unwrap().0, first);
        // As a crash may leave it.
        fs::write(place.key(), "-----BEGIN PRIV").unwrap();
        assert_ne!(place.request(&names()).unwrap().0, first);
        place.drop_key().unwrap();
        place.drop_key().unwrap();
        assert!(modes(&place.dir).is_empty());
    }

    #[test]
    fn a_pair_is_stored_beside_the_last_one_and_the_link_moves() {
        let scratch = Scratch::new("pki");
        let place = Place::new(scratch.path().to_str().unwrap(), "kubelet-client");
        for round in 0..3 {
            place.request(&names()).unwrap();
            let chain = issued(&key_of(&place));
            let pair = place.store_at(chain.as_bytes(), at(NOW + round / 2)).unwrap();
            assert_eq!((&pair.names, pair.not_after.0 / 1_000_000_000), (&names(), 1_790_003_600));
            assert_eq!(place.read().unwrap(), Some(pair));
        }
        let files = modes(scratch.path());
        let name = |end: &str| format!("kubelet-client-{end}.pem");
        let dated = ["2026-09-21-14-13-20-2", "2026-09-21-14-13-20", "2026-09-21-14-13-21"];
        let want = dated.map(|end| (name(end), 0o600)).into_iter();
        let link = (name("current"), 0o777);
        assert_eq!(files, want.chain([link]).collect::<Vec<_>>());
        let target = fs::read_link(place.current()).unwrap();
        assert_eq!(target, scratch.path().join(name(dated[2])));
    }

    #[test]
    fn what_is_of_no_use_changes_nothing() {
        let scratch = Scratch::new("pki");
        let place = Place::new(scratch.path().to_str().unwrap(), "kubelet-client");
        place.request(&names()).unwrap();
        let chain = issued(&key_of(&place));
        let check = |chain: &str, second: u64, want: &str| {
            let fault = place.store_at(chain.as_bytes(), at(second)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Invalid);
            assert!(fault.message.contains(want), "{}", fault.message);
            assert_eq!(modes(scratch.path()), [("kubelet-client.key.tmp".to_owned(), 0o600)]);
        };
        check("", NOW, "no certificate in it");
        check(&issued(&KeyPair::generate().unwrap()), NOW, "certificate and key");
        check(&chain, NOW + 3_600, "it has expired at 2026-09-21T15:13:20Z");
        // In 1970 it is good enough: time will come.
        place.store_at(chain.as_bytes(), at(5)).unwrap();
    }

    #[test]
    fn a_pair_that_is_none_is_told_and_what_was_put_there_is_kept() {
        let scratch = Scratch::new("pki");
        let place = Place::new(scratch.path().to_str().unwrap(), "kubelet-client");
        place.request(&names()).unwrap();
        let (key, other) = (key_of(&place), KeyPair::generate().unwrap());
        let swapped = format!("{}{}", issued(&key), other.serialize_pem());
        let dangling = scratch.path().join("gone.pem");
        symlink(&dangling, place.current()).unwrap();
        assert!(place.read().unwrap_err().message.ends_with("no such file or directory"));
        fs::remove_file(place.current()).unwrap();
        fs::write(place.current(), &swapped).unwrap();
        let fault = place.read().unwrap_err();
        assert!(fault.message.contains("certificate and key"), "{}", fault.message);
        place.store_at(issued(&key).as_bytes(), at(NOW)).unwrap();
        assert!(place.read().unwrap().is_some());
        let aside = beside(&place.current(), ".replaced");
        assert_eq!(fs::read_to_string(aside).unwrap(), swapped);
    }

    /// Each step of a store may be the last one before a power cut.
    #[test]
    fn a_crash_between_two_steps_is_mended_by_the_next_store() {
        let scratch = Scratch::new("pki");
        let place = Place::new(scratch.path().to_str().unwrap(), "kubelet-client");
        place.request(&names()).unwrap();
        let chain = issued(&key_of(&place));
        fs::write(scratch.path().join("kubelet-client-2026-09-21-14-13-20.pem"), "torn").unwrap();
        symlink("nowhere", beside(&place.current(), ".new")).unwrap();
        place.store_at(chain.as_bytes(), at(NOW)).unwrap();
        let stored = place.read().unwrap();
        assert!(stored.is_some());
        // The link was there, and the key was still to be dropped: the same request, the same answer.
        fs::write(place.key(), key_in(&place.current())).unwrap();
        place.store_at(chain.as_bytes(), at(NOW)).unwrap();
        assert_eq!(place.read().unwrap(), stored);
    }

    fn key_in(path: &Path) -> String {
        let text = fs::read_to_string(path).unwrap();
        let at = text.find("-----BEGIN PRIVATE KEY").unwrap();
        text[at..].to_owned()
    }

    #[test]
    fn files_are_replaced_as_a_whole() {
        let scratch = Scratch::new("pki");
        let path = scratch.path().join("kubelet.conf");
        fs::write(&path, "old").unwrap();
        fs::write(beside(&path, ".new"), "torn").unwrap();
        write_whole(&path, 0o600, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(modes(scratch.path()), [("kubelet.conf".to_owned(), 0o600)]);
        let gone = scratch.path().join("none/kubelet.conf");
        assert_eq!(write_whole(&gone, 0o600, b"").unwrap_err().kind, FaultKind::NotFound);
    }
}
