//! The certificate of 10250: given by files, or a self-signed pair of our own.
//!
//! The pair, `kubelet.crt` and `kubelet.key`, is kept in `--cert-dir`, as upstream's (cmd/kubelet/app/server.go,
//! v1.36). Its dates come from the wall clock, so on a machine that starts in 1970 the port opens when the clock has
//! become plausible. Files that change are read again for new connections (gate ReloadKubeletServerCertificateFile,
//! on by default).

use crate::shell::clock::PLAUSIBLE;
use crate::shell::doors::reason;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SerialNumber,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use steplet_core::time::{Mono, Span};
use steplet_wire::tls::{TlsServer, TlsSession, TlsSettings};

/// Where the serving certificate is.
#[derive(Clone, Debug)]
pub struct Tls {
    pub settings: TlsSettings,
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The pair is ours to make when it is not there, for this host name.
    pub self_signed: Option<String>,
    /// The pair comes when a cluster has issued it: the port is open before.
    pub issued: bool,
    /// `clientCAFile`: whose certificates name a user.
    pub client_ca: Option<PathBuf>,
}

/// As upstream's pair: for a year, and from an hour ago for clients whose clock is behind.
const VALID: Duration = Duration::from_secs(365 * 86_400);
const BACKDATED: Duration = Duration::from_secs(3_600);
/// How often the files are looked at while connections come.
const LOOK: Span = Span::from_secs(5);
/// A certificate with a long chain has a tenth of it.
const FILE_MAX: u64 = 1 << 20;

/// The certificate as it is served.
pub struct Certificate {
    tls: Tls,
    server: Option<TlsServer>,
    /// The files that `server` was made of, or that could not be used.
    seen: [Option<Stamp>; 3],
    look_at: Mono,
}

/// What changes when a file does: its number, size and time.
type Stamp = (u64, u64, i64, i64);

impl Certificate {
    pub fn new(tls: Tls) -> Certificate {
        Certificate { tls, server: None, seen: [None; 3], look_at: Mono(0) }
    }

    /// Reads the pair, after making it if that is wanted.
    ///
    /// Errors, for people: the clock is not plausible yet; the files cannot be read, or written; the key is not
    /// the certificate's.
    pub fn load(&mut self) -> Result<(), String> {
        // While there is one to go on with, somebody may be in the middle of changing the files.
        self.load_or(self.tls.self_signed.is_some() && self.server.is_none())
    }

    /// `remake`: a pair that does not load is moved aside, once, and made anew.
    fn load_or(&mut self, remake: bool) -> Result<(), String> {
        let tls = &self.tls;
        if let Some(host) = &tls.self_signed
            && !(has_content(&tls.certificate) && has_content(&tls.key))
        {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            make(host, &tls.certificate, &tls.key, now.unwrap_or_default())?;
        }
        self.seen = stamps(tls);
        if tls.issued && self.seen[0].is_none() {
            return Ok(());
        }
        let (certificate, key) = (read(&tls.certificate)?, read(&tls.key)?);
        let client_ca = tls.client_ca.as_deref().map(read).transpose()?;
        // Which of the three is wrong must not cost the pair its place.
        if let Some(bundle) = &client_ca
            && let Err(error) = TlsServer::check_client_ca(&tls.settings, bundle)
        {
            let path = tls.client_ca.as_deref().unwrap_or(Path::new(""));
            return Err(format!("clientCAFile {}: {error}", path.display()));
        }
        let server = TlsServer::new(&tls.settings, &certificate, &key, client_ca.as_deref());
        let server = server.map_err(|error| format!("{}: {error}", tls.certificate.display()));
        match server {
            Ok(server) => self.server = Some(server),
            Err(why) if remake => {
                log::warn!("The serving certificate is moved aside, and made anew: {why}");
                move_aside(&tls.certificate)?;
                move_aside(&tls.key)?;
                return self.load_or(false);
            }
            Err(why) => return Err(why),
        }
        Ok(())
    }

    /// A session for a connection; None while there is no certificate.
    pub fn accept(&mut self, now: Mono) -> Option<TlsSession> {
        if self.look_at <= now || self.server.is_none() {
            self.look_at = now + LOOK;
            let there = stamps(&self.tls);
            let whole = there[2].is_some() || self.tls.client_ca.is_none();
            if there != self.seen && there[..2].iter().all(Option::is_some) && whole {
                match self.load() {
                    Ok(()) => log::info!("The serving certificate has changed"),
                    Err(why) => log::error!("The last serving certificate stays in use: {why}"),
                }
            }
        }
        self.server.as_ref().map(TlsServer::accept)
    }
}

/// Of the certificate, its key and the client CA.
fn stamps(tls: &Tls) -> [Option<Stamp>; 3] {
    [stamp(&tls.certificate), stamp(&tls.key), tls.client_ca.as_deref().and_then(stamp)]
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

/// A power cut can leave a file without its content.
fn has_content(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
}

/// Keeps a file that cannot be used, as `NAME.bad`.
fn move_aside(path: &Path) -> Result<(), String> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".bad");
    let moved = fs::rename(path, &aside);
    moved.map_err(|error| format!("cannot move {} aside: {}", path.display(), reason(&error)))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = crate::shell::doors::disk::open_regular(path);
    let read = file.and_then(|file| file.take(FILE_MAX).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {}", path.display(), reason(&error)))?;
    Ok(bytes)
}

/// `now` counts from 1970.
fn make(host: &str, certificate: &Path, key: &Path, now: Duration) -> Result<(), String> {
    if now < PLAUSIBLE {
        return Err("the clock is not right yet, and a certificate needs its dates".into());
    }
    let made = self_signed(host, now);
    let (certificate_pem, key_pem) =
        made.map_err(|error| format!("cannot make a certificate for {host:?}: {error}"))?;
    if let Some(dir) = certificate.parent() {
        crate::shell::doors::make_dirs(dir, 0o755).map_err(|fault| fault.message)?;
    }
    write(key, 0o600, &key_pem)?;
    write(certificate, 0o644, &certificate_pem)?;
    log::info!("Made a self-signed serving certificate, {}", certificate.display());
    Ok(())
}

/// Certificate and key as PEM: ECDSA on P-256, for the host name as upstream's.
fn self_signed(host: &str, now: Duration) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, format!("{host}@{}", now.as_secs()));
    params.serial_number = Some(SerialNumber::from(now.as_nanos().to_be_bytes().to_vec()));
    let at = |after: Duration| (SystemTime::UNIX_EPOCH + after).into();
    params.not_before = at(now.saturating_sub(BACKDATED));
    params.not_after = at(now + VALID);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// By a temporary file, so that whoever reads finds all of it or nothing. The loop does not wait for the disk: what a
/// power cut leaves empty or torn is made anew.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), String> {
    let temporary = path.with_extension("tmp");
    let _ = fs::remove_file(&temporary);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(&temporary);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    let renamed = written.and_then(|()| fs::rename(&temporary, path));
    renamed.map_err(|error| format!("cannot write {}: {}", path.display(), reason(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    fn tls(dir: &Path, self_signed: Option<&str>) -> Tls {
        Tls {
            settings: TlsSettings::new(&[""; 0], "", &[]).unwrap(),
            certificate: dir.join("kubelet.crt"),
            key: dir.join("kubelet.key"),
            self_signed: self_signed.map(str::to_owned),
            issued: false,
            client_ca: None,
        }
    }

    #[test]
    fn the_pair_is_made_once_and_again_when_it_is_empty() {
        let scratch = Scratch::new("pki");
        let dir = scratch.path().join("pki");
        let mut certificate = Certificate::new(tls(&dir, Some("node-a")));
        assert!(certificate.accept(Mono(0)).is_none());
        certificate.load().unwrap();
        assert!(certificate.accept(Mono(0)).is_some());
        let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("kubelet.crt"), mode("kubelet.key")), (0o644, 0o600));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        let first = fs::read(dir.join("kubelet.crt")).unwrap();
        Certificate::new(tls(&dir, Some("node-a"))).load().unwrap();
        assert_eq!(fs::read(dir.join("kubelet.crt")).unwrap(), first);
        fs::write(dir.join("kubelet.crt"), "").unwrap();
        Certificate::new(tls(&dir, Some("node-a"))).load().unwrap();
        assert_ne!(fs::read(dir.join("kubelet.crt")).unwrap(), first);
    }

    #[test]
    fn an_issued_pair_is_taken_up_when_it_comes() {
        let scratch = Scratch::new("pki");
        let dir = scratch.path();
        let mut certificate = Certificate::new(Tls { issued: true, ..tls(dir, None) });
        certificate.load().unwrap();
        assert!(certificate.accept(Mono(0)).is_none());
        let (path, key) = (dir.join("kubelet.crt"), dir.join("kubelet.key"));
        make("node-a", &path, &key, PLAUSIBLE).unwrap();
        assert!(certificate.accept(Mono(1)).is_some());
    }

    #[test]
    fn an_own_pair_that_does_not_load_is_moved_aside_and_made_anew() {
        let scratch = Scratch::new("pki");
        let dir = scratch.path();
        fs::write(dir.join("kubelet.crt"), "nonsense").unwrap();
        fs::write(dir.join("kubelet.key"), "nonsense").unwrap();
        let mut given = Certificate::new(tls(dir, None));
        assert!(given.load().is_err());
        assert_eq!(fs::read(dir.join("kubelet.crt")).unwrap(), b"nonsense");
        let mut own = Certificate::new(tls(dir, Some("node-a")));
        own.load().unwrap();
        assert_eq!(fs::read(dir.join("kubelet.crt.bad")).unwrap(), b"nonsense");
        // Later the last good one stays in use.
        fs::write(dir.join("kubelet.crt"), "nonsense").unwrap();
        assert!(own.load().is_err());
        assert!(own.accept(Mono(0)).is_some());
    }

    #[test]
    fn files_that_change_are_read_again_and_bad_ones_are_not_used() {
        let scratch = Scratch::new("pki");
        let dir = scratch.path();
        let mut certificate = Certificate::new(tls(dir, None));
        let why = certificate.load().unwrap_err();
        let path = dir.join("kubelet.crt");
        assert_eq!(why, format!("cannot read {}: no such file or directory", path.display()));
        make("node-a", &path, &dir.join("kubelet.key"), PLAUSIBLE).unwrap();
        certificate.load().unwrap();
        let second = |n| Mono(0) + Span::from_secs(n);
        fs::write(&path, "nonsense").unwrap();
        assert!(certificate.accept(second(10)).is_some());
        let bad = certificate.seen;
        make("node-a", &path, &dir.join("kubelet.key"), PLAUSIBLE).unwrap();
        assert!(certificate.accept(second(20)).is_some());
        assert_ne!(certificate.seen, bad);
        fs::remove_file(&path).unwrap();
        assert!(certificate.accept(second(30)).is_some());
    }

    #[test]
    fn no_pair_is_made_for_a_strange_name_or_by_a_clock_that_is_wrong() {
        let scratch = Scratch::new("pki");
        let (certificate, key) = (scratch.path().join("crt"), scratch.path().join("key"));
        let check = |host, now, want: &str| {
            let why = make(host, &certificate, &key, Duration::from_secs(now)).unwrap_err();
            assert!(why.starts_with(want), "{why}");
            assert!(!certificate.exists() && !key.exists());
        };
        check("node-a", 0, "the clock is not right yet");
        check("node-a", PLAUSIBLE.as_secs() - 1, "the clock is not right yet");
        check("näme", PLAUSIBLE.as_secs(), "cannot make a certificate for \"näme\": ");
    }
}
